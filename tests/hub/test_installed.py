"""The way of a recognizer from an address to the default one: its file as it is, and a description beside it."""

import hashlib
import json
import zipfile

import numpy as np
import pytest

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.embedding import load_embedder
from facerts.errors import ModelError
from facerts.hub import catalog, installed
from facerts.hub.catalog import Catalog, in_catalog
from facerts.hub.find import find_model
from facerts.hub.installed import find_installed, install, uninstall
from facerts.hub.registry import HashedFile
from tests.command import printed_json, refused, run
from tests.foreign import write_embedder

CROPS = np.stack([draw_face(person, 0) for person in range(4)])
LISTED = {"summary": "for tests", "terms": "for tests only", "commercial": "no", "source": "this test"}


def described(model, name="theirs", **changes):
    """The entry of a recognizer in the catalog."""
    contract = {
        "schema": "facerts.model/1",
        "method": "arcface",
        "input": {"name": "*"},
        "outputs": {"embedding": "*"},
        "normalize_embedding": True,
        "quality": "norm",
    }
    content = model.read_bytes()
    return {
        "name": name, "kind": "recognizer", "file": model.name, "bytes": len(content), "embedding_size": 16,
        "sha256": hashlib.sha256(content).hexdigest(), "description": contract, **LISTED, **changes,
    }  # fmt: skip


@pytest.fixture
def listing(tmp_path, monkeypatch):
    """Write a catalog; its models lie in the folder of models, and the cache is empty."""
    folder = tmp_path / "models"
    folder.mkdir()
    monkeypatch.setenv("FACERTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FACERTS_MODELS", str(folder))
    yunet = in_catalog("yunet").model_dump(mode="json", by_alias=True)
    monkeypatch.setattr(catalog, "CATALOG", tmp_path / "catalog.json")

    def write(*entries):
        content = {"schema": "facerts.catalog/1", "models": [*entries, yunet]}
        (tmp_path / "catalog.json").write_text(json.dumps(content))
        return folder

    return write


@pytest.fixture
def theirs(listing):
    """The file of a recognizer of the catalog, "theirs"."""
    model = write_embedder(listing() / "theirs_v1.onnx", size=16)
    listing(described(model))
    return model


def test_a_pulled_file_stays_as_it_is_and_works_beside_any_quality(theirs):
    path = install("theirs")
    assert path == find_model("theirs") == find_installed("theirs")
    assert path.read_bytes() == theirs.read_bytes()
    entry = in_catalog("theirs")
    expected = load_embedder(theirs, description=entry.description)(CROPS)
    scorer = facerts.load(recognizer="theirs", detector="none")
    outputs = scorer.embed(CROPS)
    np.testing.assert_array_equal(outputs.embedding, expected.embedding)
    np.testing.assert_array_equal(outputs.quality, facerts.Quality("facerts-quality")(CROPS))
    assert (scorer.recognizer.name, scorer.recognizer.sha256) == ("theirs", entry.sha256)
    assert scorer.recognizer.description.terms == "for tests only"
    assert entry.sha256 in scorer.recognizer.description.source
    own = facerts.load(recognizer="theirs", quality="own", detector="none").embed(CROPS)
    np.testing.assert_array_equal(own.quality, expected.norm)


def test_a_name_pulls_where_it_may(theirs, monkeypatch):
    with pytest.raises(ModelError, match="the model theirs is not on this machine: run facerts models pull theirs"):
        find_model("theirs")
    monkeypatch.setenv("FACERTS_OFFLINE", "1")
    with pytest.raises(ModelError, match="theirs is not on this machine"):
        _ = facerts.load("theirs").recognizer.opened
    monkeypatch.setenv("FACERTS_OFFLINE", "0")
    assert facerts.load("theirs").recognizer.opened.name == "theirs"
    monkeypatch.setattr(installed, "fetch", lambda *_: pytest.fail("it is installed again"))
    assert facerts.load("theirs").recognizer.opened.name == "theirs"


def test_the_setting_recognizer_is_every_commands_default(theirs, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    pulled = printed_json(capsys, "models", "pull", "theirs")
    assert pulled["terms"] == "for tests only"
    assert run("config", "set", "recognizer", "theirs") == 0
    assert run("models", "path") == 0
    assert capsys.readouterr().out == f"{pulled['file']}\n"
    assert printed_json(capsys, "models", "list")["models"][0]["name"] == "theirs"
    assert run("models", "remove", "theirs") == 0
    assert "theirs is still the setting recognizer" in capsys.readouterr().err
    assert theirs.is_file()
    assert "did you mean 'facerts-small'" in refused(capsys, "config", "set", "recognizer", "facerts-smal")
    with pytest.raises(ModelError, match="yunet is a detector; give it as detector"):
        find_model("yunet")


def test_a_pull_that_fails_leaves_nothing(theirs, tmp_path):
    (tmp_path / "other.onnx").write_bytes(b"another file")
    with pytest.raises(ModelError, match="12 bytes, but theirs has"):
        install("theirs", tmp_path / "other.onnx")
    assert not [path for path in (tmp_path / "cache").iterdir() if not path.name.endswith(".lock")]


def test_the_list_hashes_no_file_and_takes_none_for_pulled_that_cannot_be_used(theirs, monkeypatch, capsys):
    def listed():
        assert run("models", "list", "--json") == 0
        (entry,) = (one for one in json.loads(capsys.readouterr().out)["models"] if one["name"] == "theirs")
        return {key: entry[key] for key in ("where", "path")}

    # In the folder of models, without its description.
    assert listed() == {"where": "--from FILE", "path": None}
    path = install("theirs")
    monkeypatch.setattr(HashedFile, "mismatch", lambda *_: pytest.fail("a file was hashed"))
    assert listed() == {"where": "pulled", "path": str(path)}


def test_a_changed_file_is_refused(theirs, capsys):
    path = install("theirs")
    assert run("models", "verify") == 0
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"theirs_v1\.onnx: its SHA-256 is .*models remove theirs"):
        find_model("theirs")
    capsys.readouterr()
    assert run("models", "list") == 0
    assert "theirs: " in refused(capsys, "models", "verify")
    assert len(uninstall("theirs")) == 2


def _pack(folder, **members):
    """The entry of a pack that is written into a folder."""
    path = folder / "pack.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.onnx", content)
    entry = {**described(path, "pack"), "kind": "pack", "embedding_size": 128}
    del entry["description"]
    return entry


def test_a_pack_gives_its_recognizer(listing, tmp_path):
    model = write_embedder(tmp_path / "w600k.onnx", size=128)
    listing(_pack(listing(), w600k=model.read_bytes()))
    assert install("pack").suffix == ".zip"
    recognizer = facerts.Recognizer("pack")
    assert (recognizer.name, recognizer(CROPS).shape) == ("pack", (4, 128))


def test_the_catalog_that_ships_is_complete():
    models = Catalog.model_validate_json(catalog.CATALOG.read_bytes()).models
    assert len(models) >= 30
    for model in models:
        assert model.urls or model.name in {"mobilefacenet", "mobilefacenet-gnap", "edgeface-xs-q"}
        if model.name.startswith("adaface"):
            assert model.description.input.color == "BGR"
        assert "time" not in model.measured or model.measured_with
        if model.kind == "pack" or "w600k" in model.name:
            assert model.commercial == "no"
