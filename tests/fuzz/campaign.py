"""Cases drawn by Hypothesis, read in a sandbox, counted; failures are shrunk and kept."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.mutations import mutated_bytes, mutated_tree
from tests.fuzz.readers import READERS, Reader
from tests.fuzz.sandbox import Files, Outcome, Sandbox

# Between two looks at the clock.
ROUND = 100


class FailedCaseError(AssertionError):
    """A reader broke its promise on a case."""


@dataclass
class Tally:
    """What became of a reader's cases.

    Attributes:
        outcomes: how many of each kind.
        slowest: processor time of the slowest, in seconds.
        largest: peak memory of the largest, in MiB.
        failures: the shrunk cases that failed, and how.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    largest: float = 0.0
    failures: list[tuple[Files, Outcome]] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.outcomes[outcome.kind] += 1
        self.slowest = max(self.slowest, outcome.seconds)
        self.largest = max(self.largest, outcome.mebibytes)


class Case(dict[str, bytes]):
    """A case's files; Hypothesis prints what it draws, and whole files are too long."""

    def __repr__(self) -> str:
        return f"Case({', '.join(f'{name}: {len(content)} bytes' for name, content in self.items())})"


@st.composite
def cases(draw: st.DrawFn, reader: Reader) -> Case:
    """A whole file of a kind with something changed, inside or outside of its checksums."""
    hostile = reader.hostile()
    if hostile and draw(st.integers(0, 3)) == 0:
        files = dict(draw(st.sampled_from(hostile)))
        name = draw(st.sampled_from(list(files)))
        files[name] = draw(mutated_bytes(files[name], [other[name] for other in hostile if name in other]))
        return Case(files)
    seeds = reader.seeds()
    files = dict(draw(st.sampled_from(seeds)))
    inside = reader.pack is not None and draw(st.integers(0, 3)) > 0
    if not inside:
        files = reader.whole(files)
    name = draw(st.sampled_from(list(files)))
    if reader.parse is not None and reader.write is not None and _is_tree(name) and draw(st.booleans()):
        files[name] = reader.write(draw(mutated_tree(reader.parse(files[name]))))
    else:
        files[name] = draw(mutated_bytes(files[name], [seed[name] for seed in seeds if name in seed]))
    return Case(reader.whole(files) if inside else files)


def _is_tree(name: str) -> bool:
    return name.endswith((".json", ".yaml"))


def fuzz(name: str, *, examples: int | None = None, seconds: float | None = None, seed: int = 0) -> Tally:
    """Fuzz one reader with a number of cases, or until the time is over.

    Args:
        name: in ``READERS``.
        examples: how many cases; None for as many as there is time for.
        seconds: of wall time.
        seed: the same cases come again with the same seed and number of examples.
    """
    tally, begin, number = Tally(), time.monotonic(), 0
    reader = READERS[name]
    with Sandbox(reader.read, reader.whole(reader.seeds()[0])) as sandbox:
        while True:
            if examples is not None and tally.outcomes.total() >= examples:
                return tally
            if seconds is not None and time.monotonic() - begin >= seconds:
                return tally
            _round(name, sandbox, tally, min(ROUND, examples or ROUND), seed + number)
            number += 1


def _round(name: str, sandbox: Sandbox, tally: Tally, examples: int, seed: int) -> None:
    last: tuple[Files, Outcome] | None = None

    def read(files: Files) -> None:
        nonlocal last
        outcome = sandbox.run(files)
        tally.add(outcome)
        if outcome.failed:
            last = files, outcome
            # One kind of failure at a time is shrunk: Hypothesis tells them by where they are raised.
            raise FailedCaseError(f"{outcome.kind}: {outcome.text}")

    run: Callable[[], None] = hypothesis.seed(seed)(
        settings(
            max_examples=examples,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )(given(cases(READERS[name]))(read))
    )
    try:
        run()
    except FailedCaseError:
        assert last is not None
        tally.failures.append(last)


def keep_failures(name: str, tally: Tally, folder: Path) -> list[Path]:
    """Write the failed cases, each into a folder of its own with what happened beside it."""
    kept = []
    for number, (files, outcome) in enumerate(tally.failures):
        path = folder / name.replace(" ", "_") / f"{number:03d}"
        path.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (path / file).write_bytes(content)
        (path / "outcome.txt").write_text(f"{outcome.kind}\n{outcome.text}\n", encoding="utf-8")
        kept.append(path)
    return kept
