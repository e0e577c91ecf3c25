"""Real recognizers, served as their hosts would, from nothing to decisions."""

import json
from pathlib import Path

import pytest

from facerts.hub import catalog, fetch
from tests.command import printed_json, run
from tests.hub.test_fetch import Response, Server, Unencrypted

pytestmark = pytest.mark.slow

FILES = {
    "mobilefacenet": "mobilefacenet.onnx",
    "mobilefacenet-gnap": "mobilefacenet_gnap.onnx",
    "edgeface-xs-q": "edgeface_xs_q.onnx",
}


@pytest.fixture
def host(reference_models, tmp_path, monkeypatch):
    """A server with the real files, a catalog that has their addresses, and an empty cache."""
    server = Server()
    content = json.loads(catalog.CATALOG.read_text(encoding="utf-8"))
    for entry in content["models"]:
        if entry["name"] in FILES:
            entry["urls"] = [server.url("/dead"), server.url(f"/{entry['file']}")]
            server.responses[f"/{entry['file']}"] = [Response(body=(reference_models / entry["file"]).read_bytes())]
    server.responses["/dead"] = [Response(404, b"gone")]
    (tmp_path / "catalog.json").write_text(json.dumps(content))
    monkeypatch.setattr(catalog, "CATALOG", tmp_path / "catalog.json")
    monkeypatch.setattr(fetch, "PAUSE_S", 0.0)
    monkeypatch.setattr("http.client.HTTPSConnection", Unencrypted)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("FACERTS_OFFLINE", "0")
    monkeypatch.setenv("FACERTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FACERTS_MODELS", raising=False)
    yield server
    server.close()


@pytest.mark.parametrize("name", FILES)
def test_from_an_address_to_decisions(name, host, reference_models, facerts_data, tmp_path, capsys, monkeypatch):
    pulled = printed_json(capsys, "models", "pull", name)
    assert Path(pulled["file"]).read_bytes() == (reference_models / FILES[name]).read_bytes()
    assert host.requests["/dead"] == host.requests[f"/{FILES[name]}"] == 1
    monkeypatch.setenv("FACERTS_RECOGNIZER", name)

    people = [folder for folder in sorted((facerts_data / "lfw").iterdir()) if len(list(folder.glob("*"))) > 3]
    first, second, *_ = sorted(people[0].iterdir())
    assert run("verify", first, second, "--set", "detector=none") == 0
    assert "Same person" in capsys.readouterr().out
    run("verify", first, next(people[1].iterdir()), "--set", "detector=none")
    assert "Different people" in capsys.readouterr().out
    data = [argument for folder in ("lfw", "cfp") for argument in ("--data", facerts_data / folder)]
    out = tmp_path / "results"
    assert run("evaluate", "verification", "--model", name, *data, "--set", "flip=false", "--out", out) == 0
    measured = json.loads((out / "result.json").read_text())["sections"]["verification"]
    assert "red and blue swapped" not in str(measured)
    accuracies = [
        next(one["value"] for one in section["measures"] if one["name"] == "accuracy") for section in measured.values()
    ]
    # LFW, and CFP frontal to frontal and to profile.
    assert accuracies[0] > 0.985
    assert accuracies[1] > 0.98
    # MobileFaceNet has 0.8483 frontal to profile, the others 0.94 and more.
    assert accuracies[2] > 0.8
