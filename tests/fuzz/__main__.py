"""Fuzz every reader for as long as you like: ``python -m tests.fuzz --minutes 10 --out out/fuzz``.

Prints a row for each reader and exits with status 1 if one of them failed; failed cases are kept in the output folder.
"""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from facerts.report.table import markdown_table
from tests.fuzz.campaign import fuzz, keep_failures
from tests.fuzz.readers import READERS
from tests.hostile.sandbox import MAX_MIB, MAX_SECONDS, READ, REFUSED


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "readers", nargs="*", metavar="READER", help=f"Readers to fuzz: {', '.join(READERS)}; all by default."
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="Time for all readers together, in minutes (10).")
    parser.add_argument("--jobs", type=int, default=2, help="Number of readers to fuzz in parallel (2).")
    parser.add_argument("--seed", type=int, help="Seed of the first round; by default the current time.")
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"), help="Folder for failed cases (out/fuzz).")
    options = parser.parse_args()
    names = options.readers or list(READERS)
    if unknown := set(names) - set(READERS):
        parser.error(f"no reader {', '.join(sorted(unknown))}; choose from {', '.join(READERS)}")
    seconds = 60 * options.minutes * options.jobs / len(names)
    seed = int(time.time()) if options.seed is None else options.seed
    print(f"seed {seed}; at most {MAX_SECONDS:.0f} s and {MAX_MIB} MiB per case", file=sys.stderr)
    rows, failed = [], False
    with ProcessPoolExecutor(options.jobs) as pool:
        tallies = pool.map(partial(fuzz, seconds=seconds, seed=seed), names)
        for name, tally in zip(names, tallies, strict=True):
            kept = keep_failures(name, tally, options.out)
            failed = failed or bool(kept)
            for path in kept:
                print(f"{name}: {path}: {(path / 'outcome.txt').read_text().splitlines()[0]}", file=sys.stderr)
            counts = tally.outcomes
            broken = counts.total() - counts[READ] - counts[REFUSED]
            numbers = (counts.total(), counts[READ], counts[REFUSED], broken)
            rows.append([name, *(f"{number:,}" for number in numbers), f"{tally.slowest:.2f}", f"{tally.largest:.0f}"])
    header = ["reader", "inputs", "read", "refused", "failed", "slowest, s", "largest, MiB"]
    print(markdown_table(header, rows))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
