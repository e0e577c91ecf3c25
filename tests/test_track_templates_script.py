"""eval/track_templates.py: each template is of the frames that it says, and rates are those that pairs give."""

from __future__ import annotations

import numpy as np
import pytest

from tests.scripts import load_script

script = load_script("track_templates")


def frames(**changed: object) -> object:
    """Two tracks of three frames, on six axes."""
    values = {
        "track": np.array([0, 0, 0, 1, 1, 1]),
        "embedding": np.eye(6, dtype=np.float32),
        "quality": np.array([1.0, 3, 2, 5, 4, 5]),
        "percentile": np.array([0.0, 60, 15, 30, 3, 90]),
        "uncertainty": np.array([1.0, 2, 4, 1, 1, 1]),
        "sharpness": np.array([3.0, 1, 2, 1, 2, 3]),
        "det_score": np.array([0.5, 0.6, 0.9, 0.9, 0.8, 0.7]),
    }
    return script.Frames(**(values | changed))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mean of all frames", [1, 1, 1]),
        ("weighted by 1 / v", [1, 1 / 2, 1 / 4]),
        ("weighted by 1 / v⁴", [1, 1 / 16, 1 / 256]),
        ("weighted by percentile, as in tracks and galleries", [0.01, 1, 0.5]),
        ("best shot by quality", [0, 1, 0]),
        ("sharpest frame", [1, 0, 0]),
        ("frame with the best detector score", [0, 0, 1]),
        ("weighted by detector score", [0.5, 0.6, 0.9]),
        ("first frame", [1, 0, 0]),
    ],
)
def test_a_template_weighs_frames_as_it_says(name: str, expected: list[float]) -> None:
    template = script.templates(frames())[name][0, :3]
    np.testing.assert_allclose(template, np.array(expected) / np.linalg.norm(expected), atol=1e-6)


def test_the_first_of_equally_good_frames_is_the_best() -> None:
    assert script.templates(frames())["best shot by quality"][1].argmax() == 3


def test_templates_that_need_what_is_not_there_are_left_out() -> None:
    nothing = np.full(6, np.nan)
    made = script.templates(frames(uncertainty=nothing, det_score=nothing))
    assert not [name for name in made if "1 / v" in name or "detector" in name]
    assert "first frame" in made


def test_rates_are_those_of_all_pairs() -> None:
    random = np.random.default_rng(0)
    person = np.repeat(np.arange(30), 3)
    template = random.normal(size=(30, 16))[person] + 1.5 * random.normal(size=(90, 16))
    template = (template / np.linalg.norm(template, axis=1, keepdims=True)).astype(np.float32)
    cosine = template @ template.T
    upper = np.triu(np.ones((90, 90), dtype=bool), 1)
    same = person[:, None] == person[None]
    impostor = np.sort(cosine[upper & ~same])[::-1]
    limit = impostor[int(0.001 * len(impostor))]
    values = script.fnmr(template, person)
    assert values[0] == pytest.approx(np.mean(cosine[upper & same] <= limit))
    assert values[1:].min() < values[0] < values[1:].max()
    assert script.fmr_at(0.5, template, person) == pytest.approx(np.mean(impostor >= 0.5))
    fnmr, fmr, lowest, _ = script.errors(template, person, 0.5)
    assert fnmr.startswith(f"{100 * np.mean(cosine[upper & same] < 0.5):.2f} of 90")
    assert fmr.startswith(f"{100 * np.mean(impostor >= 0.5):.2f} of")
    assert lowest == f"{cosine[upper & same].min():.3f}"
