from __future__ import annotations

import re

import pytest

from facerts.report.figures import Effect, effects


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def drawn(values: dict[str, float]) -> list[str]:
    differences = {
        name: {"accuracy": Effect(value, (value - 0.01, value + 0.01), [value - 0.001, value + 0.001])}
        for name, value in values.items()
    }
    return texts(effects(differences, "the reference"))


@pytest.mark.parametrize(("value", "shown"), [(0.45, "+45.0"), (-0.45, "\N{MINUS SIGN}45.0")])
def test_a_setting_far_beyond_all_others_is_a_number_at_the_edge(value: float, shown: str) -> None:
    found = drawn({"a": 0.01, "b": -0.02, "far": value, "c": 0.015})
    assert found.count(shown) == 1
    found.remove(shown)
    # The axis is that of the others: it ends at about 3 percentage points.
    plain = [text.replace("\N{MINUS SIGN}", "-") for text in found]
    ticks = [float(text) for text in plain if re.fullmatch(r"-?\d+(\.\d+)?", text)]
    assert ticks
    assert max(map(abs, ticks)) < 5


def test_of_few_settings_all_are_on_the_axis() -> None:
    found = drawn({"a": 0.01, "far": 0.45})
    assert "+45.0" not in found


def test_no_difference_at_all_can_be_drawn() -> None:
    differences = {name: {"accuracy": Effect(0.0, None, [0.0])} for name in "abcd"}
    shown = {*"abcd", "accuracy", "difference from x, in percentage points"}
    assert shown <= set(texts(effects(differences, "x")))


def test_an_effect_of_several_runs_has_their_own_interval_and_one_of_a_single_run_the_one_given() -> None:
    several = Effect.of_runs([0.1, 0.3], (0.0, 1.0))
    assert several.value == pytest.approx(0.2)
    assert several.interval == pytest.approx((0.2 - 1.27062, 0.2 + 1.27062), abs=1e-5)
    assert Effect.of_runs([0.1], (0.0, 1.0)) == (0.1, (0.0, 1.0), [0.1])
    assert Effect.of_runs([0.1]).interval is None
