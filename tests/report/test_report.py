from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from facerts.benchmarks import pairs_from_identities
from facerts.benchmarks.bin_sets import save_bin
from facerts.datasets import open_source
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.embedding import load_embedder
from facerts.errors import DataError
from facerts.evaluation.ood import run_ood
from facerts.evaluation.options import EvaluationOptions
from facerts.evaluation.run import run_pairs
from facerts.report import write_report
from tests.foreign import write_description, write_embedder


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory, drawn_things: Path) -> Path:
    """A folder with every section and a training log."""
    folder = tmp_path_factory.mktemp("report")
    write_synthetic_faces(folder / "people", identities=30, images=4, seed=11)
    save_bin(
        pairs_from_identities(open_source(folder / "people"), genuine=100, impostors=100, seed=2),
        folder / "people.bin",
    )
    model = write_embedder(folder / "model.onnx", quality=True)
    write_description(model, name="<b>bold</b> & co", quality="output:bright")
    embedder = load_embedder(model)
    run_pairs(
        embedder,
        ["verification", "reject"],
        [folder / "people.bin"],
        folder / "result",
        EvaluationOptions(fmr=0.01),
    )
    run_ood(embedder, [str(folder / "people")], [str(drawn_things)], folder / "result")
    lines = [
        {"kind": "train", "step": s, "epoch": s / 10, "cross_entropy": 5 - s / 10, "kl": 0.1, "lr": 0.1,
         "v_p5": 1.0, "v_p50": 1.5, "v_p95": 2.0}
        for s in range(1, 20)
    ]  # fmt: skip
    lines.append(
        {"kind": "validation", "step": 19, "epoch": 1.9, "name": "lfw", "accuracy": 0.8, "auroc": 0.9}
    )
    (folder / "result" / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "result"


@pytest.fixture(scope="module")
def page(result: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of that folder."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_report([result], path, title="A & B")
    return path.read_text()


class _Checker(HTMLParser):
    """Every tag is closed, and nothing is loaded from elsewhere."""

    VOID = frozenset({"meta", "br", "link", "img", "path", "use"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.loads += [
            str(value) for name, value in attrs if name in {"src", "href"} and not str(value).startswith("#")
        ]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.mark.slow
def test_the_page_is_whole_and_needs_nothing_else(page: str) -> None:
    checker = _Checker()
    checker.feed(page)
    assert checker.open == []
    assert [target for target in checker.loads if not target.startswith("data:")] == []
    assert "<title>A &amp; B</title>" in page
    assert "<b>bold</b>" not in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    # DET and pair scores; two reject curves and reliability; histograms of quality, norm and sharpness;
    # CE, KL, rate, v, accuracy, AUROC.
    assert page.count("<svg") == len(re.findall(r"</svg>\s*<figcaption>[\w&]", page)) == 14


@pytest.mark.slow
def test_the_tables_show_the_results_numbers(page: str, result: Path) -> None:
    content = json.loads((result / "result.json").read_text())
    verification = content["verification"]["people"]
    for value in (
        verification["accuracy"]["value"],
        verification["auroc"],
        1 - verification["tar_at_far"]["0.01"]["value"],
        content["reject"]["people"][0]["area"]["0.2"],
        content["ood"]["by"]["quality"]["tnr_at_tpr"]["0.95"],
    ):
        assert f">{100 * value:.2f}\u00a0%" in page
    low, high = verification["tar_at_far"]["0.01"]["ci95"]
    assert f"[{100 - 100 * high:.2f}, {100 - 100 * low:.2f}]" in page
    assert "facerts" in page
    assert content["model"]["sha256"][:16] in page


@pytest.mark.slow
def test_figures_take_the_pages_color(page: str) -> None:
    assert "currentColor" in page
    assert "#010203" not in page
    assert not re.search(r"fill: ?#ffffff", page)


@pytest.mark.slow
def test_several_folders_stand_side_by_side(result: Path, tmp_path: Path) -> None:
    run = tmp_path / "other_run"
    run.mkdir()
    (run / "log.jsonl").write_text((result / "log.jsonl").read_text())
    write_report([result, run], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "other_run" in page


def test_a_folder_with_nothing_to_report_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"neither result\.json nor log\.jsonl"):
        write_report([tmp_path], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
    (tmp_path / "log.jsonl").write_text('{"kind": "train"}\n{broken\n')
    with pytest.raises(DataError, match=r"log\.jsonl, line 2"):
        write_report([tmp_path], tmp_path / "page.html")


def test_arrays_with_pickles_are_refused(result: Path, tmp_path: Path) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    (hostile / "result.json").write_text((result / "result.json").read_text())
    np.savez(hostile / "arrays.npz", evil=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match=r"arrays\.npz: .* cannot be read"):
        write_report([hostile], tmp_path / "page.html")


def test_truncated_arrays_are_named(result: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "result.json").write_text((result / "result.json").read_text())
    whole = (result / "arrays.npz").read_bytes()
    (cut / "arrays.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"arrays\.npz: .* cannot be read"):
        write_report([cut], tmp_path / "page.html")
