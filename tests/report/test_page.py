"""The page: whole, its numbers those of the result, nothing personal where that is asked for, narrow enough."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from typer.testing import CliRunner

from facerts.cli.app import build_app
from facerts.datasets import open_source, pairs_from_identities
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.errors import DataError
from facerts.evaluation.baselines import JPEG_QUALITY
from facerts.evaluation.benchmark_runs import run_identification, run_pairs
from facerts.evaluation.corruption_benchmark import run_corruptions
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.ood import run_ood
from facerts.evaluation.result_folder import load_result
from facerts.evaluation.saved_result import SavedResult, load_saved
from facerts.evaluation.similarity import MLS
from facerts.evaluation.wording import DIGITS, measured
from facerts.images import encode_jpeg
from facerts.images import read as read_crop
from facerts.report import write_report
from facerts.report.figures import bins_of, legend, log_ticks, new_figure, rate_axes, svg
from facerts.report.glossary import TERMS, terms_of
from facerts.report.page import impersonal
from facerts.report.page_elements import best_and_worst, worst_pairs
from facerts.report.table import cell
from tests.conftest import write_pairs
from tests.evaluation.conftest import Plain

PEOPLE = ("Ada_Lovelace", "Grace Hopper", "Zoë", "Kurt_Gödel", "Emmy_Noether", "Alan_Turing")
LABEL = "<b>bold</b> & co"
SECTIONS = [
    *("summary", "verification", "identification", "reject", "ood", "corruptions", "training", "provenance"),
    "glossary",
]


class ManyScores(Plain):
    """With the variances that mutual likelihood scores need."""

    def __call__(self, crops):
        outputs = super().__call__(crops)
        return replace(outputs, extras={"variance": np.full_like(outputs.embedding, 1e-3)})


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    folder = tmp_path_factory.mktemp("personal") / "people"
    write_synthetic_faces(folder, identities=len(PEOPLE), images=5, seed=11)
    for person, name in zip(sorted(folder.iterdir()), PEOPLE, strict=True):
        person.rename(folder / name)
    return folder


@pytest.fixture(scope="module")
def result(people, non_faces):
    """Every section of a benchmark whose people have names, which also stand in warnings, options and commands."""
    pairs = pairs_from_identities(open_source(people), genuine=40, impostors=40, seed=2)
    listing = write_pairs(pairs, people.parent / "pairs.csv")
    listing = listing.rename(people / "pairs.csv")
    first = listing.read_text().splitlines()[1].split(",")
    with listing.open("a") as file:
        file.write("\n" + ",".join([first[0], first[0], "1", *first[3:4], first[4], first[4]]) + "\n")
    out, options = people.parent / "result", EvaluationOptions(flip=False, every_pair=True, fmr=0.05)
    model = ManyScores(LABEL)
    run_pairs(model, ["verification", "reject"], [listing], out, options)
    run_pairs(model, ["verification"], [listing], out, replace(options, every_pair=False), similarity=MLS)
    run_ood(model, [str(people)], [str(non_faces)], out, options, exclude_others="Zoë*")
    run_corruptions(model, [str(people)], out, options, images=6)
    run_identification(model, [str(people)], out, options, enrolled=2)
    content = json.loads((out / "result.json").read_text(encoding="utf-8"))
    content["command"] = [["facerts", "evaluate", "ood", "--in", "/home/ada/Ada_Lovelace.csv"]]
    (out / "result.json").write_text(json.dumps(content), encoding="utf-8")
    lines = [
        {"kind": "train", "step": s, "epoch": s / 10, "cross_entropy": 5 - s / 10, "kl": 0.1, "lr": 0.1,
         "v_p5": 1.0, "v_p50": 1.5, "v_p95": 2.0}
        for s in range(1, 20)
    ]  # fmt: skip
    lines.append({"kind": "validation", "step": 19, "epoch": 1.9, "name": "lfw", "accuracy": 0.8, "auroc": 0.9})
    (out / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return out


def page_of(*results, images=True):
    out = results[0].parent / "page.html"
    write_report(results, out, title="A & B", images=images)
    return out.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def report(result):
    return page_of(result)


class _Checker(HTMLParser):
    """Every tag is closed, and nothing is loaded from elsewhere."""

    VOID = frozenset({"meta", "br", "link", "img", "path", "use"})

    def __init__(self):
        super().__init__()
        self.open = []
        self.loads = []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        self.loads += [
            str(value) for name, value in attrs if name in {"src", "href"} and not str(value).startswith("#")
        ]

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(report):
    checker = _Checker()
    checker.feed(report)
    assert checker.open == []
    assert [target for target in checker.loads if not target.startswith("data:")] == []
    assert "<title>A &amp; B</title>" in report
    assert LABEL not in report
    assert "&lt;b&gt;bold&lt;/b&gt; &amp; co" in report
    assert re.findall(r'<a href="#(\w+)">', report) == [*SECTIONS, "glossary"]
    assert all(report.count(f'<section id="{section}">') == 1 for section in SECTIONS)
    assert report.count("<svg") == len(re.findall(r"</svg>\s*<figcaption>[\w&]", report)) > 14
    # Figures take the page's color.
    assert "currentColor" in report
    assert "#010203" not in report


def test_the_tables_show_the_results_numbers(report, result):
    content = load_result(result)[0]
    corrupted = content.of_kind("corruptions")["people"]
    shown = [
        content.of_kind("verification")["pairs"].measure("accuracy"),
        content.of_kind("verification")["pairs"].measure("AUROC", pairs="all pairs"),
        content.of_kind("verification")["pairs"].measure("FNMR at FMR 10%"),
        content.of_kind("verification")["pairs"].measure("impostor pairs", pairs="all pairs"),
        content.of_kind("reject")["pairs"].measure("pAUC to 20%"),
        content.of_kind("identification")["people"].measure("rank 1"),
        content.of_kind("ood")["non-faces"].measure("TNR at TPR 95%", score="quality"),
        corrupted.measure("ρ, all", score="quality"),
        corrupted.measure("kept at 1", kind="sepia (held out)"),
    ]
    for found in map(cell, shown):
        assert f">{found.text}{f' <small>{found.small}</small>' if found.small else ''}<" in report
    assert content.model.sha256 in report
    assert "1 genuine pairs consist of the same image twice" in report


def test_images_are_the_worst_pairs_and_the_best_and_worst_in_order(result, people, report):
    (subject,) = load_saved([result])
    for prefix in ("verification/pairs", "verification/pairs (mls)"):
        shown = worst_pairs(subject, f"{prefix}/")
        scores, same = subject.arrays[f"{prefix}/scores"], subject.arrays[f"{prefix}/same"]
        expected = {
            "Genuine pairs least alike": np.sort(scores[same])[:12],
            "Impostor pairs most alike": np.sort(scores[~same])[::-1][:12],
        }
        for heading, values in expected.items():
            assert [pair.lines[0] for pair in shown[heading]] == [f"similarity {value:.3f}" for value in values]
    assert shown["Impostor pairs most alike"][0].lines[0] in report
    assert "mutual likelihood score" in report
    face = shown["Genuine pairs least alike"][0].images[0]
    crop = read_crop(people / face.name)
    assert base64.b64decode(face.source.split(",")[1]) == encode_jpeg(crop, JPEG_QUALITY)
    faces = best_and_worst(subject, "verification/pairs/", "quality")
    quality = np.sort(subject.arrays["verification/pairs/quality"])
    for heading, values in (("lowest quality", quality[:12]), ("highest quality", quality[::-1][:12])):
        assert [face.lines for face in faces[heading]] == [[f"{value:.3g}"] for value in values]
    # Users know the percentiles of a calibrated model, not the scale of its quality.
    prefix = "verification/pairs/"
    known = replace(subject, arrays={**subject.arrays, prefix + "percentile": 7.0 + np.arange(len(quality))})
    row = int(subject.arrays[prefix + "quality"].argmin())
    assert best_and_worst(known, prefix, "quality")["lowest quality"][0].lines == [f"percentile {7 + row}"]
    assert all("percentile" in pair.lines[1] for pair in worst_pairs(known, prefix)["Genuine pairs least alike"])
    # Whom or what they show, the page does not know.
    assert f"This page contains {report.count('<img')} images of the data" in report
    assert "images of people" not in report


def test_without_images_nothing_on_the_page_is_personal(result, report, tmp_path):
    command = ["report", str(result), "--out", str(tmp_path / "page.html"), "--no-images"]
    assert CliRunner().invoke(build_app(), command).exit_code == 0
    with np.load(result / "arrays.npz") as arrays:
        keys = {key for name in arrays.files if name.endswith("/names") for key in arrays[name].tolist()}
    names = {*keys, *PEOPLE, *(part for name in PEOPLE for part in re.split("[_ ]", name))}
    assert len(names) > 30 + len(PEOPLE)
    without = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert {*PEOPLE[:3], "Ada"} <= {name for name in names if name in report}
    assert {name for name in names if name in without} == set()
    for private in (*("<img", "data:image", "images of the data", ".csv", ".png", ".jpg", "/home", str(tmp_path)),):
        assert private not in without
    # The numbers and the warnings are all there.
    assert "1 genuine pairs consist of the same image twice, the first is …" in without
    assert all(f'<section id="{section}">' in without for section in SECTIONS)
    # The glossary has the terms of the page, and no others.
    before, glossary = without.split('<section id="glossary">')
    listed = set(re.findall(r"<dt>(.*?)</dt>", glossary))
    assert {"FMR", "FNMR", "AUROC", "EER", "TNR", "FPIR", "Error versus reject", "Percentile"} <= listed
    assert not {"p-value", "Percentage point"} & listed
    text = re.sub(r"<style>.*?</style>|<[^>]*>", " ", before, flags=re.DOTALL)
    assert not re.search(r"\b(TAR|FAR)\b", text)


def test_files_in_notes_are_hidden_however_long_the_words_are(result):
    read, _ = load_result(result)
    # Two hundred thousand letters took minutes.
    word = "a" * 200_000
    section = read.of_kind("verification")["pairs"]
    section.notes = [word, f"{word}/1 of a/b, x.png; 1.5 and end.", "a . b"]
    (subject,) = impersonal([SavedResult("model", result, read, {})])
    assert subject.result.of_kind("verification")["pairs"].notes == [word, "… of … … … and end.", "a . b"]


def test_models_and_runs_of_one_name_are_numbered_without_their_folders(tmp_path, result):
    for parent in ("Ada", "Grace"):
        (tmp_path / parent / "run").mkdir(parents=True)
        write_log(tmp_path / parent / "run", 2)
    folders = [tmp_path / "Ada" / "run", tmp_path / "Grace" / "run"]
    page = page_of(*folders, images=False)
    assert all(f">{label}<" in page for label in ("run (1)", "run (2)"))
    assert not re.search("result/|Ada|Grace", page)


def write_log(run, lines):
    """The log of a short training, logged so many times."""
    run.mkdir(parents=True, exist_ok=True)
    logged = [
        entry
        for epoch in range(1, lines + 1)
        for entry in (
            {
                "kind": "train",
                "epoch": epoch,
                "cross_entropy": 12.3456,
                "v_p5": 0.5,
                "v_p50": 1.25,
                "v_p95": 2,
            },
            {
                "kind": "validation",
                "epoch": epoch,
                "name": "lfw",
                "accuracy": 0.75,
                "tar_at_far_0.1": 0.9,
                "tar_at_far_0.001": 0.8,
                "tar_at_far_1e-05": 0.5,
            },
        )
    ]
    (run / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in logged))


def test_a_training_begins_with_what_its_last_validation_reached(tmp_path):
    write_log(tmp_path / "run", 1)
    page = page_of(tmp_path / "run")
    # A point is no curve.
    assert "<svg" not in page
    reached = "it reaches verification accuracy 75.00% and FNMR 20.00% at FMR 0.1% on lfw, its validation."
    assert f"<dt>training</dt><dd>After 1 epoch {reached}</dd>" in page
    write_log(tmp_path / "run", 2)
    quality = {"kind": "validation", "epoch": 2.5, "name": "people", "area": 0.61234}
    start = {"kind": "verdict", "epoch": 2.5, "text": "better than facerts-small: by 0.0100"}
    with (tmp_path / "run" / "log.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in (quality, start))
    page = page_of(tmp_path / "run")
    assert page.count("<svg") == 3
    area = "After 2.5 epochs it reaches area 0.612 below error versus reject (1 at random, lower is better) on people"
    for said in (f"After 2 epochs {reached}", area, "It is better than facerts-small: by 0.0100."):
        assert said in page


def test_a_training_of_another_model_than_the_results_is_called_so(result, tmp_path):
    """By the hash of the recipe, which models carry."""
    run, measured = tmp_path / "run", tmp_path / "measured"
    write_log(run, 2)
    (run / "recipe.yaml").write_text("name: mine\n")
    measured.mkdir()
    (measured / "arrays.npz").write_bytes((result / "arrays.npz").read_bytes())
    content = json.loads((result / "result.json").read_text(encoding="utf-8")) | {"sections": {}}

    def training(recipe, *folders):
        content["model"] = {"name": "theirs", "sha256": "0" * 64, "method": "rts", "recipe_sha256": recipe}
        (measured / "result.json").write_text(json.dumps(content), encoding="utf-8")
        return page_of(*folders).split('<section id="training">')[1].split("</section>")[0]

    mine = hashlib.sha256(b"name: mine\n").hexdigest()
    another = "run is the training of another model than theirs"
    unknown = "Whether theirs came from the training run is unknown"
    for recipe, said in (("1" * 64, another), ("", unknown), (mine, None)):
        shown = training(recipe, measured, run)
        assert [text for text in (another, unknown) if text in shown] == [text for text in (said,) if text]
    # At the top of the section.
    assert training("1" * 64, measured, run).index(another) < shown.index("<svg")
    for file in ("log.jsonl", "recipe.yaml"):
        (measured / file).write_bytes((run / file).read_bytes())
    own = "The training in the folder of theirs&#39;s results is that of another model"
    assert own in training("1" * 64, measured)
    assert not any(own in training(recipe, measured) for recipe in (mine, ""))


def test_a_benchmark_without_a_single_error_has_no_empty_det_curve(result, tmp_path):
    (tmp_path / "result.json").write_bytes((result / "result.json").read_bytes())
    with np.load(result / "arrays.npz") as arrays:
        kept = {name: arrays[name] for name in arrays.files}
    for name in kept:
        if name.startswith("verification") and name.endswith("fnmr"):
            kept[name] = np.zeros_like(kept[name])
    np.savez(tmp_path / "arrays.npz", **kept)
    # Beside another model, and one that is given twice.
    assert "DET curve: FNMR at every FMR" in page_of(result, tmp_path, result)
    assert "DET curve: FNMR at every FMR" not in page_of(tmp_path)


@pytest.mark.parametrize(
    ("ends", "shown"),
    [((0.2476, 0.9294), "78% [25, 93]"), ((0.75, 0.81), "78.0% [75.0, 81.0]"), (None, "78.00%")],
)
def test_tables_have_no_digits_that_an_interval_leaves_no_meaning(ends, shown):
    assert measured(0.78, ends, DIGITS) == shown


@pytest.mark.parametrize(
    ("low", "high"),
    [(1e-7, 1), (1e-3, 0.3), (2e-3, 0.7), (0.1, 1), (0.15, 0.9), (0.3, 0.35), (0.02, 0.07), (0.9, 1)],
)
def test_labels_of_logarithmic_axes_are_there_and_apart(low, high):
    ticks = np.array(log_ticks(low, high))
    assert 3 <= len(ticks) <= 6
    assert ((ticks >= low) & (ticks <= high * (1 + 1e-9))).all()
    # A label is about a tenth of the figure's width.
    assert (np.diff(np.log(ticks)) > 0.1 * np.log(high / low)).all()


def test_a_legend_of_many_lines_hides_none_of_them():
    for lines, inside in ((2, True), (5, False)):
        figure, axes = new_figure()
        for number in range(lines):
            axes.plot([0, 1], [number, number], label=f"a model of a long name, {number}")
        legend(axes)
        assert (axes.get_legend() is not None) == inside
        for below in figure.legends:
            figure.draw_without_rendering()
            box, room = below.get_window_extent(), figure.bbox
            assert not box.overlaps(axes.get_window_extent())
            assert room.x0 <= box.x0 < box.x1 <= room.x1


def test_few_values_are_drawn_in_few_bins():
    assert [bins_of(values, 80) for values in (3, 100, 10_000)] == [8, 20, 80]


def test_hostile_and_broken_folders_are_named(result, tmp_path):
    with pytest.raises(DataError, match=r"neither result\.json nor log\.jsonl"):
        write_report([tmp_path], tmp_path / "page.html")
    (tmp_path / "log.jsonl").write_text('{"kind": "train", "epoch": 1}\n{broken\n')
    with pytest.raises(DataError, match=r"log\.jsonl, line 2"):
        write_report([tmp_path], tmp_path / "page.html")
    (tmp_path / "result.json").write_text((result / "result.json").read_text())
    whole = (result / "arrays.npz").read_bytes()
    (tmp_path / "arrays.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"arrays\.npz: not an \.npz file, or a broken one"):
        write_report([tmp_path], tmp_path / "page.html")
    np.savez(tmp_path / "arrays.npz", evil=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match=r"arrays\.npz: .* cannot be read"):
        write_report([tmp_path], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_axes_of_rates_end_at_100_percent():
    for scale, low in (("linear", 0.0), ("log", 1e-7)):
        figure, axes = new_figure()
        axes.set(xscale=scale, yscale=scale)
        axes.plot([low, 1], [low, 1])
        axes.margins(0.2)
        assert axes.get_ylim()[1] > 1
        rate_axes(axes, "xy")
        assert axes.get_xlim()[1] == axes.get_ylim()[1] == 1
        labels = re.findall(r">([\d.]+)%</text>", svg(figure))
        assert labels.count("100") == 2
        # Neither exponents nor too many of them.
        assert 4 <= len(set(labels)) <= 7


def test_terms_are_found_in_what_readers_see():
    terms = terms_of("<style>.EER {}</style><p title='FPIR'>At 1&nbsp;% FMR</p>")
    assert terms == {"FMR": TERMS["FMR"]}


def test_nothing_is_wider_than_a_phone(page, result, tmp_path):
    write_report([result, result], tmp_path / "page.html")
    page.goto((tmp_path / "page.html").as_uri())
    for width in (390, 800, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
        wider = page.evaluate(
            """[...document.querySelectorAll('body *')].filter((element) => !element.closest('svg')
              && element.getBoundingClientRect().right > innerWidth + 1)
              .map((element) => element.outerHTML.slice(0, 80))"""
        )
        assert wider == []
        assert page.evaluate("document.documentElement.scrollWidth") == width
