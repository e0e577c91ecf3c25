"""Scoring runs on Ray, with two workers on this machine; most tests share one instance of Ray."""

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
from functools import partial

import pytest

from facerts.datasets import open_images
from facerts.datasets.folder import Files, open_tree
from facerts.datasets.synthetic import draw_face
from facerts.errors import Error, MissingExtraError
from facerts.images import encode_jpeg
from facerts.integrations.ray import OBJECT_STORE_BYTES, BlockScorer, Workers, import_ray, run_job_on_ray
from facerts.scoring import Copies, ScoreJob, Task, load, run_job
from facerts.version import __version__
from tests.command import run

BLOCK_SIZE = 40
NO_RAY = "Ray is not installed: pip install '.[ray]'"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")


@pytest.fixture(scope="module")
def ray_here():
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
    # Workers cannot import test files, so this module is pickled by value.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A few hundred images, one of them broken."""
    root = tmp_path_factory.mktemp("images")
    for number in range(6 * BLOCK_SIZE + 7):
        (root / f"{number:03d}.jpg").write_bytes(encode_jpeg(draw_face(number, 0)))
    (root / "100.jpg").write_bytes(b"\xff\xd8 cut")
    return root


@pytest.fixture(scope="module")
def expected(folder, model, tmp_path_factory):
    """The result of the local engine."""
    job = new_job(folder, model, tmp_path_factory.mktemp("local") / "rows.csv")
    run_job(scorer_of(model), open_images(folder), job, Task())
    return finished(job)


class SlowFiles(Files):
    """Images that take a while to read, so that a test can interfere."""

    def read(self, index):
        time.sleep(0.01)
        return super().read(index)


def open_slow(folder):
    source = open_tree(folder)
    return SlowFiles(source.name, folder, [source.key(index) for index in range(len(source))], None)


def scorer_of(model):
    return load(model, threads=1, batch_size=16)


def new_job(folder, model, out):
    job = ScoreJob(out, open_images(folder), {**scorer_of(model).settings(), **Task().settings()}, BLOCK_SIZE)
    job.begin(resume=True)
    return job


def finished(job):
    list(job.finish())
    return job.out.read_bytes()


def scoring_processes():
    """The workers of this process; a test that runs at the same time may have its own."""
    listed = subprocess.check_output(["ps", "-e", "-o", "pid=,ppid=,args="], text=True)
    rows = [line.split(None, 2) for line in listed.splitlines()]
    parents = {int(pid): int(parent) for pid, parent, _ in rows}
    scoring = {int(pid) for pid, _, name in rows if "BlockScorer" in name}
    return {pid for pid in scoring if parents.get(parents[pid]) == os.getpid()}


@pytest.mark.slow
def test_killed_workers_lose_nothing(ray_here, folder, model, tmp_path, expected, capfd):
    job = new_job(folder, model, tmp_path / "rows.csv")
    killed = set()
    later = set()
    advances = []

    def advance(images):
        advances.append(images)
        if not killed:
            killed.update(scoring_processes())
            assert job.missing()
            for process in killed:
                os.kill(process, signal.SIGKILL)
        later.update(scoring_processes())

    opened = partial(scorer_of, model), partial(open_slow, folder)
    run_job_on_ray(*opened, job, Task(), Workers(count=2), advance)
    assert killed
    assert later - killed
    assert sorted(advances) == [7] + [BLOCK_SIZE] * 6
    assert finished(job) == expected
    # Ray's messages about dead workers are not mixed with the results.
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_a_run_begun_here_is_finished_on_ray(ray_here, folder, model, tmp_path, expected):
    job = new_job(folder, model, tmp_path / "rows.csv")

    def stop(images):
        if job.finished():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(scorer_of(model), open_images(folder), job, Task(), stop)
    assert job.finished()
    assert job.missing()
    job.close()
    again = new_job(folder, model, tmp_path / "rows.csv")
    run_job_on_ray(partial(scorer_of, model), partial(open_images, folder), again, Task())
    assert finished(again) == expected


@pytest.mark.slow
def test_errors_of_workers_end_the_run_with_their_message(ray_here, folder, model, tmp_path, monkeypatch):
    job = new_job(folder, model, tmp_path / "rows.csv")
    here, opened = partial(scorer_of, model), partial(open_images, folder)
    # As on a machine without facerts: the arguments refer to a package that cannot be imported there.
    module = types.ModuleType("only_here")
    module.open_images = type("open_images", (SlowFiles,), {"__module__": "only_here"})
    monkeypatch.setitem(sys.modules, "only_here", module)
    unstarted = "cannot be started .*only_here.*every machine needs the same version of facerts"
    no_room = "Ray has 2 cores and 0 GPUs, and each worker needs"
    for scorer, source, workers, message in (
        (
            partial(scorer_of, tmp_path / "gone.onnx"),
            opened,
            None,
            r"gone\.onnx: no such model file \(in a worker on ",
        ),
        (here, partial(module.open_images, folder), None, unstarted),
        (here, opened, Workers(threads=3), f"{no_room} 3 and 0"),
        (here, opened, Workers(gpus=1), f"{no_room} 1 and 1"),
    ):
        with pytest.raises(Error, match=message):
            run_job_on_ray(scorer, source, job, Task(), workers)
    assert len(job.missing()) == len(job)


def test_a_worker_with_other_files_or_versions_scores_nothing(folder, model, tmp_path):
    job = new_job(folder, model, tmp_path / "rows.csv")
    expected = {**job.settings, "facerts": __version__}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "000.jpg").write_bytes((folder / "000.jpg").read_bytes())
    span = {"block": 0, "start": 0, "stop": 1}

    def error(images=folder, working_folder=".", **changed):
        opened = partial(scorer_of, model), partial(open_images, images)
        worker = BlockScorer(*opened, Task(), 1, working_folder, {**expected, **changed})
        return str(worker(span)["error"])

    assert error() == ""
    assert "images, images_sha256 on this machine differ" in error(tmp_path / "other")
    assert "models on this machine differ" in error(models="0")
    assert "facerts on this machine differ" in error(facerts="0")
    assert "gone: not a folder on this machine" in error(working_folder=str(tmp_path / "gone"))


# The command with small blocks.
COMMAND = f"""
import facerts.scoring.score_job as job
job.BLOCK_SIZE = {BLOCK_SIZE}
from facerts.cli import main
main()
"""


@pytest.mark.slow
def test_the_command_writes_the_same_files_on_both_engines(folder, model, tmp_path, expected):
    pytest.importorskip("ray", reason=NO_RAY)
    rows = csv.DictReader(expected.decode().splitlines())
    threshold = statistics.median(float(row["quality"]) for row in rows if row["quality"])
    written = {}
    for engine in ("local", "ray"):
        folder_of_engine = tmp_path / engine
        command = [sys.executable, "-c", COMMAND, "score", folder.name, "--model", str(model)]
        options = ["--out", str(folder_of_engine / "rows.csv"), "--engine", engine, "--json"]
        copies = ["--min-quality", str(threshold), "--copy-rejected", str(folder_of_engine / "rejected")]
        ran = subprocess.run(
            [*command, *options, *copies], cwd=folder.parent, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 1, ran.stderr  # one image is broken
        assert json.loads(ran.stdout)["failed"] == 1
        written[engine] = {
            path.relative_to(folder_of_engine): path.read_bytes() for path in folder_of_engine.rglob("*.*")
        }
    assert len(written["local"]) == 1 + 3 * BLOCK_SIZE + 3
    assert written["ray"] == written["local"]


@pytest.mark.slow
def test_the_command_explains_why_ray_cannot_start(folder, model, tmp_path):
    pytest.importorskip("ray", reason=NO_RAY)
    deep = tmp_path.joinpath(*["a_folder_of_a_long_name"] * 5)
    deep.mkdir(parents=True)
    command = [sys.executable, "-m", "facerts", "score", str(folder)]
    command += ["--model", str(model), "--engine", "ray"]
    for variables, options, message in (
        ({"RAY_TMPDIR": str(deep)}, [], r"Ray cannot start on this machine \(.*107 bytes.*RAY_TMPDIR"),
        ({}, ["--set", "ray.address=nowhere:port:0"], r"no Ray cluster at nowhere:port:0 \("),
    ):
        arguments = [*command, "--out", str(tmp_path / "rows.csv"), *options]
        environment = {**os.environ, **variables}
        ran = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert re.search(message, ran.stderr), ran.stderr


def test_what_needs_no_ray(folder, model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[ray\]'"):
        import_ray(Workers())
    out = ("--model", model, "--out", tmp_path / "rows.csv")
    assert run("score", folder, *out, "--engine", "ray") == 2
    assert not list(tmp_path.iterdir())
    # A finished job does not start it.
    job = new_job(folder, model, tmp_path / "rows.csv")
    run_job(scorer_of(model), open_images(folder), job, Task(copies=Copies()))
    run_job_on_ray(partial(scorer_of, model), partial(open_images, folder), job, Task())


# Before the command: it hangs after storing a part.
HANGING = """
import sys, time
from facerts.io.job import Job
put = Job.put
def put_and_hang(self, number, content):
    put(self, number, content)
    print(number, file=sys.__stdout__, flush=True)
    time.sleep(60)
Job.put = put_and_hang
"""


@pytest.mark.slow
def test_a_killed_run_is_finished_without_ray(ray_here, folder, model, tmp_path, expected):
    out = tmp_path / "rows.csv"
    command = ["score", str(folder), "--model", str(model), "--out", str(out)]
    cluster = ["--set", f"ray.address={ray_here.get_runtime_context().gcs_address}"]
    with subprocess.Popen(
        [sys.executable, "-c", HANGING + COMMAND, *command, "--engine", "ray", *cluster],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        first = process.stdout.readline()
        process.kill()
        assert first.strip().isdigit(), process.stderr.read()
    assert not out.exists()
    job = new_job(folder, model, out)
    assert len(job.finished()) == 1
    run_job(scorer_of(model), open_images(folder), job, Task())
    assert finished(job) == expected
