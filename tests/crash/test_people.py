"""What people decided, and the groups of photos, whatever kills a command or fills the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from facerts.people import read_people
from tests.crash.harness import Commands, Scene, check, commands
from tests.people.photos import open_scorer, write_people

pytestmark = pytest.mark.slow

FIND = ("people", "find", "photos", "--out", "people", "--model", "blocks.onnx", "--set", "threads=1")
OTHERS = (*FIND[:2], "others", *FIND[3:])


def decided(verb: str, *arguments: str) -> tuple[str, ...]:
    return ("people", verb, "people", *arguments)


MERGE = decided("merge", "3", "1", "2")
MOVE, NEW, NOBODY = (decided("move", "photos/p0_1.png", "--to", person) for person in ("2", "new", "nobody"))
NAME, NAMESAKE = decided("name", "1", "Anna"), decided("name", "2", "Anna")
UNDO = decided("undo")


def state(folder: Path) -> Any:
    """Of each photo its person; None before a first run has ended."""
    people = folder / "people"
    if not (people / "groups.npz").exists():
        return None
    known = read_people(people)
    return known.decisions, sorted((face.path, face.person, face.name, face.status) for face in known.faces())


SCENES = {
    "find first": Scene(FIND, state, settle=[FIND]),
    "find again": Scene(OTHERS, state, [FIND]),
    "find more": Scene((*OTHERS, "--add"), state, [FIND]),
    **{
        " after ".join(" ".join([each[1], *each[3:]]) for each in (command, *before)): Scene(
            command,
            state,
            [FIND, *before],
            settle=[FIND],
            says="recorded",
            repeats=False,
            most=1000 if command in (MERGE, UNDO) and before in ([], [MOVE]) else 20,
        )
        for before, command in [
            *(([], each) for each in (MERGE, MOVE, NEW, NOBODY, NAME)),
            ([NAME], NAMESAKE),
            ([NOBODY], MOVE),
            *(([each], UNDO) for each in (MERGE, MOVE, NEW, NOBODY, NAME)),
        ]
    },
}


@pytest.fixture(scope="module")
def run() -> Iterator[Commands]:
    with commands("facerts.people", "facerts.report.people_page") as each:
        yield each


@pytest.mark.parametrize("scene", SCENES)
def test_a_failed_command_is_done_or_not_and_the_next_goes_on(
    run: Commands, tmp_path: Path, scene: str
) -> None:
    files = tmp_path / "files"
    write_people(files / "photos", range(3), range(2))
    write_people(files / "others", range(1, 4), range(2))
    open_scorer(files)
    check(run, scene, SCENES[scene], files)
