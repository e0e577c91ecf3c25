import numpy as np
import pytest

from facerts.errors import DataError
from facerts.io import npz


def test_a_small_file_cannot_expand_to_any_size(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "MAX_BYTES", 100_000)
    path = tmp_path / "small.npz"
    for arrays, size in (
        # Numbers take eight bytes, as they are computed with.
        ({"zeros": np.zeros(200_000, np.int8)}, 1_600_000),
        # Texts are Python's strings, as they are looked up by.
        ({"names": np.full(5000, "a")}, 1_300_000),
        ({"long": np.full(10, "a" * 40_000)}, 1_602_560),
        ({f"{number}": np.zeros(1) for number in range(60)}, 60 * 16_392),
    ):
        np.savez_compressed(path, **arrays)
        ratio = size / path.stat().st_size
        monkeypatch.setattr(npz, "MAX_RATIO", 0)
        with pytest.raises(DataError, match=r"small\.npz: array .* takes more memory than the 100,000 bytes"):
            npz.read_npz(path)
        monkeypatch.setattr(npz, "MAX_RATIO", ratio)
        assert npz.read_npz(path).keys() == arrays.keys()
