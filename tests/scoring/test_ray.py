"""Runs on Ray: two workers on this machine, where most tests share what was started once."""

from __future__ import annotations

import csv
import json
import logging
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from facerts.datasets import open_images
from facerts.datasets.folder import Files, open_tree
from facerts.datasets.synthetic import draw_face
from facerts.errors import Error, MissingExtraError
from facerts.images import encode_jpeg
from facerts.integrations.ray import OBJECT_STORE_BYTES, BlockScorer, Workers, import_ray, run_job_on_ray
from facerts.scoring import Copies, Job, Scorer, Task, load, run_job
from facerts.version import __version__
from tests.command import run
from tests.foreign import write_description, write_embedder

BLOCK = 40
NO_RAY = "Ray is not installed: pip install 'facerts[ray]'"
# `ps` and processes that are killed.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")


@pytest.fixture(scope="module")
def ray_here() -> Iterator[Any]:
    """Ray on this machine, with two cores."""
    pytest.importorskip("ray", reason=NO_RAY)
    ray = import_ray(Workers())
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    # Workers cannot import a file of tests; what they need of this one is sent to them.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some hundred pictures, one of which is broken."""
    root = tmp_path_factory.mktemp("pictures")
    for number in range(6 * BLOCK + 7):
        (root / f"{number:03d}.jpg").write_bytes(encode_jpeg(draw_face(number, 0)))
    (root / "100.jpg").write_bytes(b"\xff\xd8 cut")
    return root


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_embedder(tmp_path_factory.mktemp("model") / "m.onnx")
    write_description(path)
    return path


@pytest.fixture(scope="module")
def expected(folder: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the engine of one process writes."""
    job = new_job(folder, model, tmp_path_factory.mktemp("local") / "rows.csv")
    run_job(scorer_of(model), open_images(folder), job, Task())
    return finished(job)


class Slow(Files):
    """Pictures that take a while, so that something can happen meanwhile."""

    def read(self, index: int) -> bytes:
        time.sleep(0.01)
        return super().read(index)


def open_slowly(folder: Path) -> Slow:
    source = open_tree(folder)
    return Slow(source.name, folder, [source.key(index) for index in range(len(source))], None)


def scorer_of(model: Path) -> Scorer:
    return load(model, threads=1, batch_size=16)


def new_job(folder: Path, model: Path, out: Path) -> Job:
    job = Job(out, open_images(folder), {**scorer_of(model).settings(), **Task().settings()}, BLOCK)
    job.begin(resume=True)
    return job


def finished(job: Job) -> bytes:
    list(job.finish())
    return job.out.read_bytes()


def scoring_processes() -> set[int]:
    """Those that score for this process: below one of its own there may be others of a test beside it."""
    listed = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    parents, names = {}, {}
    for line in listed.stdout.splitlines():
        pid, parent, name = line.split(None, 2)
        parents[int(pid)], names[int(pid)] = int(parent), name
    mine = {pid for pid, parent in parents.items() if parents.get(parent) == os.getpid()}
    return {pid for pid in mine if "BlockScorer" in names[pid]}


def test_workers_that_are_killed_lose_nothing(
    ray_here: Any,
    folder: Path,
    model: Path,
    tmp_path: Path,
    expected: bytes,
    capfd: pytest.CaptureFixture[str],
) -> None:
    job = new_job(folder, model, tmp_path / "rows.csv")
    killed: set[int] = set()
    later: set[int] = set()
    seen = []

    def advance(pictures: int) -> None:
        seen.append(pictures)
        if not killed:
            killed.update(scoring_processes())
            assert job.missing()
            for process in killed:
                os.kill(process, signal.SIGKILL)
        later.update(scoring_processes())

    run_job_on_ray(
        partial(scorer_of, model), partial(open_slowly, folder), job, Task(), Workers(number=2), advance
    )
    assert killed
    assert later - killed
    assert sorted(seen) == [7] + [BLOCK] * 6
    assert finished(job) == expected
    # Ray's account of the dead is not among the results.
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("first", ["ray", "local"])
def test_what_one_engine_began_the_other_finishes(
    ray_here: Any, folder: Path, model: Path, tmp_path: Path, expected: bytes, first: str
) -> None:
    job = new_job(folder, model, tmp_path / "rows.csv")

    def stop(pictures: int) -> None:
        if job.finished():
            raise KeyboardInterrupt

    def on_ray(advance: Any = None) -> None:
        run_job_on_ray(partial(scorer_of, model), partial(open_images, folder), job, Task(), advance=advance)

    def here(advance: Any = None) -> None:
        run_job(scorer_of(model), open_images(folder), job, Task(), advance)

    begin, go_on = (on_ray, here) if first == "ray" else (here, on_ray)
    with pytest.raises(KeyboardInterrupt):
        begin(stop)
    assert job.finished()
    assert job.missing()
    job.close()
    again = new_job(folder, model, tmp_path / "rows.csv")
    go_on()
    assert finished(again) == expected


def test_an_error_in_a_worker_ends_the_run_with_its_sentence(
    ray_here: Any, folder: Path, model: Path, tmp_path: Path
) -> None:
    job = new_job(folder, model, tmp_path / "rows.csv")
    with pytest.raises(Error, match=r"gone\.onnx: no such model file \(in a worker on "):
        run_job_on_ray(partial(scorer_of, tmp_path / "gone.onnx"), partial(open_images, folder), job, Task())
    assert len(job.missing()) == len(job)


def test_a_worker_that_cannot_be_started_is_explained(
    ray_here: Any, folder: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = new_job(folder, model, tmp_path / "rows.csv")
    # As on a machine without facerts: what is sent is of a package that cannot be imported there.
    here = types.ModuleType("only_here")
    here.open_images = type("open_images", (Slow,), {"__module__": "only_here"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "only_here", here)
    with pytest.raises(Error, match=r"cannot be started .*only_here.*every machine needs the same facerts"):
        run_job_on_ray(partial(scorer_of, model), partial(here.open_images, folder), job, Task())


def test_a_worker_that_finds_something_else_scores_nothing(folder: Path, model: Path, tmp_path: Path) -> None:
    job = new_job(folder, model, tmp_path / "rows.csv")
    told = {**job.told, "facerts": __version__}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "000.jpg").write_bytes((folder / "000.jpg").read_bytes())
    order = {"block": 0, "start": 0, "stop": 1}

    def answer(pictures: Path = folder, work: str = os.getcwd(), **changed: Any) -> str:
        worker = BlockScorer(
            partial(scorer_of, model), partial(open_images, pictures), Task(), 1, work, {**told, **changed}
        )
        return str(worker(order)["error"])

    assert answer() == ""
    assert "another pictures, pictures_sha256 here" in answer(tmp_path / "other")
    assert "another model_sha256 here" in answer(model_sha256="0")
    assert "another facerts here" in answer(facerts="0")
    assert "gone: not a folder here" in answer(work=str(tmp_path / "gone"))


def test_a_worker_for_which_there_is_no_room_is_not_waited_for(
    ray_here: Any, folder: Path, model: Path, tmp_path: Path
) -> None:
    job = new_job(folder, model, tmp_path / "rows.csv")
    opened = partial(scorer_of, model), partial(open_images, folder)
    with pytest.raises(Error, match="Ray has 2 cores and 0 GPUs, and a worker needs 3 and 0"):
        run_job_on_ray(*opened, job, Task(), Workers(threads=3))
    with pytest.raises(Error, match="Ray has 2 cores and 0 GPUs, and a worker needs 1 and 1"):
        run_job_on_ray(*opened, job, Task(), Workers(gpus=1))


# The command, in blocks of this size, which may hang when it has kept one.
COMMAND = f"""
import sys, time
import facerts.scoring.job as job
put = job.Job.put
def put_and_tell(self, number, block):
    put(self, number, block)
    print(number, file=sys.__stdout__, flush=True)
    time.sleep(60)
if sys.argv[1] == "hang":
    job.Job.put = put_and_tell
job.BLOCK = {BLOCK}
del sys.argv[1]
from facerts.cli import main
main()
"""


def test_the_command_writes_the_same_on_both_engines(
    folder: Path, model: Path, tmp_path: Path, expected: bytes
) -> None:
    pytest.importorskip("ray", reason=NO_RAY)
    rows = csv.DictReader(expected.decode().splitlines())
    limit = statistics.median(float(row["quality"]) for row in rows if row["quality"])
    written = {}
    for engine in ("local", "ray"):
        place = tmp_path / engine
        options = ["--min-quality", str(limit), "--copy-rejected", str(place / "rejected"), "--json"]
        ran = subprocess.run(
            [
                *[sys.executable, "-c", COMMAND, "run", "score", folder.name, "--model", str(model)],
                *["--out", str(place / "rows.csv"), "--engine", engine, *options],
            ],
            cwd=folder.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 1, ran.stderr  # a picture is broken
        assert json.loads(ran.stdout)["failed"] == 1
        written[engine] = {path.relative_to(place): path.read_bytes() for path in place.rglob("*.*")}
    assert len(written["local"]) == 1 + 3 * BLOCK + 3
    assert written["ray"] == written["local"]


def test_a_run_whose_command_was_killed_goes_on_without_ray(
    ray_here: Any, folder: Path, model: Path, tmp_path: Path, expected: bytes
) -> None:
    out = tmp_path / "rows.csv"
    command = ["score", str(folder), "--model", str(model), "--batch-size", "16", "--out", str(out)]
    cluster = ["--ray-address", ray_here.get_runtime_context().gcs_address]
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, "hang", *command, "--engine", "ray", *cluster],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        process.kill()
        assert first.strip().isdigit(), process.stderr.read()
    assert not out.exists()
    job = new_job(folder, model, out)
    assert len(job.finished()) == 1
    run_job(scorer_of(model), open_images(folder), job, Task())
    assert finished(job) == expected


@pytest.mark.parametrize(
    ("environment", "options", "sentence"),
    [
        ({"RAY_TMPDIR": "too-deep"}, [], r"Ray cannot start here \(.*107 bytes.*RAY_TMPDIR"),
        ({}, ["--ray-address", "nowhere:port:0"], r"no Ray cluster at nowhere:port:0 \("),
    ],
)
def test_where_ray_cannot_start_the_command_says_so(
    folder: Path,
    model: Path,
    tmp_path: Path,
    environment: dict[str, str],
    options: list[str],
    sentence: str,
) -> None:
    pytest.importorskip("ray", reason=NO_RAY)
    deep = tmp_path.joinpath(*["a_folder_of_a_long_name"] * 5)
    deep.mkdir(parents=True)
    ran = subprocess.run(
        [
            *[sys.executable, "-m", "facerts", "score", str(folder), "--model", str(model)],
            *["--out", str(tmp_path / "rows.csv"), "--engine", "ray", *options],
        ],
        env={**os.environ, **{name: str(deep) for name in environment}},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert re.search(sentence, ran.stderr), ran.stderr
    assert ran.stdout == ""


def test_without_ray_the_extra_is_named_and_nothing_begun(
    folder: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'facerts\[ray\]'"):
        import_ray(Workers())
    arguments = ["score", folder, "--model", model, "--out", tmp_path / "rows.csv", "--engine", "ray"]
    assert run(*arguments) == 2
    assert not list(tmp_path.iterdir())


def test_options_of_ray_need_ray(folder: Path, tmp_path: Path) -> None:
    assert run("score", folder, "--out", tmp_path / "rows.csv", "--ray-workers", "2") == 2
    assert not list(tmp_path.iterdir())


def test_a_job_without_missing_blocks_starts_nothing(
    folder: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray.data", None)
    job = new_job(folder, model, tmp_path / "rows.csv")
    run_job(scorer_of(model), open_images(folder), job, Task(copies=Copies()))
    run_job_on_ray(partial(scorer_of, model), partial(open_images, folder), job, Task())
