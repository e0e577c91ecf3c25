"""eval/any_face.py: shares of faces kept and called no face, and how well outputs separate faces from pets."""

from __future__ import annotations

import numpy as np

from facerts.datasets.synthetic import draw_face
from facerts.embedding.onnx_embedder import OnnxQuality
from facerts.hub.find import find_model
from tests.scripts import load_script

script = load_script("any_face")


def test_outputs_are_those_of_the_model_in_batches(monkeypatch):
    crops = np.stack([draw_face(person, 0) for person in range(5)])
    model = OnnxQuality(find_model("facerts-quality"))
    whole = model.tensors(crops)
    monkeypatch.setattr(script, "BATCH", 2)
    found = script.outputs(model, crops)
    assert set(found) == {"quality", "not_a_face", "covered"}
    np.testing.assert_allclose(found["quality"], model.quality_of(whole), atol=1e-5)
    np.testing.assert_allclose(found["covered"], whole["covered"].reshape(-1), atol=1e-4)


def test_a_share_is_in_percent_with_wilsons_interval():
    # Wilson's interval of 1 in 4, by hand: center (1 + 1.92) / (4 + 3.84).
    assert script.share(np.array([True, False, False, False])) == "25.00 [4.56, 69.94]"


def test_faces_are_separated_from_pets_by_each_output():
    of_faces = {"quality": np.array([0.9, 0.8, 0.4]), "not_a_face": np.array([-3.0, -2.0, 1.0])}
    of_pets = {"quality": np.array([0.5, 0.1]), "not_a_face": np.array([0.0, 2.0])}
    names = ("LFW", "All-Age-Faces", "RAF-DB as it comes")
    rows = script.pets({**dict.fromkeys(names, of_faces), "pets": of_pets})
    assert [row[0] for row in rows] == [*names, "all three"]
    # Of six pairs, five are in the right order by either output.
    assert {tuple(row[1::2]) for row in rows} == {("0.8333", "0.8333")}
    without = {"quality": of_pets["quality"]}
    assert script.pets({**dict.fromkeys(names, of_faces), "pets": without})[0][1:] == ["–", "–", "0.8333"]
