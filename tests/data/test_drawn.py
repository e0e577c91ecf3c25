from __future__ import annotations

from pathlib import Path

import numpy as np

from facerts.data import open_source
from facerts.data.drawn import draw_face, draw_non_face, write_drawn


def test_the_same_numbers_draw_the_same_picture() -> None:
    assert np.array_equal(draw_face(4, 2, seed=1), draw_face(4, 2, seed=1))
    assert np.array_equal(draw_non_face(3), draw_non_face(3))
    pictures = {draw(*key).tobytes() for draw in (draw_face,) for key in ((0, 0), (0, 1), (1, 0))} | {
        draw_face(0, 0, seed=1).tobytes(),
        draw_non_face(0).tobytes(),
    }
    assert len(pictures) == 5


def test_a_person_looks_more_like_himself_than_like_others() -> None:
    faces = np.stack([[draw_face(i, p) for p in range(6)] for i in range(12)]).astype(float)
    means = faces.reshape(12, 6, 7, 16, 7, 16, 3).mean(axis=(3, 5)).reshape(12, 6, -1)
    centre = means.mean(axis=1)
    within = np.linalg.norm(means - centre[:, None], axis=2).mean()
    between = np.linalg.norm(centre[:, None] - centre[None], axis=2)[np.triu_indices(12, 1)].mean()
    assert between > within


def test_written_people_are_a_folder_by_identity(tmp_path: Path) -> None:
    write_drawn(tmp_path, identities=2, pictures=3, first_identity=5)
    source = open_source(tmp_path)
    assert list(source.identities) == ["person_0005", "person_0006"]
    assert len(source) == 6
