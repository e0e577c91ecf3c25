"""The folder that ``facerts web`` writes."""

import hashlib
import json
import zipfile

import numpy as np
import onnxruntime
import pytest

from facerts.errors import Error
from facerts.images.align import TEMPLATE
from facerts.scoring import reasons
from facerts.web import write_site
from tests.command import printed_json


def test_the_folder_has_what_its_description_names(site):
    described = json.loads((site / "facerts.json").read_text())
    names = [model["name"] for model in described["qualities"]]
    assert names == ["facerts-quality", "facerts-quality-int8"]
    for model in [*described["qualities"], described["recognizer"], described["detector"]]:
        content = (site / model["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == model["sha256"]
    for file in described["runtime"].values():
        assert (site / file).is_file()
    assert described["template"] == TEMPLATE.tolist()
    assert described["reasons"]["max_yaw"] == reasons.MAX_YAW
    assert described["qualities"][0]["description"]["thresholds"]["0.95"]["quality"] == pytest.approx(0.5127, abs=1e-4)
    # Nothing of the service, and nothing that the browser would not find.
    assert not list(site.glob("service.*"))


def test_the_detector_takes_photos_of_any_size(site):
    described = json.loads((site / "facerts.json").read_text())
    session = onnxruntime.InferenceSession(site / described["detector"]["file"])
    (scores, *_) = session.run(["cls_32"], {"input": np.zeros((1, 3, 64, 160), np.float32)})
    assert scores.shape == (1, 2 * 5, 1)


def test_the_service_worker_lists_every_file_and_changes_with_any(site, tmp_path):
    first = (site / "service-worker.js").read_text()
    listed = json.loads(first.partition("self.site = ")[2].partition(";\n")[0])
    assert set(listed["files"]) == {path.name for path in site.iterdir()} - {"service-worker.js"}
    write_site(tmp_path / "other")
    second = (tmp_path / "other" / "service-worker.js").read_text()
    assert json.loads(second.partition("self.site = ")[2].partition(";\n")[0])["version"] != listed["version"]
    write_site(tmp_path / "again", "facerts-small")
    assert (tmp_path / "again" / "service-worker.js").read_text() == first


def test_other_files_are_left_alone_and_an_own_folder_is_brought_up_to_date(tmp_path):
    write_site(tmp_path / "site")
    (tmp_path / "site" / "facerts.js").write_text("old")
    write_site(tmp_path / "site")
    assert (tmp_path / "site" / "facerts.js").read_text() != "old"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("mine")
    with pytest.raises(Error, match="mine has other files; give a new folder"):
        write_site(tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["index.html"]


def test_a_recognizer_that_no_browser_loads_is_refused_before_anything_is_written(tmp_path):
    with zipfile.ZipFile(tmp_path / "pack.zip", "w") as pack:
        pack.writestr("det.onnx", b"no model")
    with pytest.raises(Error, match=r"pack\.zip"):
        write_site(tmp_path / "site", tmp_path / "pack.zip")
    with pytest.raises(Error, match="no model 'facerts-smal', did you mean 'facerts-small'"):
        write_site(tmp_path / "site", "facerts-smal")
    assert not (tmp_path / "site").exists()


def test_the_command_says_what_it_wrote(tmp_path, capsys):
    said = printed_json(capsys, "web", "--out", tmp_path / "site")
    sizes = [path.stat().st_size for path in (tmp_path / "site").iterdir()]
    assert (said["files"], said["bytes"]) == (len(sizes), sum(sizes))
    assert said["bytes_compressed"] < 6_000_000
