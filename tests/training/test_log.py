from __future__ import annotations

from pathlib import Path

import pytest

from facerts.errors import WriteError
from facerts.training.run_summary import FILE, RunLog
from tests.command import no_larger_files
from tests.contents import files_in


@pytest.mark.parametrize("exists", [True, False])
def test_a_log_is_not_written_through_a_link(tmp_path: Path, exists: bool) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    run.mkdir()
    if exists:
        other.write_text('{"step": 1}\n')
    (run / FILE).symlink_to(other)
    with RunLog(run, 0) as log:
        log.write("train", 1)
    assert other.exists() == exists
    assert not exists or other.read_text() == '{"step": 1}\n'
    assert (run / FILE).read_text() == '{"kind": "train", "step": 1}\n'


def test_events_are_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "tensorboard").symlink_to("other")
    with pytest.raises(WriteError, match=r"tensorboard is a link, .*; remove the link"):
        RunLog(tmp_path, 0)
    assert files_in(tmp_path / "other") == []


def test_a_full_disk_ends_a_log_with_one_error(tmp_path: Path) -> None:
    full = pytest.raises(WriteError, match=r"log\.jsonl: cannot be written \(File too large\)")
    with no_larger_files(500), full, RunLog(tmp_path, 0) as log:
        log.write("train", 1, long=500 * "x")
