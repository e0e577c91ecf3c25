"""What pages show runs, and does what they say: the README's script, alignment on phones, and the notebooks."""

import importlib
import json
import re
import shlex
from itertools import count

import numpy as np
import onnxruntime
import pytest
import skimage.data

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.hub.find import find_model
from facerts.images import encode_png
from facerts.images.align import align
from tests.command import ROOT, run
from tests.scripts import TOOLS, load_script

SCRIPT = load_script("docs_notebook", TOOLS)
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in SCRIPT.PAGES}
NOTEBOOKS = {path.stem: path.with_suffix(".ipynb").read_text(encoding="utf-8") for path in SCRIPT.PAGES}


def test_the_script_of_the_readme_goes_from_photos_to_a_gallery(tmp_path, monkeypatch, capsys):
    quality = facerts.Quality()
    least = quality.threshold(0.95)
    good: dict[int, list[np.ndarray]] = {}
    for person in count():
        images = np.stack([draw_face(person, number) for number in range(6)])
        good[person] = [image for image, value in zip(images, quality(images), strict=True) if value >= least]
        anna = [each for each in good.values() if len(each) > 1]
        others = [each for each in good.values() if each and each is not (anna or [None])[0]]
        if anna and others:
            break
    for name, image in zip("acb", [*anna[0][:2], others[0][0]], strict=True):
        (tmp_path / f"{name}.jpg").write_bytes(encode_png(image))
    (script,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(script.splitlines()) <= 15
    monkeypatch.chdir(tmp_path)
    exec(script, found := {})
    first, decision, person = capsys.readouterr().out.splitlines()
    assert first.startswith(("usable", "good"))
    assert decision.split()[1] in {"same", "different"}
    assert person == "match Anna"
    assert found["annotated"].shape[1] == 448


def test_the_page_of_phones_aligns_and_accepts_as_facerts_does():
    """What docs/mobile.md says of the model: its input, its thresholds, and an alignment that gives the same scores."""
    page = (ROOT / "docs" / "mobile.md").read_text(encoding="utf-8")
    name, names = "facerts-quality-int8", {}
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], names)
    photo = skimage.data.astronaut()
    scorer = facerts.load(quality=name)
    (face,) = scorer.faces(photo)
    points = np.array(face.points)
    crop = names["aligned"](photo, points)
    assert np.abs(crop - align(photo, points)).mean() < 1
    beyond = points - [220, 0]  # half of the crop
    assert np.abs(names["aligned"](photo, beyond) - align(photo, beyond)).mean() < 1
    session = onnxruntime.InferenceSession(find_model(name))
    inputs = {"image": ((crop - 127.5) / 127.5).transpose(2, 0, 1)[None].astype(np.float32)}
    quality, not_a_face = session.run(["quality", "not_a_face"], inputs)
    assert quality[0] == pytest.approx(face.quality, abs=0.01)
    assert not_a_face[0] <= 0
    (minimum,) = re.findall(r"`quality` at least ([\d.]+)", page)
    assert minimum == f"{scorer.quality.opened.description.thresholds['0.95'].quality:.3f}"


def cells(name):
    found = json.loads(NOTEBOOKS[name])["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


def execute(name):
    names = {}
    for code in cells(name):
        exec(compile(code, "cell", "exec"), names)


@pytest.fixture
def _importable_torchvision():
    """timm imports torchvision, whose own operators are missing where PyTorch is of another build."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    operators = torch.library.Library("torchvision", "FRAGMENT")
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return operators  # which last as long as this


def test_the_notebook_is_the_page():
    for name, page in PAGES.items():
        assert SCRIPT.notebook(page) == NOTEBOOKS[name], "python tools/docs_notebook.py writes it again"


def test_a_loop_takes_ten_lines():
    (loop,) = (code for code in cells("losses") if "optim.SGD" in code)
    lines = [line for line in loop.splitlines() if line and not line.startswith(("import ", "from "))]
    assert len(lines) == 10


def test_the_first_hour_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    execute("first-hour")
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(", ")[0] for line in printed[1:3]] == ["different", "same"]
    assert printed[0].startswith("good percentile 3")
    assert float(printed[3].split()[2]) > 0.7
    assert "similarity to the original" in (tmp_path / "figure.svg").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("_importable_torchvision")
def test_the_losses_train_export_and_agree(tmp_path, monkeypatch, capsys):
    import torch

    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    execute("losses")
    for command in re.findall(r"^facerts .*", PAGES["losses"], re.MULTILINE):
        assert run(*shlex.split(command)[1:]) == 0
    printed = capsys.readouterr().out
    assert float(re.findall(r"^auroc +(\S+)", printed, re.MULTILINE)[0]) > 0.8
    same = re.findall(r"^(\d+\.\d{6}) (\d+\.\d{6})$", printed, re.MULTILINE)
    assert [float(mine) for mine, _ in same] == pytest.approx([float(theirs) for _, theirs in same], rel=1e-5)
    assert len(same) == 2
