"""New files appear whole or not at all, and never in the place of others."""

import subprocess
import sys

import pytest

from facerts.curation.output_spec import RECORD_FILES, OutputSpec
from facerts.curation.rearrange import split
from facerts.datasets import open_source
from facerts.errors import Error
from facerts.io.job import staged
from tests.contents import content, files_in


def test_places_appear_together_at_the_end(tmp_path):
    file, folder, nothing = (tmp_path / name for name in ("deep/file", "folder", "nothing"))
    with staged([file, folder, nothing]) as temporary:
        temporary[file].write_text("1")
        temporary[folder].mkdir()
        (temporary[file].parent / "waste").write_text("2")
        assert not file.exists()
        assert not folder.exists()
    assert file.read_text() == "1"
    assert files_in(tmp_path) == ["deep", "deep/file", "folder"]


def test_an_error_leaves_nothing(tmp_path):
    def fail():
        with staged([tmp_path / "a"]) as temporary:
            temporary[tmp_path / "a"].write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "folder", "broken link"])
def test_what_is_there_stays(tmp_path, kind):
    place = tmp_path / "a"
    if kind == "file":
        place.write_text("old")
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to(tmp_path / "gone")
    before = files_in(tmp_path)
    with pytest.raises(Error, match="is there already"), staged([tmp_path / "b", place]):
        pass
    assert files_in(tmp_path) == before


def test_two_processes_do_not_make_one_thing(tmp_path):
    with staged([tmp_path / "a"]) as first:
        with pytest.raises(Error, match="is writing it"), staged([tmp_path / "a"]):
            pass
        first[tmp_path / "a"].write_text("whole")
    assert (tmp_path / "a").read_text() == "whole"


def test_a_link_in_the_place_of_the_hidden_folder_is_refused(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").write_text("old")
    (tmp_path / ".a.part").symlink_to(tmp_path / "other")
    with pytest.raises(Error, match=r"\.a\.part is a link, .*; remove the link"), staged([tmp_path / "a"]):
        pass
    assert files_in(tmp_path / "other") == ["precious"]


KILLED = """
import os, signal, sys
from facerts.datasets.folder import Files
from facerts.cli import main

read, left = Files.read, [40]

def read_or_die(self, index):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return read(self, index)

Files.read = read_or_die
sys.argv = ["facerts", "data", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("form", ["out", "out.tar"])
def test_a_killed_command_leaves_nothing_and_does_not_stand_in_the_way(drawn_faces, tmp_path, form):
    out, held_out = tmp_path / form, tmp_path / "held"
    arguments = ["split", drawn_faces, "--out", out, "--held-out", held_out, "--identities", "2"]
    ran = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, check=False)
    assert ran.returncode == -9
    visible = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert visible == []
    assert any(tmp_path.iterdir())  # it had begun
    split(open_source(drawn_faces), OutputSpec(out), OutputSpec(held_out), identities=2)
    assert content(out) + content(held_out) == content(drawn_faces)
    assert {path.name for path in tmp_path.iterdir()} == {form, "held", "out.report.json"}
    assert {path.name for path in held_out.iterdir()} == set(RECORD_FILES)
    if out.is_dir():
        assert {path.name for path in out.iterdir()} == set(RECORD_FILES)
