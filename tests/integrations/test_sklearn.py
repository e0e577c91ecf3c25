"""The scikit-learn transformer: scikit-learn's own checks, and pipelines on synthetic faces."""

import hashlib
import pickle
import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.errors import Error, ImageError, ModelError
from facerts.images import encode_png
from facerts.integrations.sklearn import FaceEmbedder
from tests.detectors import TWO_FACES
from tests.foreign import SIZE, slow_embedding, write_description, write_embedder

Crops = NDArray[np.uint8]


@pytest.fixture(scope="module")
def faces():
    """Six images of each of four people, and the names of the people."""
    crops = np.stack([draw_face(person, number) for person in range(4) for number in range(6)])
    return crops, np.repeat(["ann", "bob", "cid", "dan"], 6)


def render(table):
    """A random image for each row of numbers; equal rows give equal images."""
    if not isinstance(table, np.ndarray | list):
        raise TypeError(f"{type(table)} is not a table: A sparse matrix was passed")
    rows = np.asarray(table, dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError("Expected 2D array, got 1D array instead. Reshape your data")
    images = np.zeros((len(rows), 112, 112, 3), dtype=np.uint8)
    for row, image in zip(rows, images, strict=True):
        seed = int.from_bytes(hashlib.sha256(row.tobytes()).digest()[:8], "little")
        image[:] = np.random.default_rng(seed).integers(0, 256, image.shape)
    return images


class TableEmbedder(FaceEmbedder):
    """Embeds images rendered from tables of numbers, which scikit-learn's checks use."""

    def fit(self, X, y=None):  # noqa: N803
        super().fit(render(X), y)
        return self

    def transform(self, X):  # noqa: N803
        return super().transform(render(X))

    def score_samples(self, X):  # noqa: N803
        return super().score_samples(render(X))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.one_d_array = tags.input_tags.string = False
        return tags


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Skipping check check_array_api_input")
@pytest.mark.parametrize("quality", ["ignore", "column"])
def test_scikit_learns_own_checks_pass(model, quality):
    results = check_estimator(TableEmbedder(str(model), quality=quality))
    names = {result["check_name"] for result in results if result["status"] == "passed"}
    # Some of the checks that matter most.
    general = {"check_estimator_cloneable", "check_no_attributes_set_in_init", "check_estimators_pickle"}
    results_of = {"check_transformer_general", "check_methods_subset_invariance", "check_fit_idempotent"}
    assert names >= general | results_of


def test_paths_bytes_and_arrays_give_the_same_embeddings(model, faces, tmp_path):
    crops = faces[0][:3]
    paths = []
    for number, crop in enumerate(crops):
        paths.append(tmp_path / f"{number}.png")
        paths[-1].write_bytes(encode_png(crop))
    raw = slow_embedding(crops)
    expected = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    embedder = FaceEmbedder(model)
    for images in (
        paths,
        np.array([str(path) for path in paths]),
        np.array(paths, dtype=object),
        [path.read_bytes() for path in paths],
        list(crops),
        crops,
        [paths[0], paths[1].read_bytes(), crops[2]],
    ):
        embedding = embedder.transform(images)
        np.testing.assert_allclose(embedding, expected, atol=2e-6)
        assert embedding.dtype == np.float32
    assert embedder.transform([]).shape == embedder.transform(crops[:0]).shape == (0, SIZE)


def test_only_parameters_are_pickled_and_cloned_and_changed_ones_take_effect(model, faces, tmp_path):
    embedder = FaceEmbedder(model, quality="column").fit(faces[0])
    assert len(pickle.dumps(embedder)) < 2000
    other = clone(embedder)
    assert other.get_params() == embedder.get_params()
    assert embedder.scorer is embedder.scorer
    np.testing.assert_array_equal(other.transform(faces[0]), embedder.transform(faces[0]))
    smaller = write_description(write_embedder(tmp_path / "smaller.onnx", size=5))
    assert other.set_params(model=smaller, quality="ignore").transform(faces[0]).shape == (24, 5)


def test_quality_is_a_column_or_a_score(model, faces):
    crops = faces[0]
    expected = ((crops.astype(np.float64) - 127.5) / 127.5).mean(axis=(1, 2, 3))
    embedder = FaceEmbedder(model, quality="column")
    table = embedder.fit_transform(crops)
    assert table.shape == (24, SIZE + 1)
    np.testing.assert_allclose(table[:, -1], expected, atol=1e-5)
    np.testing.assert_allclose(FaceEmbedder(model).score_samples(crops), expected, atol=1e-5)
    assert list(embedder.get_feature_names_out()) == [*(f"embedding{n}" for n in range(SIZE)), "quality"]
    assert len(FaceEmbedder(model).get_feature_names_out()) == SIZE


def test_a_model_without_quality_has_no_such_column(tmp_path, faces):
    path = write_description(write_embedder(tmp_path / "plain.onnx"), quality="none")
    assert FaceEmbedder(path).fit_transform(faces[0]).shape == (24, SIZE)
    with pytest.raises(ModelError, match="plain has no quality"):
        FaceEmbedder(path, quality="column").fit(faces[0])
    with pytest.raises(ModelError, match="plain has no quality"):
        FaceEmbedder(path).score_samples(faces[0])


def test_an_unreadable_image_is_an_error_or_a_row_of_nan(model, faces, tmp_path):
    crops = faces[0]
    (tmp_path / "bad.png").write_bytes(b"no")
    images = [crops[0], tmp_path / "bad.png", tmp_path / "gone.png", crops[1][:50]]
    with pytest.raises(ImageError, match=r"bad\.png.*set unreadable='nan'"):
        FaceEmbedder(model, detector="none").transform(images)
    embedder = FaceEmbedder(model, detector="none", quality="column", unreadable="nan")
    table = embedder.transform(images)
    np.testing.assert_array_equal(np.isnan(table).all(axis=1), [False, True, True, True])
    assert np.isfinite(table[0]).all()
    np.testing.assert_array_equal(np.isnan(embedder.score_samples(images)), [False, True, True, True])


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ("a.jpg", "must be a list or column of paths.*not 'a.jpg'"),
        (b"abc", "must be a list or column"),
        (np.zeros((112, 112, 3), np.uint8), r"not of shape \(112, 112, 3\)"),
        (np.array([["a.jpg"]]), r"not of shape \(1, 1\)"),
        (np.zeros((2, 112, 112, 3)), r"^image 0 must be .*not \(112, 112, 3\) float64"),
        (np.zeros((2, 112, 112), np.uint8), r"not of shape \(2, 112, 112\)"),
        ([np.zeros((112, 112, 3), np.uint8), 7], "^image 1 must be .*not int"),
    ],
)
def test_invalid_input_is_always_an_error(model, images, message):
    for unreadable in ("error", "nan"):
        with pytest.raises(Error, match=message):
            FaceEmbedder(model, unreadable=unreadable).transform(images)


def test_an_invalid_parameter_is_named_by_fit(model, faces):
    for name in ("quality", "unreadable"):
        with pytest.raises(Error, match=f"{name} cannot be 'coulmn'"):
            FaceEmbedder(model).set_params(**{name: "coulmn"}).fit(faces[0])


def test_the_largest_face_of_a_photo_is_embedded(model, faces, monkeypatch):
    crops = faces[0]
    embedder = FaceEmbedder(model, unreadable="nan")
    monkeypatch.setattr(embedder.scorer, "detector", TWO_FACES)
    photo = np.concatenate([crops[7], crops[0]], axis=1)
    table = embedder.transform([photo, crops[0]])
    np.testing.assert_allclose(table[0], facerts.load(model).embed(crops[7:8]).embedding[0], atol=1e-6)
    assert np.isnan(table[1]).all()
    with pytest.raises(ImageError, match="image 1: no face found"):
        embedder.set_params(unreadable="error").transform([photo, crops[0]])


def test_without_scikit_learn_the_error_names_the_extra():
    code = "import sys; sys.modules['sklearn'] = None; import facerts.integrations.sklearn"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (
        "facerts.integrations.sklearn needs scikit-learn: in your clone of facerts, pip install '.[cpu]'" in ran.stderr
    )


@pytest.mark.slow
def test_pipelines_can_be_searched_pickled_and_run_in_other_processes(model, faces):
    crops, names = faces
    people = make_pipeline(FaceEmbedder(model), KNeighborsClassifier(1, metric="cosine"))
    assert cross_val_score(people, crops, names, cv=3, n_jobs=2).mean() > 0.5
    restored = pickle.loads(pickle.dumps(people.fit(crops, names)))
    np.testing.assert_array_equal(restored.predict(crops), names)
    parameters = {"faceembedder__quality": ["ignore", "column"]}
    search = GridSearchCV(people, parameters, cv=2, error_score="raise").fit(crops, names)
    assert {"faceembedder__quality": "column"} in search.cv_results_["params"]
