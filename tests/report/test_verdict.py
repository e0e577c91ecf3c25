"""What the page says in words follows from the numbers, and from what their intervals allow."""

from __future__ import annotations

from typing import Any

import pytest

from facerts.evaluation.results import Comparison, Result
from facerts.report.subject import Subject
from facerts.report.verdict import verdicts

HEADER = {
    "schema": "facerts.result/1",
    "command": [],
    "versions": {},
    "model": {"name": "a", "sha256": "a" * 64, "method": "rts"},
    "created": "2026-01-01T00:00:00+00:00",
}


def verified(accuracy: float, low: float, high: float, **changes: Any) -> dict[str, Any]:
    """A section with FNMR 0.081 [0.069, 0.094] at FMR 0.001."""
    points = {
        far: {"value": tar, "achieved_far": float(far), "threshold": 0.4, "impostors_accepted": passing, "ci95": ends}
        for far, tar, passing, ends in (
            ("0.01", 0.97, 300, [0.96, 0.98]),
            ("0.001", 0.919, 30, [0.906, 0.931]),
            ("0.0001", 0.8, 3, [0.7, 0.9]),
        )
    }  # fmt: skip
    section = {
        "images": 100, "subjects": 50, "pairs": 6000, "genuine": 3000, "impostors": 3000, "flip": True,
        "similarity": "cosine", "auroc": 0.99,
        "eer": 0.02, "tar_at_far": points, "interval": "bootstrap over subjects", "data_sha256": "d" * 64,
        "accuracy": {"value": accuracy, "fold_std": 0.0, "ci95": [low, high]},
    }  # fmt: skip
    return section | changes


def rejected(
    before: float, after: float, ends: tuple[float, float] | None, by: str = "quality"
) -> dict[str, Any]:
    shares = [0.0, 0.1, 0.2]
    curve: dict[str, Any] = {
        "by": by, "similarity": "cosine",
        "pairs": "benchmark", "fmr": 0.001, "genuine": 3000, "impostors": 3000,
        "impostors_accepted": 3, "threshold": 0.4, "rejected": shares, "fnmr": [before, after, after],
        "oracle_fnmr": [before, 0.0, 0.0], "area": {"0.2": after, "0.95": after}, "random_area": before,
        "oracle_area": {"0.2": 0.0, "0.95": 0.0},
    }  # fmt: skip
    if ends is not None:
        curve["fnmr_ci95"] = [[end] * 3 for end in ends]
    return curve


def separated(tnr: float, low: float, high: float, data: str = "d") -> dict[str, Any]:
    numbers = {
        "auroc": 0.99, "aupr": 0.9, "fpr95": 1 - tnr, "tnr_at_tpr": {"0.90": tnr, "0.95": tnr},
        "ci95": {"auroc": [0.98, 1.0], "0.90": [low, high], "0.95": [low, high]},
    }  # fmt: skip
    return {
        "in": {"lfw": 100}, "out": {"pets": 50}, "by": {"quality": numbers}, "interval": "bootstrap over images",
        "data_sha256": {"lfw": data},
    }  # fmt: skip


def subject(label: str = "a", **sections: Any) -> Subject:
    return Subject(label, Result.model_validate(HEADER | sections), {}, [])


def said(*subjects: Subject, compared: Comparison | None = None) -> dict[str, dict[str, str]]:
    """Sentences by title and topic, with plain spaces."""
    return {
        verdict.title: {finding.topic: " ".join(finding.sentences) for finding in verdict.findings}
        for verdict in verdicts(subjects, compared)
    }


def test_verification_in_words() -> None:
    assert said(subject(verification={"lfw": verified(0.98, 0.974, 0.985)})) == {
        "a": {
            "lfw": "It decides 98.0% [97.4, 98.5] of 6,000 pairs correctly. At one false match in 1,000 "
            "different-person pairs, it misses 8.1% [6.9, 9.4] of the same-person pairs."
        }
    }  # fmt: skip


def test_what_is_not_clearly_better_than_chance_or_rests_on_few_pairs_is_called_so() -> None:
    few = verified(0.98, 0.97, 0.99)
    few["tar_at_far"]["0.001"]["impostors_accepted"] = 3
    assert (
        "different-person pairs (only 3 of them decide the threshold), it misses"
        in said(subject(verification={"lfw": few}))["a"]["lfw"]
    )
    close = said(subject(verification={"lfw": verified(0.52, 0.49, 0.55)}))["a"]["lfw"]
    assert "52.0% [49.0, 55.0] of 6,000 pairs correctly, not clearly better than chance (50.0%)." in close
    # Who always says "two people" is right in 4 of 6 cases.
    uneven = verified(0.7, 0.66, 0.74, genuine=2000, impostors=4000)
    assert "chance (66.7%)" in said(subject(verification={"lfw": uneven}))["a"]["lfw"]
    assert (
        "not clearly better than chance (5.0%)"
        in said(subject(ood=separated(0.06, 0.04, 0.09)))["a"]["Non-faces"]
    )


@pytest.mark.parametrize(
    ("before", "after", "ends", "words"),
    [
        (0.081, 0.063, (0.05, 0.075), "lowers its misses from 8.1% to 6.3% [5.0, 7.5], where random rejection would "
         "leave 8.1%."),
        (0.081, 0.063, (0.05, 0.09), "leaves it missing 6.3% [5.0, 9.0], no clear difference from the 8.1% of random "
         "rejection."),
        (0.081, 0.063, None, "leaves it missing 6.3%, no clear difference from the 8.1% of random rejection."),
        (0.081, 0.12, (0.1, 0.14), "raises its misses from 8.1% to 12.0% [10.0, 14.0], where random rejection "
         "would leave 8.1%."),
        (0.0, 0.0, (0.0, 0.0), "misses no pair, so leaving out pairs of low quality cannot help."),
    ],
)  # fmt: skip
def test_rejection_in_words(
    before: float, after: float, ends: tuple[float, float] | None, words: str
) -> None:
    sentence = said(subject(reject={"lfw": [rejected(before, after, ends)]}))["a"]["lfw"]
    assert sentence.startswith("At one false match in 1,000")
    assert sentence.endswith(words)


@pytest.mark.parametrize(("before", "words"), [(0.081, "lowers that to 6.3%"), (0.085, "lowers its misses")])
def test_rejection_goes_on_from_the_same_fnmr_alone(before: float, words: str) -> None:
    curve = rejected(before, 0.063, (0.05, 0.075))
    model = subject(verification={"lfw": verified(0.98, 0.97, 0.99)}, reject={"lfw": [curve]})
    assert words in said(model)["a"]["lfw"].split("same-person pairs. ")[1]


def test_non_faces_in_words() -> None:
    assert said(subject(ood=separated(1.0, 1.0, 1.0)))["a"]["Non-faces"] == (
        "By quality it rejects all 50 non-faces (pets) while it keeps 95% of the faces (lfw)."
    )
    # What is not everything does not look like it.
    assert (
        "99.96% [99.9, 99.99] of 50 non-faces (pets)"
        in said(subject(ood=separated(0.9996, 0.999, 0.9999)))["a"]["Non-faces"]
    )


def correlation(value: float) -> dict[str, Any]:
    return {"value": value, "ci95": [value - 0.1, value + 0.1]}


def corrupted(kept: dict[str, float], **found: dict[str, Any]) -> dict[str, Any]:
    """A section of kinds, of which a share of the images is kept at severity 1, with rank correlations."""
    steps = {"p5": [0.0] * 3, "p50": [1.0, 0.5, 0.0], "p95": [1.0] * 3, "auroc": [0.9, 0.9]}
    kinds = {
        kind: {
            "family": "quality", "held_out": kind == "sepia", "cosine": [1.0, 0.8, 1 - share], "to_other": {},
            "to_unchanged": {}, "not_a_face": None,
            "by": {"quality": {**steps, "kept": [1.0, 0.9, share], "percentile": [50.0, 20.0, 1.0]}},
        }
        for kind, share in kept.items()
    }  # fmt: skip
    return {
        "images": 100, "people": False, "severity": [0.0, 0.6, 1.0], "seed": 0, "recognizers": {},
        "thresholds": {"quality": {"value": 0.2, "calibrated": False}}, "kinds": kinds,
        "rank_correlation": {"quality": found} if found else {}, "agreement": {},
    }  # fmt: skip


def test_corruptions_in_words() -> None:
    def sentence(**found: dict[str, Any]) -> str:
        section = corrupted({"blur": 0.3, "sepia": 0.5}, **found)
        return said(subject(corruptions={"lfw": section}))["a"]["lfw, corrupted"]

    correlations = {"all": correlation(0.912), "held_out": correlation(0.75)}
    begin = (
        "Over 4 changes of 100 faces, its quality follows the cosine with rank correlation 0.91 [0.81, 1.01]"
    )
    assert sentence(**correlations) == f"{begin}, 0.75 over kinds held out."
    assert sentence(all=correlation(0.912)) == f"{begin}."
    assert sentence() == "At full severity, its threshold of quality keeps 40% of the faces."


def test_single_intervals_rank_models_only_if_they_lie_apart_on_the_same_data() -> None:
    def between(*sections: dict[str, Any]) -> str:
        models = [
            subject(label, verification={"lfw": one}) for label, one in zip("abc", sections, strict=False)
        ]
        return said(*models)["Between models"]["lfw"]

    best, near, far = verified(0.98, 0.97, 0.99), verified(0.96, 0.95, 0.975), verified(0.9, 0.88, 0.92)
    assert between(far, best) == ("b decides more pairs correctly than a: its interval lies above the other.")
    assert between(near, far, best).startswith(
        "These results alone show no clear difference between c and a: "
    )
    other = verified(0.9, 0.88, 0.92, data_sha256="e" * 64)
    assert between(best, other).startswith("The models were not measured on the same data")
    assert "Between models" not in said(subject(verification={"lfw": best}))


def test_paired_differences_say_which_model_is_better() -> None:
    def difference(value: float, low: float, high: float) -> dict[str, Any]:
        return {"value": value, "ci95": [low, high], "p_value": 0.01, "unit": "subjects"}

    model = {"label": "b", "folder": "b", "name": "b", "sha256": "b" * 64}
    compared = Comparison.model_validate(
        {
            "schema": "facerts.comparison/1", "methods": [], "reference": model | {"label": "a"}, "models": [model],
            "verification": {
                "lfw": [
                    {
                        "model": model, "far": 0.001, "accuracy": difference(0.001, -0.01, 0.012),
                        "auroc": difference(0.0, 0.0, 0.0), "tar_at_far": difference(0.02, 0.01, 0.03),
                    }
                ]
            },
            "ood": [{"model": model, "by": {
                "quality": {"auroc": difference(0, 0, 0), "tnr_at_tpr": difference(-0.1, -0.2, -0.05)}
            }}],
            "tables": [], "embedding": "a", "curves": {}, "notes": [],
        }
    )  # fmt: skip
    # Single intervals, which lie far apart, do not count where there are paired ones.
    models = [
        subject(label, verification={"lfw": verified(value, value, value)})
        for label, value in (("a", 0.9), ("b", 0.8))
    ]
    assert said(*models, compared=compared)["Between models"] == {
        "lfw": "b shows no clear difference from a in accuracy: +0.10 percentage points [−1.00, +1.20]. b is better "
        "than a in FNMR at FMR 0.1%: −2.00 percentage points [−3.00, −1.00].",
        "Non-faces": "b is worse than a in TNR at TPR 95% by quality: −10.00 percentage points [−20.00, −5.00].",
    }  # fmt: skip
