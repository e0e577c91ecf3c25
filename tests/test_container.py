"""The Containerfile without a container engine: its steps, its commands, and a service that may write nothing."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import skimage.data

from facerts.images import encode_png
from tests.command import free_port

ROOT = Path(__file__).parents[1]
LINES = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()


def instructions(word: str) -> list[str]:
    return [line.partition(" ")[2] for line in LINES if line.startswith(f"{word} ")]


@pytest.fixture(params=["here", pytest.param("installed", marks=pytest.mark.slow)])
def environment(request, tmp_path, monkeypatch) -> Path:
    """The folder of python and facerts: of these tests, or installed as the Containerfile says."""
    if request.param == "here":
        return Path(sys.executable).parent
    for copied in instructions("COPY")[:-1]:
        *sources, target = copied.split()
        for source in sources:
            to = tmp_path / target.strip("/") / (source if target.endswith("/") else "")
            to.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, to)
    (step,) = instructions("RUN")
    step = re.sub(r'/opt|(?<=")/src', lambda found: f"{tmp_path}{found[0]}", step)
    step = step.replace("&& pip", f"&& {sys.executable} -m pip").replace("python -m", f"{sys.executable} -m", 1)
    subprocess.run(step, shell=True, check=True)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path / "opt" / "facerts" / "bin"


def test_the_service_answers_without_privileges_and_without_a_place_to_write(environment, tmp_path):
    assert all(re.match(r"python:3\.\d+-slim-", base) for base in instructions("FROM"))
    (user,), (health,) = instructions("USER"), instructions("HEALTHCHECK")
    entry, command = (json.loads(instructions(word)[-1]) for word in ("ENTRYPOINT", "CMD"))
    assert int(user.split(":")[0]) > 0
    nowhere, port = tmp_path / "read-only", free_port()
    nowhere.mkdir(mode=0o555)
    # Not in /tmp either.
    variables = dict.fromkeys(("HOME", "TMPDIR", "FACERTS_CACHE"), str(nowhere))
    # Without its capabilities, root may not write there either.
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    service = subprocess.Popen(
        [*drop, environment / entry[0], *entry[1:], *command, "--port", str(port)],
        env=os.environ | variables,
        stderr=subprocess.PIPE,
        text=True,
    )
    name, *arguments = json.loads(health.partition("CMD ")[2])
    check = [environment / name, *(part.replace("8000", str(port)) for part in arguments)]
    try:
        for _ in range(100):
            if subprocess.run(check, capture_output=True, check=False).returncode == 0:
                break
            assert service.poll() is None
            time.sleep(0.2)
        photo = encode_png(skimage.data.astronaut())
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/score?embeddings=true", content=photo, timeout=60)
        (image,) = answer.json()["images"]
        assert [face["accepted"] for face in image["faces"]] == [True]
    finally:
        service.terminate()
        said = service.communicate()[1]
    # ONNX Runtime says so where it cannot keep an identifier of the machine.
    assert "telemetry" not in said
    assert subprocess.run(check, capture_output=True, check=False).returncode != 0
