from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.embedding import FaceOutputs
from facerts.evaluation.compare import compare_methods, methods_of
from facerts.evaluation.corruption_benchmark import run_corruptions
from facerts.evaluation.images import JPEG_QUALITY
from facerts.evaluation.labeled import load_labeled
from facerts.evaluation.ood import run_ood
from facerts.evaluation.options import EvaluationOptions
from facerts.evaluation.result_folder import load_result
from facerts.evaluation.run import run_identification, run_pairs
from facerts.evaluation.similarity import MLS
from facerts.images import encode_jpeg
from facerts.images import read as read_crop
from facerts.report import write_report
from facerts.report.comparison_report import subjects_of, write_comparison_report
from facerts.report.crops import best_and_worst, worst_pairs
from facerts.report.subject import load_subjects
from tests.evaluation.conftest import Plain

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(
    named_folder: tuple[Path, Path], drawn_things: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[Path]:
    """Two models' folders with every section, all pairs and pictures."""
    people, listing = named_folder
    folder = tmp_path_factory.mktemp("two")
    options = EvaluationOptions(flip=False, every_pair=True, fmr=0.01)
    for number, name in enumerate(("first", "second")):
        out, model = folder / name, Plain(name, str(number) * 64)
        run_pairs(model, ["verification", "reject"], [listing], out, options)
        run_ood(model, [str(people)], [str(drawn_things)], out, options)
        run_corruptions(model, [str(people)], out, options, images=12)
        run_identification(model, [str(people)], out, options, enrolled=2)
    return [folder / "first", folder / "second"]


def page_of(results: list[Path], out: Path) -> str:
    if len(results) == 1:
        write_report(results, out)
        return out.read_text(encoding="utf-8")
    methods = methods_of(load_labeled(results))
    write_comparison_report(methods, subjects_of(methods), compare_methods(methods), out.parent)
    return (out.parent / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(results: list[Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of both."""
    return page_of(results, tmp_path_factory.mktemp("page") / "page.html")


def test_a_page_shows_scores_of_another_similarity_as_such(
    named_folder: tuple[Path, Path], tmp_path: Path
) -> None:
    class Even(Plain):
        def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
            outputs = super().__call__(crops)
            return replace(outputs, extras={"variance": np.full_like(outputs.embedding, 1e-3)})

    run_pairs(
        Even(), ["verification"], [named_folder[1]], tmp_path, EvaluationOptions(flip=False), similarity=MLS
    )
    (subject,) = load_subjects([tmp_path])
    (pair, *_) = worst_pairs(subject, "named (mls)")["Impostor pairs most alike"]
    scores = subject.arrays["verification/named (mls)/scores"]
    assert pair.similarity == "mls"
    assert pair.score == pytest.approx(scores[~subject.arrays["verification/named (mls)/same"]].max())
    assert pair.score > 1
    page = page_of([tmp_path], tmp_path / "page.html")
    assert f"mls {pair.score:.3f}" in page
    assert "mutual likelihood score" in page
    assert "cosine similarity" not in page


def test_every_section_is_there_and_the_menu_leads_to_it(page: str) -> None:
    targets = re.findall(r'<a href="#(\w+)">', page)
    sections = [
        *("methods", "differences", "verification", "identification", "reject", "ood", "corruptions"),
        *("provenance", "glossary"),
    ]
    assert targets == [*sections, "glossary"]
    for target in sections:
        assert page.count(f'<section id="{target}">') == 1


def test_all_pairs_and_differences_show_their_numbers(page: str, results: list[Path]) -> None:
    section = load_result(results[0])[0].verification["named"].all_pairs
    assert f"{section.impostors:,}" in page
    assert f"{100 * section.auroc:.2f}\u00a0%" in page
    differences = page.split('<section id="differences">')[1].split("</section>")[0]
    # Both are the same model under two names.
    assert "+0.00" in differences
    assert "p 1.000" in differences
    assert 'class="clear"' not in differences


def test_the_pairs_that_are_shown_are_the_worst_and_their_crops_are_the_datas(
    results: list[Path], named_folder: tuple[Path, Path]
) -> None:
    (subject,) = load_subjects(results[:1])
    found = worst_pairs(subject, "named")
    prefix = "verification/named/"
    scores, same = subject.arrays[prefix + "scores"], subject.arrays[prefix + "same"]
    assert [pair.score for pair in found["Genuine pairs least alike"]] == pytest.approx(
        np.sort(scores[same])[:12].tolist()
    )
    assert [pair.score for pair in found["Impostor pairs most alike"]] == pytest.approx(
        np.sort(scores[~same])[::-1][:12].tolist()
    )
    face = found["Genuine pairs least alike"][0].first
    crop = read_crop(named_folder[0] / face.name)
    assert base64.b64decode(face.source.split(",")[1]) == encode_jpeg(crop, JPEG_QUALITY)


def test_best_and_worst_are_in_order(results: list[Path]) -> None:
    (subject,) = load_subjects(results[:1])
    found = best_and_worst(subject, "verification/named/", "quality")
    quality = np.sort(subject.arrays["verification/named/quality"])
    assert [face.text for face in found["lowest quality"]] == [f"{value:.3g}" for value in quality[:12]]
    assert [face.text for face in found["highest quality"]] == [f"{v:.3g}" for v in quality[::-1][:12]]


def test_without_pictures_there_are_none_on_the_page(named_folder: tuple[Path, Path], tmp_path: Path) -> None:
    options = EvaluationOptions(flip=False, keep_crops=False)
    run_pairs(Plain(), ["verification"], [named_folder[1]], tmp_path / "r", options)
    assert "data:image" not in page_of([tmp_path / "r"], tmp_path / "page.html")


def test_warnings_of_the_data_stand_on_the_page(named_folder: tuple[Path, Path], tmp_path: Path) -> None:
    people, listing = named_folder
    text = listing.read_text().splitlines()
    first = text[1].split(",")
    text.append(",".join([first[0], first[0], "1", "7", first[4], first[4]]))
    (people / "twice.csv").write_text("\n".join(text))
    run_pairs(
        Plain(), ["verification"], [people / "twice.csv"], tmp_path / "r", EvaluationOptions(flip=False)
    )
    page = page_of([tmp_path / "r"], tmp_path / "page.html")
    assert "1 genuine pairs consist of the same image twice" in page
