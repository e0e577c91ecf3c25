"""insightface and uniface, in an environment of their own, with a model of facerts."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from facerts.datasets.synthetic import draw_face
from facerts.images import encode_jpeg
from tests.foreign import write_embedder

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "check_integrations.py"
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8"), re.DOTALL)


def rows(*arguments):
    """The comparisons of the tool."""
    python = os.environ.get("FACERTS_INTEGRATIONS_PYTHON")
    if python is None:
        pytest.skip("insightface and uniface are in an environment of their own: make test-integrations")
    command = [sys.executable, TOOL, "--json", "--python", python, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.stdout, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.slow
@pytest.mark.integrations
def test_insightface_and_uniface_load_our_models_and_get_our_embeddings(request):
    real = photos(request)
    comparisons = rows(*real)
    assert [row for row in comparisons if not row["ok"]] == []
    compared = {(row["package"].split()[0], row["compared"]): row["number"] for row in comparisons}
    for package in ("insightface", "uniface"):
        assert compared[(package, "synthetic crops")] == 24
        assert compared[(package, "synthetic faces in scenes")] == 12
        assert compared[(package, "examples of the documentation")] >= 1
    assert compared[("insightface", "add_quality, its Face")] == 12
    if real:
        assert compared[("insightface", "faces in photos")] >= 10
        assert compared[("insightface", "found by FaceAnalysis of both")] >= 10


def photos(request):
    """Real photos and a detector for them, if available."""
    try:
        data, models = (request.getfixturevalue(name) for name in ("facerts_data", "reference_models"))
    except pytest.skip.Exception:
        return []
    return ["--photos", data / "photos" / "lfw", "--detector", models / "scrfd_500m_kps.onnx"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "block",
    [block for block in BLOCKS if not re.search(r"^from (insightface|uniface)\b", block, re.MULTILINE)],
    ids=lambda block: block.strip().splitlines()[-1],
)
def test_examples_in_the_documentation_run(block, tmp_path, monkeypatch, request):
    if "FaceAnalysis(" in block:
        pack = tmp_path / ".insightface" / "models" / "buffalo_l"
        pack.mkdir(parents=True)
        write_embedder(pack / "w600k_r50.onnx", size=128)
        for copy in (tmp_path / "scrfd.onnx", pack / "det_10g.onnx"):
            shutil.copy(request.getfixturevalue("reference_models") / "scrfd_500m_kps.onnx", copy)
        monkeypatch.setenv("HOME", str(tmp_path))
    scene = np.pad(draw_face(0, 0), ((60, 60), (60, 60), (0, 0)), mode="edge")
    (tmp_path / "photo.jpg").write_bytes(encode_jpeg(scene))
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs/integrations.md", "exec"), {})
