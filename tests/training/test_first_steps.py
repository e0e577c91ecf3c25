"""What somebody sees who trains for the first time: sets that are not there, what runs, and what to do next."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from facerts.datasets import open_source, pairs_from_identities
from facerts.embedding.embed import embed_source
from facerts.errors import DataError
from facerts.evaluation.while_training import NetworkEmbedder
from facerts.training.checkpoint import load_network
from facerts.training.learner import Learner
from facerts.training.loop import train
from facerts.training.validation import Validator
from tests.command import run

SHORT = ("optim.epochs=0.5", "optim.milestones=[]")
TINY = (
    "backbone.name=mobilefacenet",
    "backbone.width=0.05",
    "backbone.embedding_size=16",
    "optim.batch_size=16",
    "data.workers=0",
    *SHORT,
)


@pytest.fixture
def records(drawn_faces, tmp_path, monkeypatch):
    """The drawn faces as a record set, by its name in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FACERTS_DATA", str(tmp_path / "nowhere"))
    assert run("data", "pack", drawn_faces, "--out", "faces_rec") == 0
    return "faces_rec"


def test_a_recipe_that_ships_trains_on_other_images_without_its_validation_sets(records, capsys, tmp_path):
    fields = (f"data.train={records}", "data.name=mine", "data.terms=none", *TINY)
    assert run("train", "ours/faces_small", *fields, "--out", "run") == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == "run/checkpoint.pt"
    warning = f"warning: validation.benchmarks: {tmp_path}/nowhere/lfw does not exist, so nothing is measured on it"
    assert warning in captured.err.splitlines()
    assert "  validation none" in captured.err.splitlines()
    assert f"warning: validation.heldout: {tmp_path}/nowhere/faces/val-000000.tar does" in captured.err


@pytest.mark.parametrize(
    "field",
    ["validation.benchmarks=gone.bin", "validation.heldout=gone.bin", "validation={heldout: gone.bin}"],
)
def test_a_set_that_was_asked_for_must_exist(records, capsys, field):
    fields = (f"data.train={records}", "data.name=mine", "data.terms=none", *TINY)
    assert run("train", "casia_rts", *fields, field, "--out", "run") == 2
    key = "validation.benchmarks" if "benchmarks" in field else "validation.heldout"
    assert f"error: {key}: gone.bin: no such file or folder" in capsys.readouterr().err
    assert not Path("run").exists()


def test_a_set_that_exists_and_is_broken_is_an_error(make_recipe, tmp_path):
    (tmp_path / "broken.bin").write_bytes(b"no")
    (tmp_path / "dangling.bin").symlink_to(tmp_path / "gone.bin")
    for name in ("broken.bin", "dangling.bin"):
        with pytest.raises(DataError, match=name):
            train(make_recipe(f"validation.benchmarks={tmp_path / name}"), tmp_path / "run")


def test_the_heldout_sets_that_exist_are_measured(make_recipe, drawn_faces, tmp_path, capsys):
    half = tmp_path / "half"
    for person in sorted(drawn_faces.iterdir())[:5]:
        shutil.copytree(person, half / person.name)
    sets = f"validation.heldout=[{half}, {tmp_path}/none-*.tar, {tmp_path}/hal*]"
    validator = Validator(make_recipe(sets, "validation.pairs=10"), None)
    assert validator.names == ["half"]
    assert capsys.readouterr().err.count("warning") == 1
    Validator(make_recipe(sets, "validation.pairs=10"), None, warns=False)
    assert not capsys.readouterr().err


def test_the_fnmr_is_measured_at_an_fmr(make_recipe, trained_run, drawn_faces):
    recipe = make_recipe(f"validation.heldout={drawn_faces}", "validation.pairs=20")
    embedder = NetworkEmbedder(load_network(trained_run).network)
    ((_, found),) = Validator(recipe, None).measure(embedder)
    benchmark = pairs_from_identities(open_source(drawn_faces), genuine=20, impostors=20, seed=recipe.seed)
    one, other = embed_source(embedder, benchmark.images, flip=False).embedding[benchmark.pairs.T]
    scores, same = (one * other).sum(axis=1), benchmark.same
    # Two of 20 impostor pairs may match.
    third = np.sort(scores[~same])[-3]
    assert found["fnmr_at_fmr_0.1"] == pytest.approx(np.mean(scores[same] <= third))


def test_a_collapsed_network_is_called_so(make_recipe, drawn_faces, capsys):
    recipe = make_recipe(f"validation.heldout={drawn_faces}", "validation.pairs=10")
    learner, validator = Learner(recipe, 4), Validator(recipe, None)
    list(validator.measure(learner.embedder()))
    assert "collapsed" not in capsys.readouterr().err
    learner.network.embedding[0].weight.data.zero_()
    list(validator.measure(learner.embedder()))
    error = " ".join(capsys.readouterr().err.split())
    assert f"{drawn_faces.name}: the network embeds all images alike" in error


def test_a_run_says_what_it_does_and_what_comes_next(make_recipe, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(make_recipe("data.holdout_identities=4", "validation.pairs=20"), "my run")
    text = capsys.readouterr().err
    lines = text.splitlines()
    start = lines.index("training tiny in my run")
    assert lines[start + 1].startswith("  images     32 of 4 identities (drawn)")
    assert lines[start + 4 : start + 8] == [
        "  device     cpu, 1 thread, fp32",
        "  length     2 epochs of 2 steps of 16 images: 4 steps",
        "  validation faces_heldout",
        "  margin     rises until step 2, and the loss with it",
    ]
    assert "resumed" not in text
    end = next(row for row, line in enumerate(lines) if line.startswith("trained 4 steps, 64 images in"))
    assert any(line.startswith("tiny epoch 2/2 loss ") for line in lines[start:end])
    assert lines[end + 2].startswith("  faces_heldout: accuracy ")
    assert lines[-2] == "  facerts export 'my run' --out tiny.onnx"
    kept = {"checkpoint.pt", "recipe.yaml", "log.jsonl", "tensorboard"}
    assert {path.name for path in Path("my run").iterdir()} == kept


@pytest.mark.parametrize("change", ["optim.margin_ramp=0", "method.margin=0", "method=supcon"])
def test_a_run_without_a_rising_margin_speaks_of_none(make_recipe, tmp_path, capsys, change):
    train(make_recipe(*SHORT, change), tmp_path / "run")
    assert "margin" not in capsys.readouterr().err


def test_a_finished_run_is_left_as_it_is(make_recipe, tiny_run, capsys):

    def files():
        return {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in tiny_run.rglob("*") if p.is_file()}

    before = files()
    assert train(make_recipe(), tiny_run, resume=True) == tiny_run / "checkpoint.pt"
    assert files() == before
    error = capsys.readouterr().err
    assert f"{tiny_run}: this run is finished, after all of its 8 steps; nothing was changed" in error
    assert f"facerts export {tiny_run} --out tiny.onnx --data PEOPLE/   # people to choose thresholds on" in error
    assert "training tiny" not in error
