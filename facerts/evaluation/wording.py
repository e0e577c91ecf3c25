"""How numbers are written, in tables and in sentences: shares in percent, and no digits that an interval makes idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

DIGITS = 2
MAX_DIGITS = 4


def percent(share: float | None, digits: int = DIGITS) -> str:
    """A share as "97.98%"; a dash for none."""
    return "–" if share is None else f"{_percent(share, digits)}%"


def digits_of(ends: Sequence[float] | None, most: int = DIGITS) -> int:
    """The digits of a percentage that its interval leaves a meaning: none where it is 10 points wide, one at 2."""
    width = 0.0 if ends is None else ends[1] - ends[0]
    return min(most, 0 if width >= 0.1 else 1 if width >= 0.02 else most)


def interval(ends: Sequence[float] | None, digits: int = DIGITS) -> str:
    """An interval of a share as "[97.43, 98.45]", in percent; empty for none."""
    return "" if ends is None else f"[{', '.join(_percent(end, digits) for end in ends)}]"


def measured(value: float | None, ends: Sequence[float] | None, most: int = 1) -> str:
    """A share with its interval, with at most so many digits."""
    digits = digits_of(ends, most)
    return f"{percent(value, digits)} {interval(ends, digits)}".rstrip()


def rate(share: str | float) -> str:
    """A rate that was asked for, as "0.1%"."""
    return f"{100 * float(share):g}%"


def points(difference: float) -> str:
    """A difference of shares as "−1.20", in percentage points."""
    return f"{100 * difference:+.{DIGITS}f}".replace("-", "−")


def points_interval(ends: Sequence[float]) -> str:
    """An interval of a difference of shares, in percentage points."""
    return f"[{', '.join(map(points, ends))}]"


def complement(ends: Sequence[float] | None) -> tuple[float, float] | None:
    """The interval of 1 − x, from that of x."""
    return None if ends is None else (1 - ends[1], 1 - ends[0])


def _percent(share: float, digits: int) -> str:
    """With further digits where a share would otherwise look like nothing or everything."""
    text = f"{100 * share:.{digits}f}"
    while 0 < share < 1 and float(text) in (0, 100) and digits < MAX_DIGITS:
        digits += 1
        text = f"{100 * share:.{digits}f}"
    return text


def against(ends: Sequence[float], chance: float) -> str:
    """The end of a sentence: whether an interval lies above what chance would reach; empty where it does."""
    return f", not clearly better than chance ({percent(chance, 1)})" if ends[0] <= chance else ""


def one_in(fmr: float) -> str:
    """A false match rate in words."""
    whole = abs(1 / fmr - round(1 / fmr)) < 1e-6
    return f"one false match in {round(1 / fmr):,}" if whole else f"FMR {rate(fmr)}"


def score_in_words(name: str) -> str:
    """A score as sentences call it."""
    return {"norm": "embedding norm", "det_score": "detector score"}.get(name, name.replace("_", " "))


def joined(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def counts(images: Mapping[str, int]) -> str:
    """Sources with their numbers of images, in a sentence."""
    return ", ".join(f"{name} {count:,}" for name, count in images.items())
