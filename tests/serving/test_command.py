"""``facerts serve`` as a process of its own."""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import partial

import httpx
import pytest

from tests.command import run
from tests.serving.conftest import crop, post


@contextmanager
def served(*options, **variables):
    """The process, and a client of it."""
    environment = {key: value for key, value in os.environ.items() if key != "FACERTS_TOKEN"} | variables
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "facerts",
            "serve",
            "--set",
            "detector=none",
            "--port",
            "0",
            *map(str, options),
        ],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        # Shells make what they start in the background deaf to it.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    try:
        for line in process.stderr:
            if found := re.search(r"listening on (http://\S+)/", line):
                with httpx.Client(base_url=found[1], timeout=20) as client:
                    yield process, client
                return
        raise AssertionError("it ended without listening")
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


@pytest.mark.parametrize(
    "sent",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_it_listens_answers_logs_no_content_and_ends(model_file, sent):
    with served("--model", model_file, "--set", "keep=0.95", "--set", "batch_size=4") as (process, client):
        assert client.base_url.host == "127.0.0.1", "this machine alone, unless told otherwise"
        response = client.post("/v1/score", files=[("images", ("secret-name.png", crop(200)))] * 3)
        assert [image["faces"][0]["accepted"] for image in response.json()["images"]] == [True] * 3
        assert client.get("/secret-path?secret-query").status_code == 404
        assert client.get("/healthz").status_code == 200
        process.send_signal(sent)
        log = process.stderr.read()
        assert process.wait(20) == 0
    lines = [re.sub(r"\d+ ms$", "… ms", line.split(" INFO ")[-1]) for line in log.splitlines()]
    assert lines == ["POST /v1/score 200 … ms", "GET /secret-path 404 … ms", "stopped"]


@pytest.mark.slow
def test_the_token_may_come_from_the_environment(model_file):
    with served("--model", model_file, FACERTS_TOKEN="from-there") as (_, client):
        assert post(client, crop(200)).status_code == 401
        client.headers["authorization"] = "Bearer from-there"
        assert post(client, crop(200)).status_code == 200


def test_wrong_use_ends_with_2_and_a_sentence(model_file, tmp_path, capsys, monkeypatch):
    def error(*options):
        assert run("serve", "--set", "detector=none", "--model", model_file, "--port", "0", *options) == 2
        return re.sub(r"[\s│]+", " ", capsys.readouterr().err)

    monkeypatch.delenv("FACERTS_TOKEN", raising=False)
    assert "keep must be a share of the faces" in error("--set", "keep=1.5")
    assert "give only one" in error("--set", "keep=0.95", "--set", "min_quality=1")
    assert "a token must be one or more printable ASCII" in error("--token", "")
    assert "cannot listen on 192.0.2.1" in error("--host", "192.0.2.1", "--token", "a")
    assert "timeout must be" in error("--set", "serve.timeout=0")
    assert "fpir must be" in error("--set", "serve.fpir=2")
    assert "gone.npz" in error("--gallery", tmp_path / "gone.npz")
    # An empty variable is no way to leave a service open by mistake.
    monkeypatch.setenv("FACERTS_TOKEN", "")
    assert "a token must be one or more printable ASCII" in error()


def test_a_service_that_is_open_to_everybody_is_warned_of(model_file, capsys, monkeypatch):
    monkeypatch.delenv("FACERTS_TOKEN", raising=False)
    for token, warned in (((), True), (("--token", "a"), False)):
        # No machine has this address, so nothing is opened.
        options = ("--set", "detector=none", "--model", model_file, "--host", "192.0.2.1", *token)
        assert run("serve", *options) == 2
        assert ("anyone who can reach 192.0.2.1" in capsys.readouterr().err) is warned


WITHOUT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "{module}":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
from facerts.cli import main
sys.argv = ["facerts", "serve", "--set", "detector=none", "--model", {model!r}, "--port", "0"]
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["fastapi", "prometheus_client", "uvicorn"])
def test_a_missing_package_is_named_with_its_extra(model_file, module):
    code = WITHOUT.format(module=module, model=str(model_file))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "serving needs FastAPI, uvicorn and prometheus-client: in your clone" in ran.stderr
    assert "pip install '.[serve]'" in ran.stderr
    assert "Traceback" not in ran.stderr
