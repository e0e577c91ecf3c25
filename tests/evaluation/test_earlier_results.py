"""Results as versions before the corruption benchmark had its name wrote them: ``earlier/result.json`` is one.

It was written by seven ``facerts evaluate`` commands on drawn faces; its arrays, which would be much larger, are drawn
anew here.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facerts.report.comparison import subjects_of, write_comparison_report
from numpy.typing import NDArray

from facerts.evaluation.compare import compare, compare_methods, methods_of
from facerts.evaluation.labeled import load_labeled
from facerts.evaluation.result_folder import ResultFolder, load_result
from facerts.evaluation.results import Result, Sections
from facerts.report import write_report
from tests.evaluation.conftest import Plain

EARLIER = Path(__file__).parent / "earlier" / "result.json"
RENAMED = {"ladder": "corruptions", "pictures": "images", "strength": "severity"}


def earlier() -> dict[str, Any]:
    return dict(json.loads(EARLIER.read_text(encoding="utf-8")))


def drawn_arrays(content: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Arrays under the names of earlier versions, of the lengths that the result says."""
    random = np.random.default_rng(0)
    arrays: dict[str, NDArray[Any]] = {}
    for name, section in content["verification"].items():
        if section["accuracy"] is None:
            continue
        pairs, images = section["pairs"], section["images"]
        same = np.arange(pairs) < section["genuine"]
        arrays |= {
            f"verification/{name}/{key}": array
            for key, array in {
                "scores": (same + random.normal(size=pairs)).astype(np.float32),
                "same": same,
                "pairs": random.integers(0, images, (pairs, 2)),
                "folds": np.arange(pairs) % 10,
                "roc_far": np.linspace(0, 1, 20, dtype=np.float32),
                "roc_tar": np.linspace(0, 1, 20, dtype=np.float32) ** 0.5,
                "names": np.array([f"{row}.jpg" for row in range(images)]),
                "quality": random.normal(size=images).astype(np.float32),
            }.items()
        }
    for source, images in (content["ood"]["in"] | content["ood"]["out"]).items():
        for score in content["ood"]["by"]:
            arrays[f"ood/{source}/{score}"] = random.normal(size=images).astype(np.float32)
    for source, section in content["ladder"].items():
        steps = ["clean", *(f"{kind}/{s:g}" for kind in section["kinds"] for s in section["strength"][1:])]
        for step in steps:
            values = random.normal(size=section["pictures"]).astype(np.float32)
            arrays[f"ladder/{source}/{step}/quality"] = values
    return arrays


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "earlier"
    folder.mkdir()
    shutil.copy(EARLIER, folder / "result.json")
    np.savez(folder / "arrays.npz", **drawn_arrays(earlier()))  # type: ignore[arg-type]
    return folder


def without(content: Any, *keys: str) -> Any:
    """The same, as versions wrote it that did not have these keys."""
    if isinstance(content, dict):
        return {key: without(value, *keys) for key, value in content.items() if key not in keys}
    return [without(value, *keys) for value in content] if isinstance(content, list) else content


def renamed(content: Any) -> Any:
    if isinstance(content, dict):
        return {RENAMED.get(key, key): renamed(value) for key, value in content.items()}
    return [renamed(value) for value in content] if isinstance(content, list) else content


def test_every_section_is_read_whole(folder: Path) -> None:
    result, arrays = load_result(folder)
    # There were no leagues yet.
    assert result.model_fields_set == set(Result.model_fields) - {"fiqa"}
    assert result.to_json() == renamed(earlier())
    assert "corruptions/others/blur/0.4/quality" in arrays
    assert not any(key.startswith("ladder/") for key in arrays)
    # What was stored is what these keys mean today.
    before = earlier()
    corruptions = result.corruptions["others"]
    assert corruptions.images == before["ladder"]["others"]["pictures"] == 8
    assert corruptions.severity == before["ladder"]["others"]["strength"]
    assert (
        result.verification["named"].tar_at_far["0.1"].value
        == (before["verification"]["named"]["tar_at_far"]["0.1"]["value"])
    )
    assert result.verification["ijbc (mean)"].accuracy is None


def test_results_without_the_keys_that_came_later_are_read(folder: Path) -> None:
    came_later = ("similarity", "notes", "excluded", "fnir_at_fpir")
    (folder / "result.json").write_text(json.dumps(without(earlier(), *came_later)), encoding="utf-8")
    result, _ = load_result(folder)
    assert result.verification["named"].similarity == result.reject["named"][0].similarity == "cosine"
    assert result.verification["named"].notes == result.calibration["named"].notes == []
    assert result.ood is not None
    assert result.ood.excluded is None
    assert result.identification["others"].searches[0].fnir_at_fpir == {}
    # What was not there is not made up when the folder is written again.
    assert result.to_json() == renamed(without(earlier(), *came_later))
    write_report([folder], folder / "page.html")


def test_scores_have_their_names_of_today(folder: Path) -> None:
    text = EARLIER.read_text(encoding="utf-8").replace('"sharpness"', '"neighbours"')
    (folder / "result.json").write_text(text, encoding="utf-8")
    before = drawn_arrays(json.loads(text))
    np.savez(folder / "arrays.npz", **before)  # type: ignore[arg-type]
    result, arrays = load_result(folder)
    assert result.ood is not None
    assert list(result.ood.by) == list(result.calibration["named"].by) == ["quality", "neighbors"]
    assert {curve.by for curve in result.reject["named"]} == {"quality", "neighbors"}
    assert list(result.corruptions["others"].kinds["blur"].by) == ["quality", "neighbors"]
    assert "ood/people/neighbors" in arrays
    assert "neighbours" not in json.dumps([result.to_json(), list(arrays)])
    write_report([folder], folder / "page.html")


def test_a_report_shows_it(folder: Path) -> None:
    write_report([folder], folder / "page.html")
    page = (folder / "page.html").read_text(encoding="utf-8")
    for kind in ("verification", "identification", "reject", "ood", "corruptions", "provenance"):
        assert f'<section id="{kind}">' in page
    assert "facerts evaluate ladder" in page


def test_comparisons_take_it(folder: Path) -> None:
    other = folder.with_name("other")
    shutil.copytree(folder, other)
    content = earlier()
    content["model"] |= {"name": "other", "sha256": "b" * 64}
    (other / "result.json").write_text(json.dumps(content), encoding="utf-8")
    comparison = compare([folder, other])
    assert comparison.verification["named"][0].auroc.value == 0
    assert comparison.ood[0].by["quality"].auroc.value == 0
    methods = methods_of(load_labeled([folder, other]))
    out = folder.with_name("compared")
    write_comparison_report(methods, subjects_of(methods), compare_methods(methods), out)
    assert (out / "blur_others.svg").is_file()


def test_a_section_that_is_added_leaves_the_earlier_ones_under_their_names_of_today(folder: Path) -> None:
    model = Plain(earlier()["model"]["name"], earlier()["model"]["sha256"])
    _, arrays = load_result(folder)
    ood = load_result(folder)[0].ood
    assert ood is not None
    added = ResultFolder(folder, model)
    added.add(Sections(ood=ood), {"people/quality": np.zeros(3)})
    added.write()
    written = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    for key in ("verification", "reject", "corruptions", "ood"):
        assert written[key] == renamed(earlier())[key]
    assert "ladder" not in written
    assert len(written["command"]) == len(earlier()["command"]) + 1
    again, kept = load_result(folder)
    assert again.to_json() == written
    assert kept.keys() - arrays.keys() == set()
    assert {key for key in kept if key.startswith("ood/")} == {"ood/people/quality"}


def test_both_versions_may_have_written_into_a_folder(folder: Path) -> None:
    content = earlier()
    content["corruptions"] = {"others": {**renamed(content["ladder"]["others"]), "seed": 7}}
    (folder / "result.json").write_text(json.dumps(content), encoding="utf-8")
    before = drawn_arrays(content)
    after = {
        key.replace("ladder/", "corruptions/"): array + 1 for key, array in before.items() if "ladder/" in key
    }
    np.savez(folder / "arrays.npz", **before, **after)  # type: ignore[arg-type]
    result, arrays = load_result(folder)
    assert result.corruptions["others"].seed == 7
    assert result.to_json() == {**content, "corruptions": content["corruptions"]}
    assert arrays.keys() == before.keys() | after.keys()
    for key, array in (before | after).items():
        np.testing.assert_array_equal(arrays[key], array)


def test_keys_of_later_versions_are_kept(folder: Path) -> None:
    content = earlier() | {"later": {"number": 1}}
    content["verification"]["named"]["later"] = [1, 2]
    (folder / "result.json").write_text(json.dumps(content), encoding="utf-8")
    result, _ = load_result(folder)
    assert result.to_json() == renamed(content)
