"""Comparisons and sweeps in one command, on synthetic faces: complete, interrupted, failing and changed."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("torch")

from facerts.datasets import open_source, pairs_from_identities
from facerts.datasets.pair_layouts import save_bin
from facerts.datasets.synthetic import write_non_faces, write_synthetic_faces
from facerts.evaluation.comparison import compare
from facerts.evaluation.result import Result
from facerts.evaluation.result_folder import load_result
from facerts.io.files import locked
from facerts.training.checkpoint import load_checkpoint, load_network
from tests.foreign import write_description, write_embedder
from tests.scripts import EVAL, load_script, run_script

SCRIPT = EVAL / "train_and_evaluate.py"
NAMES = ["arcface_seed1", "rts_seed1", "arcface_seed2", "rts_seed2"]


@pytest.fixture(scope="module")
def data(tmp_path_factory, drawn_faces) -> Path:
    """A recipe of a few steps, and a benchmark of synthetic people."""
    folder = tmp_path_factory.mktemp("runs")
    write_synthetic_faces(folder / "people", identities=20, images=4, seed=21)
    pairs = pairs_from_identities(open_source(folder / "people"), genuine=40, impostors=40, seed=2)
    save_bin(pairs, folder / "pairs.bin")
    fields = {
        "name": "tiny",
        "data": {"name": "drawn", "terms": "none", "train": str(drawn_faces), "workers": 0},
        "backbone": {"name": "mobilefacenet", "width": 0.125, "embedding_size": 16},
        "method": {"name": "rts"},
        # Enough steps for the running statistics of BatchNorm to be those of the network, which export looks at.
        "optim": {"epochs": 12, "batch_size": 16, "lr": 0.02},
        "compute": {"device": "cpu", "precision": "fp32", "threads": 1},
        "logging": {"every_steps": 1, "checkpoint_steps": 50},
    }
    (folder / "rts.yaml").write_text(yaml.safe_dump(fields))
    (folder / "arcface.yaml").write_text(yaml.safe_dump({**fields, "method": {"name": "arcface"}}))
    return folder


def start(out: Path, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments), "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )


def train_and_evaluate(out: Path, *arguments: object) -> tuple[int, str, str]:
    process = start(out, *arguments)
    output, errors = process.communicate(timeout=1500)
    return process.returncode, output, errors


def content(folder: Path) -> Result:
    return load_result(folder)[0]


def commands(folder: Path) -> list[str]:
    """Which commands a run has needed until now."""
    lines = (folder / "commands.log").read_text(encoding="utf-8").splitlines()
    found = [re.match(r"\$ facerts (?:evaluate )?(\w+)", line) for line in lines]
    return [match[1] for match in found if match]


@pytest.mark.slow
def test_an_interrupted_comparison_continues_to_a_result_for_each_run(data, tmp_path):
    # The second run is long enough to be caught in the middle.
    arguments = [data / "arcface.yaml", data / "rts.yaml", "--seeds", 1, 2, "--set-for", "rts", "optim.epochs=16"]
    arguments += ["--evaluate", f"verification --data {data}/pairs.bin --set threads=1"]
    arguments += ["--evaluate", f"reject --data {data}/pairs.bin --fmr 0.05 --set threads=1"]
    out = tmp_path / "out"
    process = start(out, *arguments)
    log = out / "rts_seed1" / "log.jsonl"
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and process.poll() is None and not (log.exists() and log.stat().st_size):
        time.sleep(0.02)
    # Not SIGINT, to which shells make what they start in the background deaf.
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "run the same command again" in errors
    assert "[2/4] rts_seed1: train" in errors
    step = load_checkpoint(out / "rts_seed1" / "checkpoint.pt")[1]["step"]
    assert 0 < step < 64
    assert not (out / "rts_seed1" / "result.json").exists()
    assert not (out / "arcface_seed2").exists()

    status, output, errors = train_and_evaluate(out, *arguments)
    assert status == 0, errors
    assert output.split() == [str(out / name) for name in NAMES]
    assert "[1/4] arcface_seed1: already done" in errors
    assert commands(out / "arcface_seed1") == ["train", "export", "verification", "reject"]
    assert commands(out / "rts_seed1") == ["train", "train", "export", "verification", "reject"]
    logged = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert logged == list(range(1, 65))
    for name in NAMES:
        trained = load_network(out / name)
        assert (trained.recipe.name, trained.recipe.seed) == (name, int(name[-1]))
        result = content(out / name)
        assert result.model.name == name
        assert result.model.method == name.partition("_")[0]
        assert {kind: list(names) for kind, names in result.sections.items()} == {
            "verification": ["pairs"],
            "reject": ["pairs"],
        }
        assert result.of_kind("reject")["pairs"].settings["fmr"] == 0.05
    # Two seeds are two networks.
    assert content(out / "rts_seed1").model.sha256 != content(out / "rts_seed2").model.sha256


@pytest.mark.slow
def test_a_sweep_continues_after_a_failure_and_repeats_only_changed_evaluations(data, non_faces, tmp_path):
    arguments = [f"tiny={data / 'rts.yaml'}", "--sweep", "optim.lr=1e30,0.02", "--set", "optim.margin_ramp=0"]
    out = tmp_path / "out"
    bad, good = out / "tiny_lr_1e30_seed1", out / "tiny_lr_0.02_seed1"
    status, output, errors = train_and_evaluate(out, *arguments)
    assert status == 1
    assert output.split() == [str(good)]
    assert "error: tiny_lr_1e30_seed1: train ended with status 3: error: the loss is" in errors
    assert commands(bad) == ["train"]
    assert commands(good) == ["train", "export"]
    arguments[2] = "optim.lr=0.02"
    ood = f"ood --in {data}/people --out-of {non_faces} --exclude-out-of '*[01].*'"
    corruptions = f"corruptions --data {data}/people --images 4"
    status, _, errors = train_and_evaluate(out, *arguments, "--evaluate", ood, "--evaluate", corruptions)
    assert status == 0, errors
    assert commands(good) == ["train", "export", "ood", "corruptions"]
    assert content(good).of_kind("ood")["non-faces"].excluded == {"non-faces": "*[01].*"}
    assert content(good).of_kind("corruptions")["people"].images == 4
    # Another recipe in the same folder is not taken for the one that was trained.
    status, _, errors = train_and_evaluate(out, *arguments, "--set", "optim.momentum=0.5")
    assert status == 1
    assert "optim.momentum changed" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rts.yaml", "--sweep", "method.kl_wait=1,2"], "rts has no setting 'kl_wait', did you mean 'kl_weight'"),
        (["rts.yaml", "--sweep", "method.kl_weight"], "must be KEY=VALUE,VALUE"),
        (["rts.yaml", "--sweep", "method.kl_weight=[1"], "not valid YAML"),
        (["rts.yaml", "--evaluate", "odd --in a"], "--evaluate odd --in a: must start with one of verification"),
        (["rts.yaml", "--evaluate", "reject --data a --far 1"], "--evaluate reject --data a --far 1: No such option"),
        (["rts.yaml", "rts.yaml"], "two recipes have the same label"),
        (["rts.yaml", "--seeds", "1", "1"], "2 runs would have the name rts_seed1"),
        (["rts.yaml", "--set-for", "arcface", "seed=2"], "with one of the labels rts"),
        (["rts.yaml", "--only", "rts", "dul"], "--only dul: must be one of the labels rts"),
    ],
)
def test_errors_are_found_before_anything_is_trained(data, tmp_path, arguments, message):
    paths = [data / text if text == "rts.yaml" else text for text in arguments]
    ran = run_script(SCRIPT, *paths, "--out", tmp_path / "out")
    assert ran.returncode == 2
    assert message in ran.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_quality_alone_is_judged_in_a_league(data, tmp_path):
    teacher = write_description(write_embedder(tmp_path / "teacher.onnx", size=16))
    write_non_faces(tmp_path / "things", images=12)
    recipe = yaml.safe_load((data / "rts.yaml").read_text())
    recipe["backbone"] = {"name": "patch8", "width": 0.25, "embedding_size": 16, "embedding": False}
    recipe["teacher"] = {"models": str(teacher), "cache": str(tmp_path / "teachers"), "method_embedding": "teachers"}
    recipe["teacher"] |= {"method": 1, "cosine": 0, "similarities": 0}
    recipe["data"]["augmentation"] = {"views": 2}
    (tmp_path / "alone.yaml").write_text(yaml.safe_dump(recipe))
    league = f"fiqa --quality quality={{model}} --model R={teacher} --data {data}/people --out-of {tmp_path}/things"
    league += " --degraded --set evaluate.cost=false --set output_cache={out}/cache --set threads=1"
    out = tmp_path / "out"
    arguments = "--seeds", 1, 2, "--evaluate", league
    status, _, errors = train_and_evaluate(out, tmp_path / "alone.yaml", *arguments)
    assert status == 0, errors
    for seed in (1, 2):
        assert commands(out / f"alone_seed{seed}") == ["train", "export", "fiqa"]
        sections = content(out / f"alone_seed{seed}").of_kind("fiqa")
        assert list(sections) == ["people", "people, half degraded"]
        assert sections["people"].find("AUROC, non-faces", quality="quality") is not None
    comparison, _ = compare([f"RTS={out / 'alone_seed1'}", f"RTS={out / 'alone_seed2'}"])
    assert comparison.sections[0].title == "Quality league: people"


@pytest.fixture
def plan(monkeypatch) -> Callable[..., Any]:
    """The script's module and the runs that it plans for the given arguments."""
    for name in ("FACERTS_DATA", "FACERTS_MODELS", "FACERTS_NON_FACES", "ALIGNED", "CLOSED_SET"):
        monkeypatch.setenv(name, f"/{name.lower()}")
    script = load_script("train_and_evaluate")

    def planned(*arguments: object) -> Any:
        monkeypatch.setattr(sys, "argv", [SCRIPT.name, *map(str, arguments)])
        options = script.read_options()
        return script, options, script.plan(options)

    return planned


def test_the_documented_comparisons_have_complete_recipes(plan):
    page = (SCRIPT.parents[1] / "docs" / "training.md").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = re.findall(r"^python eval/train_and_evaluate\.py (.*)$", page, re.MULTILINE)
    assert commands
    for command in commands:
        _, _, runs = plan(*shlex.split(command))
        assert len(runs) >= 3
        for run in runs:
            assert "base" not in yaml.safe_load(run.recipe.to_yaml())


def test_arguments_come_from_files(data, tmp_path, monkeypatch, plan):
    monkeypatch.setenv("RECIPES", str(data))
    (tmp_path / "more.args").write_text("--set-for b backbone.weights={out}/a_seed{seed}  # of this seed\n")
    (tmp_path / "some.args").write_text(
        f"# Two runs.\na=$RECIPES/arcface.yaml\n'b=$RECIPES/rts.yaml' \n\n@{tmp_path / 'more.args'}\n"
    )
    _, options, runs = plan(f"@{tmp_path / 'some.args'}", "--seeds", 3, "--out", "runs", "--budget", "3m")
    assert [run.folder.name for run in runs] == ["a_seed3", "b_seed3"]
    assert [run.recipe.backbone.weights for run in runs] == [None, "runs/a_seed3"]
    assert options.budget == "3m"
    _, _, runs = plan(f"@{tmp_path / 'some.args'}", "--only", "b", "--out", "runs")
    assert [run.folder.name for run in runs] == ["b_seed1"]


def test_a_run_of_another_process_is_left_to_it(data, tmp_path, capfd, plan):
    script, options, runs = plan(data / "rts.yaml", "--out", tmp_path)
    with locked(tmp_path / "rts_seed1"):
        assert script.execute_all(runs, options) == {}
    assert "[1/1] rts_seed1: left to another process" in capfd.readouterr().err
    assert not (tmp_path / "rts_seed1").exists()


def test_only_changed_steps_run_again(data, tmp_path, monkeypatch, plan):
    script, options, (run,) = plan(data / "rts.yaml", "--out", tmp_path, "--budget", "3m")
    assert run.steps(options)[0].command[-2:] == ["--budget", "3m"]
    started = []

    def start(step: Any, log: Path) -> None:
        started.append(step.name)
        step.writes.write_text("as if")

    monkeypatch.setattr(script, "_run_command", start)
    assert script.execute(run, options, "")
    assert not script.execute(run, options, "")
    assert started == ["train", "export"]
    _, _, (changed,) = plan(data / "rts.yaml", "--set", "method.kl_weight=3", "--out", tmp_path, "--budget", "3m")
    assert script.execute(changed, options, "")
    assert started == ["train", "export", "train"]


@pytest.mark.parametrize(
    ("folder", "evaluated"), [("papers", ["verification", "reject", "ood", "corruptions"]), ("quality_alone", ["fiqa"])]
)
def test_the_published_runs_have_complete_recipes_that_differ(plan, folder, evaluated):
    common = SCRIPT.parent / folder / "common.args"
    for path in sorted(set(common.parent.glob("*.args")) - {common}):
        _, options, runs = plan(f"@{common}", f"@{path}", "--seeds", 1, 2, "--out", "o")
        assert [step.name for step in runs[0].steps(options)][2:] == evaluated
        recipes = [run.recipe.model_dump(exclude={"name"}) for run in runs]
        assert all(recipes.count(recipe) == 1 for recipe in recipes), path
        assert {recipe["seed"] for recipe in recipes} == {1, 2}
        assert folder != "papers" or len({recipe["optim"]["batch_size"] for recipe in recipes}) == 1


def test_the_papers_settings_change_all_runs(plan):
    papers = SCRIPT.parent / "papers"
    settings = list((papers / "settings").glob("*.args"))
    assert settings
    for path in settings:
        of = "closed_set" if path.name.startswith("closed_set") else "randomness"
        _, _, runs = plan(f"@{papers / of}.args", "--out", "o")
        _, _, changed = plan(f"@{papers / of}.args", f"@{path}", "--out", "o")
        assert len(runs) == len(changed) >= 5
        assert all(run.recipe != other.recipe for run, other in zip(runs, changed, strict=True))
