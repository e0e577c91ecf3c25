"""Scores from CSV files."""

import numpy as np
import pytest

from facerts.datasets import open_source
from facerts.errors import DataError
from facerts.evaluation.score_table import read_scores


def write(folder, text):
    path = folder / "scores.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_column_of_numbers_is_a_score(scores, drawn_faces):
    table, source = read_scores(scores), open_source(drawn_faces)
    assert table.columns == ["noise", "flat"]
    expected = np.random.default_rng(0).random(len(source))
    np.testing.assert_allclose(table.outputs(source).extras["noise"], expected, rtol=1e-6)


def test_of_the_rows_of_facerts_score_only_the_quality_is_read(tmp_path):
    path = write(tmp_path, "path,face,quality,uncertainty,error\na.png,0,1.5,0.2,\nb.png,0,-2,7,\n")
    assert read_scores(path).columns == ["quality"]
    assert read_scores(path, "uncertainty").columns == ["uncertainty"]


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("score\n1\n", None, "no column 'image'"),
        ("image,score\n", None, "no rows"),
        ("image,score\na.png,1\n", "sharpness", "no score 'sharpness', only image, score"),
        ("image,score\na.png,1\n", "image", "no score 'image'"),
        ("image,remark\na.png,good\n", None, "no column of numbers"),
        ("image,score\na.png,1\nb.png,\n", None, "score of b.png is '', not a number"),
        ("image,score\na.png,1\nb.png,nan\n", None, "score of b.png is not a finite number"),
        ("image,score\na.png,1e60\n", None, "score of a.png is not a finite number"),
        ("image,score\na.png\n", None, "line 2: 1 fields, but the header has 2"),
        ("image,score,score\na.png,1,2\n", None, "same name"),
        ('image,score\n"a.png,1\n', None, "line 2: not a CSV file"),
        ("image,score\na.png,1\na.png,2\n", None, "both named a.png"),
    ],
)
def test_unusable_files_are_refused(tmp_path, text, column, message):
    with pytest.raises(DataError, match=message) as refused:
        read_scores(write(tmp_path, text), column)
    assert "scores.csv" in str(refused.value)


def test_missing_and_binary_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_scores(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"image,score\n\xff\xfe\x00,1\n")
    with pytest.raises(DataError, match=r"binary\.csv: not UTF-8 text"):
        read_scores(tmp_path / "binary.csv")
