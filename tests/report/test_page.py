"""The page as readers meet it: nothing personal where they ask for that, and nothing wider than their screen."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from facerts.benchmarks import pairs_from_identities
from facerts.cli.app import build_app
from facerts.datasets import open_source
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.evaluation.corruption_benchmark import run_corruptions
from facerts.evaluation.ood import run_ood
from facerts.evaluation.options import EvaluationOptions
from facerts.evaluation.run import run_identification, run_pairs
from facerts.report import write_report
from facerts.report.figures.style import new_figure, rate_axes, svg
from facerts.report.glossary import TERMS, terms_of
from tests.evaluation.conftest import Plain, write_pairs
from tests.serving.browser import CHROMIUM, Tab, browser

PEOPLE = ("Ada_Lovelace", "Grace Hopper", "Zoë", "Kurt_Gödel", "Emmy_Noether", "Alan_Turing")


@pytest.fixture(scope="module")
def result(drawn_things: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every section of a benchmark whose people have names, which also stand in warnings, options and commands."""
    folder = tmp_path_factory.mktemp("personal")
    people = folder / "people"
    write_synthetic_faces(people, identities=len(PEOPLE), images=5, seed=11)
    for drawn, name in zip(sorted(people.iterdir()), PEOPLE, strict=True):
        drawn.rename(people / name)
    pairs = pairs_from_identities(open_source(people), genuine=40, impostors=40, seed=2)
    listing = write_pairs(pairs, people / "pairs.csv")
    first = listing.read_text().splitlines()[1].split(",")
    with listing.open("a") as file:
        file.write("\n" + ",".join([first[0], first[0], "1", *first[3:4], first[4], first[4]]) + "\n")
    out, options = folder / "result", EvaluationOptions(flip=False, every_pair=True, fmr=0.05)
    model = Plain()
    run_pairs(model, ["verification", "reject"], [listing], out, options)
    run_ood(model, [str(people)], [str(drawn_things)], out, options, exclude_others="Zoë*")
    run_corruptions(model, [str(people)], out, options, images=6)
    run_identification(model, [str(people)], out, options, enrolled=2)
    content = json.loads((out / "result.json").read_text(encoding="utf-8"))
    content["command"] = [["facerts", "evaluate", "ood", "--in", "/home/ada/Ada_Lovelace.csv"]]
    (out / "result.json").write_text(json.dumps(content), encoding="utf-8")
    return out


def names_of(result: Path) -> set[str]:
    """Everything that names an image or a person."""
    with np.load(result / "arrays.npz") as arrays:
        keys = {key for name in arrays.files if name.endswith("/names") for key in arrays[name].tolist()}
    return {*keys, *PEOPLE, *(part for name in PEOPLE for part in re.split("[_ ]", name))}


@pytest.mark.slow
def test_without_images_nothing_on_the_page_is_personal(result: Path, tmp_path: Path) -> None:
    write_report([result], tmp_path / "images.html")
    asked = ["report", str(result), "--out", str(tmp_path / "page.html"), "--no-images"]
    assert CliRunner().invoke(build_app(), asked).exit_code == 0
    names = names_of(result)
    assert len(names) > 30 + len(PEOPLE)
    shown, page = ((tmp_path / name).read_text(encoding="utf-8") for name in ("images.html", "page.html"))
    assert {*PEOPLE[:3], "Ada"} <= {name for name in names if name in shown}
    assert {name for name in names if name in page} == set()
    for private in ("<img", "data:image", "images of people", ".csv", ".png", ".jpg", "/home", str(tmp_path)):
        assert private not in page
    # The numbers and the warnings are all there.
    assert "1 genuine pairs consist of the same image twice, the first is …" in page
    for section in ("verdict", "summary", "verification", "reject", "ood", "corruptions", "provenance"):
        assert f'<section id="{section}">' in page


@pytest.mark.slow
def test_models_and_runs_of_one_name_are_numbered_without_their_folders(result: Path, tmp_path: Path) -> None:
    log = '{"kind": "train", "epoch": 1, "cross_entropy": 2}'
    for parent in ("Ada", "Grace"):
        (tmp_path / parent / "run").mkdir(parents=True)
        (tmp_path / parent / "run" / "log.jsonl").write_text(log)
    folders = [result, result, tmp_path / "Ada" / "run", tmp_path / "Grace" / "run"]
    write_report(folders, tmp_path / "page.html", images=False)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for label in ("plain (1)", "plain (2)", "run (1)", "run (2)"):
        assert f">{label}<" in page
    assert not re.search("result/|Ada|Grace", page)


@pytest.mark.slow
def test_a_notice_counts_the_images_of_people(result: Path, tmp_path: Path) -> None:
    write_report([result], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    things = page.split("<summary>things: ")[1].split("</details>")[0].count("<img")
    assert things > 0
    assert f"This page contains {page.count('<img') - things} images of people" in page


def test_axes_of_rates_end_at_100_percent() -> None:
    for scale, low in (("linear", 0.0), ("log", 1e-7)):
        figure, axes = new_figure()
        axes.set(xscale=scale, yscale=scale)
        axes.plot([low, 1], [low, 1])
        axes.margins(0.2)
        assert axes.get_ylim()[1] > 1
        rate_axes(axes, "xy")
        assert axes.get_xlim()[1] == axes.get_ylim()[1] == 1
        labels = re.findall(r">([\d.]+) %</text>", svg(figure))
        assert labels.count("100") == 2
        # Neither exponents nor too many of them.
        assert 4 <= len(set(labels)) <= 7


@pytest.mark.slow
def test_the_glossary_has_the_terms_of_the_page_and_no_others(result: Path, tmp_path: Path) -> None:
    write_report([result], tmp_path / "page.html", images=False)
    page, glossary = (tmp_path / "page.html").read_text(encoding="utf-8").split('<section id="glossary">')
    listed = re.findall(r"<dt>(.*?)</dt>", glossary)
    assert {"FMR", "FNMR", "AUROC", "EER", "TNR", "FPIR", "Error versus reject", "Percentile"} <= set(listed)
    assert not {"p-value", "Percentage point", "Uncertainty v"} & set(listed)
    text = re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)
    assert "TAR" not in text
    assert "FAR" not in text.replace("FAR = FMR", "")


def test_terms_are_found_in_what_readers_see() -> None:
    assert [term.name for term in terms_of("<style>.EER {}</style><p title='FPIR'>At 1&nbsp;% FMR</p>")] == [
        "FMR"
    ]
    assert len({term.name for term in TERMS}) == len(TERMS)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("chromium")) as tab:
        yield tab


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)")
def test_nothing_is_wider_than_a_phone(tab: Tab, result: Path, tmp_path: Path) -> None:
    write_report([result, result], tmp_path / "page.html")
    tab.open((tmp_path / "page.html").as_uri())
    for width in (390, 800, 1400):
        tab.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        wider = tab.run(
            """[...document.querySelectorAll('body *')].filter((one) => !one.closest('svg')
              && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 80))"""
        )
        assert wider == []
        assert tab.run("document.documentElement.scrollWidth") == width
    assert tab.errors == []
