"""The script of the README, as it stands there."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path

import numpy as np

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.images import encode_png

README = Path(__file__).parents[1] / "README.md"


def test_the_script_goes_from_photos_to_a_gallery(tmp_path, monkeypatch, capsys):
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
    (script,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(script.splitlines()) <= 15
    monkeypatch.chdir(tmp_path)
    exec(script, found := {})
    first, decision, person = capsys.readouterr().out.splitlines()
    assert first.startswith(("usable", "good"))
    assert decision.split()[1] in {"same", "different"}
    assert person == "match Anna"
    assert found["annotated"].shape[1] == 448
