from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from facerts.errors import DataError
from facerts.io import npz


def test_a_small_file_cannot_expand_to_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "bomb.npz", zeros=np.zeros(100_000))
    assert npz.read_npz(tmp_path / "bomb.npz")["zeros"].shape == (100_000,)
    monkeypatch.setattr(npz, "MAX_BYTES", 1000)
    with pytest.raises(DataError, match=r"bomb\.npz: .*it claims 800,128 bytes, but .* at most"):
        npz.read_npz(tmp_path / "bomb.npz")
