"""Measure what the tests catch: break the code in small ways, one at a time, and see which breaks make a test fail.

    python tools/mutants.py                     # every mutant of mutants.yaml, on the tests that `make test` runs
    python tools/mutants.py --only ood_tie      # those whose name contains a text
    python tools/mutants.py --all-tests         # on all tests, as `make test-all` runs them

A mutant replaces a text that occurs once in its file. The tests that its entry names run first, and only if they pass,
all others. The repository is cloned for it, so the working tree is not touched; what is not committed is not tested.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

import yaml

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".yaml")
# Exit status of pytest when a test failed; when the collection failed, which a mutant can cause too.
FAILED, INTERRUPTED, NO_TESTS = 1, 2, 5


@dataclass(frozen=True)
class Mutant:
    """A break of the code.

    Attributes:
        name: unique name.
        file: the file, relative to the repository.
        old: the text to replace, which occurs once in the file.
        new: the broken text.
        tests: the tests most likely to notice, relative to the repository.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> None:
        """Break the file.

        Raises:
            ValueError: the text does not occur exactly once.
        """
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {text.count(self.old)} places in {self.file} have {self.old!r}")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


def read_mutants(path: Path) -> list[Mutant]:
    """The mutants of a list."""
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


def failures(root: Path, tests: Sequence[str], *options: str) -> list[str]:
    """The tests that fail."""
    # The clone's package comes before the installed one.
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *options, *tests],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode in (0, NO_TESTS):
        return []
    lines = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if ran.returncode not in (FAILED, INTERRUPTED) or not lines:
        raise RuntimeError(f"pytest ended with status {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    return [line.partition(" ")[2].split(" - ")[0] for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=Path, default=LIST, help="list of mutants")
    parser.add_argument("--repository", type=Path, default=ROOT, help="checkout whose last commit is broken")
    parser.add_argument("--only", default="", help="only mutants whose name contains this text")
    parser.add_argument("--all-tests", action="store_true", help="run slow tests, too")
    parser.add_argument("--processes", type=int, default=2, help="mutants that are tested at the same time")
    arguments = parser.parse_args()
    marker = "slow or not slow" if arguments.all_tests else "not slow"
    mutants = [each for each in read_mutants(arguments.mutants) if arguments.only in each.name]
    with tempfile.TemporaryDirectory() as folder:
        clones: Queue[Path] = Queue()
        for number in range(arguments.processes):
            clone = Path(folder, str(number), "facerts")
            subprocess.run(["git", "clone", "--quiet", arguments.repository, clone], check=True)
            clones.put(clone)

        # A test that fails without a break, such as one that wants the installed package, says nothing.
        unbroken = failures(Path(folder, "0", "facerts"), (), "-m", marker)
        options = ["-x", *(f"--deselect={name}" for name in unbroken), "-m"]

        def test(mutant: Mutant) -> str:
            clone = clones.get()
            try:
                mutant.apply(clone)
                caught = failures(clone, mutant.tests, *options, "not slow")
                return (caught or failures(clone, (), *options, marker) or [""])[0]
            finally:
                subprocess.run(["git", "-C", clone, "checkout", "--quiet", "."], check=True)
                clones.put(clone)

        caught = 0
        with ThreadPoolExecutor(arguments.processes) as pool:
            for mutant, failure in zip(mutants, pool.map(test, mutants), strict=True):
                caught += bool(failure)
                print(f"{mutant.name:32} {failure or 'NOT CAUGHT'}", flush=True)
    print(f"{caught} of {len(mutants)} mutants caught")


if __name__ == "__main__":
    main()
