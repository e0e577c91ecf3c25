"""The published league's script, on drawn faces in the layout of the real ones."""

import shutil
import tarfile
from pathlib import Path

import pytest

from facerts.datasets import open_source
from facerts.datasets.synthetic import write_non_faces, write_synthetic_faces
from facerts.evaluation.result_folder import load_result
from tests.scripts import EVAL, run_script

SCRIPT = EVAL / "fiqa_league.py"
PEOPLE, IMAGES = 12, 4


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Twelve people as held-out faces, as LFW and as CFP, six flat faces with ages, six without, and nine non-faces."""
    home = tmp_path_factory.mktemp("league")
    write_synthetic_faces(home / "people", identities=PEOPLE, images=IMAGES, seed=5)
    source = open_source(home / "people")
    (home / "faces").mkdir()
    with tarfile.open(home / "faces" / "val-000000.tar", "w") as tar:
        for index in range(len(source)):
            tar.add(home / "people" / source.key(index), source.key(index))
            person, number = f"P{index // IMAGES}", index % IMAGES + 1
            copy = home / "lfw" / person / f"{person}_{number:04}.jpg"
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(home / "people" / source.key(index), copy)
    lines = ["10\t2"]
    for fold in range(10):
        lines += [f"P{fold}\t1\t2", f"P{fold}\t3\t4"]
        lines += [f"P{fold}\t{number}\tP{fold + 2}\t{number}" for number in (1, 2)]
    (home / "lfw" / "pairs.txt").write_text("\n".join(lines))
    write_cfp(home / "people", home / "cfp")
    for name in ("aaf", "rafdb"):
        (home / name).mkdir()
        for number in range(6):
            image = home / "lfw" / f"P{number}" / f"P{number}_0001.jpg"
            shutil.copy(image, home / name / f"{number:05}a{10 * number + 2:02}.jpg")
    write_non_faces(home / "pets", images=9)
    return home


def write_cfp(people: Path, root: Path) -> None:
    """The people's first two images as frontal ones, the others as profiles; CFP-FP lists one pair of each kind."""
    listed: dict[str, list[str]] = {"frontal": [], "profile": []}
    for who, person in enumerate(sorted(people.iterdir()), 1):
        for index, image in enumerate(sorted(person.iterdir())):
            view = "frontal" if index < IMAGES // 2 else "profile"
            key = f"Data/Images/{who:03}/{view}/{index % 2 + 1:02}.jpg"
            (root / key).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(image, root / key)
            listed[view].append(key)
    (root / "Protocol").mkdir()
    for letter, view in (("F", "frontal"), ("P", "profile")):
        lines = [f"{number} ../{key}" for number, key in enumerate(listed[view], 1)]
        (root / f"Protocol/Pair_list_{letter}.txt").write_text("\n".join(lines))
    # Every image is in a pair of the protocol, as in CFP itself.
    images = range(1, PEOPLE * IMAGES // 2 + 1)
    for fold in range(10):
        own = [number for number in images if number % 10 == fold]
        for part, step in (("FF", 1), ("FP", 0)):
            folder = root / f"Protocol/Split/{part}/{fold + 1:02}"
            folder.mkdir(parents=True)
            partner = {n: n + step if n % 2 else n - step for n in own}
            (folder / "same.txt").write_text("\n".join(f"{n},{partner[n]}" for n in own))
            (folder / "diff.txt").write_text("\n".join(f"{n},{(n + 3) % len(images) + 1}" for n in own))


@pytest.mark.slow
def test_every_set_is_judged_on_every_recognizer(data, reference_models, tmp_path):
    arguments = ["--data", data, "--models", reference_models, "--out", tmp_path, "--replicates", 5]
    sets = ["--sets", "heldout", "lfw", "cfp", "aaf", "rafdb", "misaligned"]
    done = run_script(SCRIPT, *arguments, *sets, "--recognizers", "mobilefacenet", "facerts-small")
    assert done.returncode == 0, done.stderr
    content = load_result(tmp_path)[0]
    sections = content.of_kind("fiqa")
    assert list(sections) == [
        *("val-000000", "val-000000, half degraded", "lfw", "lfw, half degraded"),
        *("CFP-FP", "CFP-FP, half degraded", "rafdb"),
        *("rafdb, aligned again", "val-000000, misaligned", "aaf"),
    ]
    for name in ("val-000000", "lfw", "val-000000, misaligned"):
        section = sections[name]
        assert {one.of["recognizer"] for one in section.measures if "recognizer" in one.of} == {
            "mobilefacenet",
            "facerts-small",
        }
        judged = {one.of["quality"] for one in section.measures if one.name == "mean area"}
        assert {"facerts-small", "LightQNet", "sharpness", "det_score", "norm (its own)"} <= judged
        genuine = (PEOPLE if name != "lfw" else 10) * 6 + (name == "lfw") * 2
        assert f" {genuine} genuine and " in section.text
    impostors = PEOPLE * (PEOPLE - 1) * (IMAGES // 2) ** 2
    pairs = f" {PEOPLE * (IMAGES // 2) ** 2} genuine and {impostors:,} impostor pairs"
    assert pairs in sections["CFP-FP"].text
    assert "on the impostor pairs of val-000000." in sections["val-000000, misaligned"].text
    accepted = content.of_kind("groups")["aaf, age"]
    groups = [one.of["age"] for one in accepted.measures if one.name == "accepted by LightQNet"]
    assert groups == ["below 13", "20 to 39", "40 to 59", "all"]
    assert sections["rafdb"].find("AUROC, non-faces") is not None
    assert "## lfw, half degraded" in done.stdout
