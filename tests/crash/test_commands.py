"""Galleries, models, scores, clips, checkpoints and people, whatever kills a command or fills the disk."""

import json
import os
from unittest.mock import patch

import pytest
import yaml

from facerts.datasets.synthetic import write_synthetic_faces
from facerts.galleries import Gallery
from facerts.hub import catalog
from facerts.hub.catalog import in_catalog
from facerts.hub.installed import find_installed
from facerts.people import read_people
from tests.color_people import walk, write_clip
from tests.crash.harness import Scene, check, commands
from tests.foreign import write_embedder
from tests.hub.test_installed import described
from tests.people.photos import face, open_scorer, write_people, write_photo

pytestmark = pytest.mark.slow

MODEL = ("--model", "blocks.onnx", "--set", "threads=1")
BUILD = ("gallery", "build", "faces", "--out", "gallery.npz", *MODEL)
ADD = ("gallery", "add", "gallery.npz", "photos/p2_0.png", "--person", "Clara", *MODEL)
PULL = ("models", "pull", "theirs", "--from", "theirs.onnx")
SCORE = ("score", "photos", *MODEL, "--out", "rows.csv", "--save-crops", "crops", "--annotate", "drawn")
VIDEO = ("video", "clips", "--out", "tracks", "--annotate", "drawn")
TRAIN = ("train", "tiny.yaml", "--out", "run", "--resume")
CACHE = {"FACERTS_CACHE": "cache"}
FIND = ("people", "find", "photos", "--out", "people", "--model", "blocks.onnx", "--set", "threads=1")
OTHERS = (*FIND[:2], "others", *FIND[3:])


def decided(verb, *arguments):
    return ("people", verb, "people", *arguments)


MERGE = decided("merge", "3", "1", "2")
MOVE, NEW, NOBODY = (decided("move", "photos/p0_1.png", "--to", person) for person in ("2", "new", "nobody"))
NAME, NAMESAKE = decided("name", "1", "Anna"), decided("name", "2", "Anna")
UNDO = decided("undo")


def enrolled(folder):
    path = folder / "gallery.npz"
    return Gallery(path).read().entries if path.exists() else None


def installed(folder):
    """Whether the recognizer can be used."""
    with (
        patch.dict(os.environ, {"FACERTS_CACHE": str(folder / "cache")}),
        patch.object(catalog, "CATALOG", folder / "catalog.json"),
    ):
        return find_installed("theirs") is not None


def rows(folder):
    path = folder / "rows.csv"
    return path.read_text() if path.exists() else None


def tracks(folder):
    out = folder / "tracks"
    done = (out / "clips.csv").exists() and not (out / "unfinished").exists()
    return [(out / f"{name}.csv").read_text() for name in ("tracks", "clips")] if done else None


def step(folder):
    from facerts.training.checkpoint import FILE, load_checkpoint

    path = folder / "run" / FILE
    return load_checkpoint(path)[1]["step"] if path.exists() else None


def decided_people(folder):
    """Of each photo its person; None before a first run has ended."""
    people = folder / "people"
    if not (people / "groups.npz").exists():
        return None
    known = read_people(people)
    return known.decisions, sorted((face.path, face.person, face.name, face.status) for face in known.faces())


SCENES = {
    "gallery build": Scene(BUILD, enrolled),
    "gallery add": Scene(ADD, enrolled, [BUILD]),
    "gallery remove": Scene(("gallery", "remove", "gallery.npz", "p1"), enrolled, [BUILD]),
    "models pull": Scene(PULL, installed, setup="their_catalog", environment=CACHE),
    "models remove": Scene(
        ("models", "remove", "theirs"),
        installed,
        [PULL],
        setup="their_catalog",
        environment=CACHE,
    ),
    "score": Scene(SCORE, rows, again=(*SCORE, "--resume"), setup="small_blocks"),
    "video": Scene(VIDEO, tracks, again=(*VIDEO, "--resume"), setup="people_of_color"),
    "train": Scene(TRAIN, step, passes=[3, 6], most=8),
    "people find first": Scene(FIND, decided_people, settle=[FIND]),
    "people find again": Scene(OTHERS, decided_people, [FIND]),
    "people find more": Scene((*OTHERS, "--add"), decided_people, [FIND]),
    **{
        " after ".join(" ".join(["people", each[1], *each[3:]]) for each in (command, *before)): Scene(
            command,
            decided_people,
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
def run():
    with commands(
        "facerts.galleries", "tests.crash.setups", "facerts.training.loop", "facerts.report.people_page"
    ) as each:
        yield each


@pytest.mark.parametrize("scene", SCENES)
def test_a_failed_command_is_done_or_not_and_the_next_goes_on(run, tmp_path, scene):
    files = tmp_path / "files"
    write_people(files / "photos", range(3), range(2))
    open_scorer(files)
    for person in range(2):
        write_photo(files / "faces" / f"p{person}" / "0.png", face(person, 0))
    if scene.startswith("people"):
        write_people(files / "others", range(1, 4), range(2))
    if scene.startswith("models"):
        theirs = write_embedder(files / "theirs.onnx", size=16)
        yunet = in_catalog("yunet").model_dump(mode="json", by_alias=True)
        (files / "catalog.json").write_text(
            json.dumps({"schema": "facerts.catalog/1", "models": [described(theirs), yunet]})
        )
    if scene == "video":
        (files / "clips").mkdir()
        for name in "ab":
            write_clip(files / "clips" / f"{name}.mp4", walk(1))
    if scene == "train":
        write_synthetic_faces(files / "drawn", identities=8, images=8, seed=3)
        (files / "tiny.yaml").write_text(yaml.safe_dump(RECIPE))
    check(run, scene, SCENES[scene], files)


RECIPE = {
    "name": "tiny",
    "data": {"name": "drawn", "terms": "none", "train": "drawn", "workers": 1},
    "backbone": {"name": "mobilefacenet", "width": 0.125, "embedding_size": 16},
    "method": {"name": "rts"},
    "optim": {"epochs": 2, "batch_size": 16, "lr": 0.05, "milestones": [1]},
    "compute": {"device": "cpu", "precision": "fp32", "threads": 1},
    "logging": {"every_steps": 2, "checkpoint_steps": 3},
}
