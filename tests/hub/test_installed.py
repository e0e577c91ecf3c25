"""The way of a recognizer from an address to a default model with our quality."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.embedding import load_embedder
from facerts.embedding.onnx_embedder import load_quality
from facerts.errors import ModelError
from facerts.export import install as installing
from facerts.export.channel_order import ChannelOrder, channel_order
from facerts.export.install import install
from facerts.hub import catalog
from facerts.hub.catalog import Catalog, in_catalog
from facerts.hub.find import find_model
from facerts.hub.installed import installed_file, installed_models, uninstall, use_model, used_model
from facerts.onnx import model_pack
from tests.command import run
from tests.foreign import write_embedder

CROPS = np.stack([draw_face(person, 0) for person in range(4)])
LISTED = {"summary": "for tests", "terms": "for tests only", "commercial": "no", "source": "this test"}


def described(model: Path, name: str = "theirs", **changes: Any) -> dict[str, Any]:
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
def listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write a catalog; its models lie in the folder of models, and the cache is empty."""
    folder = tmp_path / "models"
    folder.mkdir()
    monkeypatch.setenv("FACERTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FACERTS_MODELS", str(folder))
    # The check takes seconds, and has its own test.
    monkeypatch.setattr(installing, "channel_order", lambda _: ChannelOrder(2.0, 1.0, 1.0))
    yunet = in_catalog("yunet").model_dump(mode="json", by_alias=True)
    monkeypatch.setattr(catalog, "CATALOG", tmp_path / "catalog.json")

    def write(*entries: dict[str, Any]) -> Path:
        content = {"schema": "facerts.catalog/1", "models": [*entries, yunet]}
        (tmp_path / "catalog.json").write_text(json.dumps(content))
        return folder

    return write


@pytest.fixture
def theirs(listing: Callable[..., Path]) -> Path:
    """The file of a recognizer of the catalog, "theirs"."""
    model = write_embedder(listing() / "theirs_v1.onnx", size=16)
    listing(described(model))
    return model


def test_a_recognizer_gets_our_quality_and_keeps_its_embedding(theirs: Path) -> None:
    done = install("theirs")
    assert done.path == installed_file("theirs") == find_model("theirs")
    joined = load_embedder(done.path)
    entry = in_catalog("theirs")
    np.testing.assert_allclose(
        joined(CROPS).embedding,
        load_embedder(theirs, description=entry.description)(CROPS).embedding,
        atol=1e-6,
    )
    ours = load_quality(find_model("facerts-quality"))
    np.testing.assert_allclose(joined(CROPS).quality, ours(CROPS), atol=1e-5)
    assert joined.name == "theirs"
    assert "for tests only" in joined.description.terms
    assert entry.sha256 in joined.description.source
    assert joined.description.thresholds == ours.description.thresholds
    (record,) = installed_models()
    assert (record.made_from, record.quality) == (entry.sha256, "facerts-quality")


def test_without_our_quality_it_has_its_norm(theirs: Path) -> None:
    plain = load_embedder(install("theirs", quality=None).path)(CROPS)
    np.testing.assert_allclose(plain.quality, plain.norm)
    assert installed_models()[0].quality == ""


def test_a_name_pulls_where_it_may(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ModelError, match="the model theirs is not on this machine: run facerts models pull theirs"
    ):
        find_model("theirs")
    monkeypatch.setenv("FACERTS_OFFLINE", "1")
    with pytest.raises(ModelError, match="theirs is not on this machine"):
        facerts.load("theirs")
    monkeypatch.setenv("FACERTS_OFFLINE", "0")
    assert facerts.load("theirs").embedder.name == "theirs"
    monkeypatch.setattr(installing, "fetch", lambda *_: pytest.fail("it is installed again"))
    assert facerts.load("theirs").embedder.name == "theirs"


def test_the_model_in_use_is_every_commands_default(
    theirs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("models", "use", "theirs") == 2
    assert "the model theirs is not on this machine" in capsys.readouterr().err
    assert run("models", "pull", "theirs", "--json") == 0
    pulled = json.loads(capsys.readouterr().out)
    assert pulled["quality"] == "of facerts-quality"
    assert pulled["smallest cosine"] > 0.99999
    assert run("models", "use", "theirs") == 0
    assert used_model() == "theirs"
    assert find_model() == installed_file("theirs")
    assert facerts.load().embedder.name == "theirs"
    capsys.readouterr()
    assert run("models", "path") == 0
    assert capsys.readouterr().out == f"{installed_file('theirs')}\n"
    assert run("models", "list", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "theirs"
    # Back to the one that ships.
    assert run("models", "remove", "theirs") == 0
    assert "the default model is the one that ships again" in capsys.readouterr().err
    assert used_model() is None
    assert facerts.load().embedder.name == "facerts-small"
    assert theirs.is_file()
    use_model("facerts-small-int8")
    assert facerts.load().embedder.name == "facerts-small-int8"
    for other, words in (("facerts-quality", "gives no embedding"), ("yunet", "gives no embedding")):
        assert run("models", "use", other) == 2
        assert words in capsys.readouterr().err
    with pytest.raises(ModelError, match="yunet is a detector; give it as --detector"):
        find_model("yunet")
    assert run("models", "use", "facerts-smal") == 2
    assert "did you mean 'facerts-small'" in capsys.readouterr().err


def test_a_default_that_is_gone_is_named(theirs: Path) -> None:
    install("theirs")
    use_model("theirs")
    installed_file("theirs").with_suffix(".record.json").unlink()
    with pytest.raises(
        ModelError, match="the default model theirs is not on this machine: run facerts models pull"
    ):
        find_model()
    (installed_file("theirs").parent / "default").write_text("other\n")
    with pytest.raises(ModelError, match="default: 'other' is no model; run facerts models use NAME"):
        find_model()


def test_a_changed_file_is_refused(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = install("theirs").path
    assert run("models", "verify") == 0
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        ModelError, match=r"theirs\.onnx: not as facerts models pull wrote it .*models remove theirs"
    ):
        find_model("theirs")
    capsys.readouterr()
    assert run("models", "list") == 0
    assert run("models", "verify") == 2
    assert "theirs: " in capsys.readouterr().err
    assert len(uninstall("theirs")) == 2


def test_a_file_with_a_fixed_batch_takes_any(listing: Callable[..., Path]) -> None:
    model = write_embedder(listing() / "one.onnx", size=16, batch=1)
    listing(described(model, "one"))
    done = install("one")
    assert done.freed
    assert load_embedder(done.path).description.input.batch is None
    assert len(load_embedder(done.path)(CROPS)) == len(CROPS)


def _pack(folder: Path, **members: bytes) -> dict[str, Any]:
    """The entry of a pack that is written into a folder; ``up`` in a member's name is the folder above."""
    path = folder / "pack.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name.replace('up_', '../')}.onnx", content)
    entry = {**described(path, "pack"), "kind": "pack", "embedding_size": 128}
    del entry["description"]
    return entry


def test_a_pack_gives_its_recognizer(listing: Callable[..., Path], tmp_path: Path) -> None:
    model = write_embedder(tmp_path / "w600k.onnx", size=128)
    listing(_pack(listing(), w600k=model.read_bytes()))
    install("pack")
    joined = load_embedder(find_model("pack"))
    assert (joined.name, joined.description.embedding_size) == ("pack", 128)
    assert joined(CROPS).quality is not None


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"good": b"x", "up_evil": b"x"}, "points outside the folder"),
        ({"bomb": bytes(200_000)}, "more than the limit"),
        ({"notes": b"no network"}, "must have one network"),
    ],
)
def test_a_hostile_pack_leaves_nothing_behind(
    listing: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    members: dict[str, bytes],
    words: str,
) -> None:
    monkeypatch.setattr(model_pack, "MAX_PACK_BYTES", 100_000)
    folder = listing()
    listing(_pack(folder, **members))
    before = sorted(folder.parent.rglob("*"))
    assert run("models", "pull", "pack") == 2
    error = capsys.readouterr().err
    assert "pack.zip: " in error
    assert words in error
    assert installed_models() == ()
    # Nothing but the folders that were made to write into.
    assert [path for path in folder.parent.rglob("*") if path not in before and path.is_file()] == []


def test_swapped_channels_are_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = load_embedder(find_model("facerts-small"))
    order = channel_order(small)
    assert order.is_right
    spec = small.description.input.model_copy(update={"color": "BGR"})
    wrong = load_embedder(
        find_model("facerts-small"), description=small.description.model_copy(update={"input": spec})
    )
    swapped = channel_order(wrong)
    assert swapped.is_wrong
    np.testing.assert_allclose(
        [swapped.swapped, swapped.described], [order.described, order.swapped], rtol=1e-4
    )
    installing._checked_order("theirs", wrong)
    assert (
        "theirs takes BGR by its description, but tells drawn people apart better as RGB"
        in capsys.readouterr().err
    )


def test_separation_is_that_of_a_loop_over_pairs() -> None:
    small = load_embedder(find_model("facerts-small"))
    crops = [draw_face(person, number) for person in range(48) for number in range(4)]
    embedding = small(np.stack(crops)).embedding.astype(np.float64)
    same, other = [], []
    for i in range(len(crops)):
        for j in range(i):
            (same if i // 4 == j // 4 else other).append(float(embedding[i] @ embedding[j]))
    expected = (np.mean(same) - np.mean(other)) / np.sqrt((np.var(same) + np.var(other)) / 2)
    assert channel_order(small).described == pytest.approx(expected, rel=1e-5)


def test_the_catalog_that_ships_is_complete() -> None:
    models = Catalog.model_validate_json(catalog.CATALOG.read_bytes()).models
    assert len(models) >= 30
    for model in models:
        assert model.urls or model.name in {"mobilefacenet", "mobilefacenet-gnap", "edgeface-xs-q"}
        if model.name.startswith("adaface"):
            assert model.description is not None
            assert model.description.input.color == "BGR"
        if model.kind == "pack" or "w600k" in model.name:
            assert model.commercial == "no"
