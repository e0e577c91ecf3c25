"""What evaluations say in words follows from the numbers, and from what their intervals allow."""

import numpy as np
import pytest

from facerts.evaluation.measure import Evaluation, Measure
from facerts.evaluation.ood import ood_finding
from facerts.evaluation.pair_verification import verification_findings
from facerts.evaluation.rejection import reject_finding
from facerts.metrics.error_versus_reject import RATES, RejectCurve


def verified(accuracy, low, high, *, genuine=3000, impostors=3000, passing=30):
    """FNMR is 0.081 [0.069, 0.094] at FMR 0.001."""
    measures = [
        Measure(name="accuracy", value=accuracy, ci95=(low, high), n=genuine + impostors, headline=True),
        Measure(name="FNMR at FMR 1%", value=0.03, ci95=(0.02, 0.04), passing=300),
        Measure(name="FNMR at FMR 0.1%", value=0.081, ci95=(0.069, 0.094), passing=passing, headline=True),
        Measure(name="genuine pairs", value=genuine, format="count"),
        Measure(name="impostor pairs", value=impostors, format="count"),
    ]
    return Evaluation(title="Verification", measures=measures)


def test_verification_in_words():
    assert list(verification_findings(verified(0.98, 0.974, 0.985))) == [
        "It decides 98.0% [97.4, 98.5] of 6,000 pairs correctly.",
        "At one false match in 1,000 different-person pairs, it misses 8.1% [6.9, 9.4] of the same-person pairs.",
    ]


def test_what_is_not_clearly_better_than_chance_or_rests_on_few_pairs_is_called_so():
    _, few = verification_findings(verified(0.98, 0.97, 0.99, passing=3))
    assert "different-person pairs (only 3 of them decide the threshold), it misses" in few
    close, _ = verification_findings(verified(0.52, 0.49, 0.55))
    assert "52.0% [49.0, 55.0] of 6,000 pairs correctly, not clearly better than chance (50.0%)." in close
    # Who always says "two people" is right in 4 of 6 cases.
    uneven, _ = verification_findings(verified(0.7, 0.66, 0.74, genuine=2000, impostors=4000))
    assert "chance (66.7%)" in uneven
    templates = verified(0.5, 0.4, 0.6)
    templates.measures[0] = Measure(name="AUROC", value=0.98, ci95=(0.97, 0.99))
    first, _ = verification_findings(templates)
    assert first == "It separates genuine from impostor pairs with AUROC 98.0% [97.0, 99.0]."


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
def test_rejection_in_words(before, after, ends, words):
    fnmr = np.full(len(RATES), after)
    fnmr[0] = before
    intervals = None if ends is None else np.array([np.full(len(RATES), end) for end in ends])
    sentence = reject_finding(RejectCurve(fnmr, intervals, {}, {}), "norm", 0.001)
    assert sentence.startswith("At one false match in 1,000")
    assert sentence.endswith(words)
    assert ("the 20% of lowest embedding norm" in sentence) == (before > 0)


@pytest.mark.parametrize(
    ("tnr", "low", "high", "said"),
    [
        (1.0, 1.0, 1.0, "By quality it rejects all 50 non-faces (pets) while it keeps 95% of the faces (lfw)."),
        # What is not everything does not look like it.
        (0.9996, 0.999, 0.9999, "By quality it rejects 99.96% [99.9, 99.99] of 50 non-faces (pets) while it keeps 95% "
         "of the faces (lfw)."),
        (0.06, 0.04, 0.09, "By quality it rejects 6.0% [4.0, 9.0] of 50 non-faces (pets) while it keeps 95% of the "
         "faces (lfw), not clearly better than chance (5.0%)."),
    ],
)  # fmt: skip
def test_non_faces_in_words(tnr, low, high, said):
    measure = Measure(name="TNR at TPR 95%", value=tnr, ci95=(low, high))
    assert ood_finding(measure, "quality", {"lfw": 100}, {"pets": 50}) == said
