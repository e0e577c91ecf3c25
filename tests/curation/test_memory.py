"""Memory does not grow with the data: images pass through, and a few numbers stay of each."""

import tracemalloc
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest

from facerts.curation.dedup import dedup
from facerts.curation.output_spec import OutputSpec
from facerts.curation.rearrange import pack, split
from facerts.datasets.source import Source

IMAGE = 2000
FEW, MANY = 2_000, 10_000
# Far below an image, and above what arrays of several numbers for each take.
BYTES_EACH = 100


class Numbered(Source):
    """Images that are made as they are asked for, ten of each identity."""

    name = "numbered"

    def __init__(self, count):
        self.labels = np.arange(count) // 10
        self.identities = [f"p{label}" for label in range(count // 10)]

    def __len__(self):
        return len(self.labels)

    def key(self, index):
        return f"p{index // 10}/{index}.jpg"

    def read(self, index):
        return index.to_bytes(8, "big") * (IMAGE // 8)


def peak(run):
    """The lower peak of two runs: Python's table of interned strings, which grows in leaps, counts in one at most."""
    peaks = []
    for _ in range(2):
        tracemalloc.start()
        try:
            run()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return min(peaks)


COMMANDS = {
    "split": lambda source, folder: split(source, OutputSpec(folder / "a"), OutputSpec(folder / "b.tar"), share=0.5),
    "dedup": lambda source, folder: dedup(source, OutputSpec(folder / "a.tar")),
    "pack": lambda source, folder: pack([source], OutputSpec(folder / "a", 2), shuffle_seed=0),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_keeps_a_few_numbers_of_each_image(command, tmp_path):
    few, many = (
        peak(lambda count=count: COMMANDS[command](Numbered(count), Path(mkdtemp(dir=tmp_path)) / "out"))
        for count in (FEW, MANY)
    )
    assert many - few < BYTES_EACH * (MANY - FEW)
