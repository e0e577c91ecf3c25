"""A network without embedding, which learns the quality alone: training, validation and export."""

from itertools import combinations

import numpy as np
import pytest
import torch

from facerts.datasets import open_source
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.embedding import load_embedder
from facerts.embedding.onnx_embedder import OnnxQuality
from facerts.errors import DataError, Error
from facerts.evaluation.while_training import NetworkEmbedder, to_network_input
from facerts.training.checkpoint import load_network, read_file
from facerts.training.export import export_run
from facerts.training.learner import Learner
from facerts.training.loader import TrainingData
from facerts.training.loop import train
from facerts.training.teachers import open_teachers
from facerts.training.validation import TeachersErrors

TEACHER = "teacher={{models: {}, method_embedding: teachers, cosine: 0, similarities: 0, method: 1}}"
ALONE = ("backbone={name: patch8, width: 0.25, embedding_size: 12, embedding: false}", "data.augmentation.views=2")


SHORT = ("optim.epochs=1", "optim.milestones=[]")
SMALL = (*ALONE, "data.holdout_identities=4", "optim.batch_size=8", "optim.average=0.9")


def test_it_is_trained_validated_exported_and_gives_a_quality(make_recipe, teacher, tmp_path, capsys, crops):
    train(make_recipe(TEACHER.format(teacher), *SMALL), tmp_path / "run")
    printed = capsys.readouterr().err
    assert "no embedding" in printed
    assert "area_teacher" in printed
    assert "facerts score PHOTOS/ --quality tiny.onnx" in printed
    trained = load_network(tmp_path / "run")
    parity = export_run(tmp_path / "run", tmp_path / "q.onnx", precision="fp16").parity
    assert parity.cosine is None
    assert parity.quality_error is not None
    exported = OnnxQuality(tmp_path / "q.onnx")
    assert set(exported.description.outputs) == {"quality", "uncertainty", "log_scale"}
    assert exported.description.embedding_size is None
    expected = NetworkEmbedder(trained.network, trained.loss.score)(crops).quality
    # Weights in 16 bits have eleven binary digits; a sum of large terms may be near zero.
    assert np.ptp(expected) > 0.01
    np.testing.assert_allclose(exported(crops), expected, rtol=1e-3, atol=1e-3 * np.ptp(expected))
    with pytest.raises(Error, match="embedding"):
        load_embedder(tmp_path / "q.onnx")
    with pytest.raises(Error, match="the network has no embedding, so there is nothing"):
        export_run(tmp_path / "run", tmp_path / "e.onnx", embedding_only=True)
    assert not (tmp_path / "e.onnx").exists()


def test_an_embedding_that_is_learned_beside_it_stays_in_training(make_recipe, teacher, tmp_path, crops):
    beside = TEACHER.format(teacher).replace("cosine: 0", "cosine: 1, target: view")
    alone, both = (make_recipe(settings, *SMALL, *SHORT) for settings in (TEACHER.format(teacher), beside))
    for name, recipe in (("alone", alone), ("both", both)):
        train(recipe, tmp_path / name)
        assert ("embedding.0.weight" in read_file(tmp_path / name)["network"]) == (recipe is both)
    trained, other = (load_network(tmp_path / name).network for name in ("both", "alone"))
    assert trained.embedding_size == 0
    assert "embedding.0.weight" not in trained.state_dict()
    # What it learns to embed changes the trunk.
    assert not torch.allclose(*(network.state_dict()["trunk.stem.0.weight"] for network in (trained, other)))
    export_run(tmp_path / "both", tmp_path / "both.onnx")
    assert "embedding" not in OnnxQuality(tmp_path / "both.onnx").description.outputs
    # A quality that is exported goes on learning, with an embedding that starts anew.
    onward = make_recipe(beside, *SMALL, f"backbone.weights={tmp_path / 'both.onnx'}")
    network = Learner(onward, 4, source=TrainingData(onward).source).network.eval()
    images = to_network_input(torch.from_numpy(crops))
    with torch.no_grad():
        torch.testing.assert_close(network(images)["log_scale"], trained(images)["log_scale"], rtol=1e-4, atol=1e-4)
        assert network(images)["embedding"].shape == (len(crops), 12)


@pytest.mark.parametrize("cosine", [0, 1])
def test_a_head_that_would_read_the_embedding_reads_the_features(make_recipe, teacher, tmp_path, crops, cosine):
    alone = make_recipe(
        TEACHER.format(teacher).replace("cosine: 0", f"cosine: {cosine}, target: view"), *ALONE, "method=crfiqa",
        "optim.batch_size=8", *SHORT,
    )  # fmt: skip
    train(alone, tmp_path / "run")
    network = load_network(tmp_path / "run").network
    assert network.reads == {"certainty_ratio": "features"}
    images = to_network_input(torch.from_numpy(crops))
    with torch.no_grad():
        (layer,) = network.heads["certainty_ratio"]
        expected = network.trunk(images) @ layer.weight[0] + layer.bias
        torch.testing.assert_close(network(images)["certainty_ratio"].squeeze(1), expected)


def test_variances_of_the_teachers_embeddings_are_learned_by_the_whole_network(make_recipe, teacher, tmp_path):
    pfe = ("method=pfe", "backbone.weights=null", "data.per_identity=2", "optim.batch_size=8", *SHORT)
    trunks = []
    for rate in ("1e-3", "1e-2"):
        train(make_recipe(TEACHER.format(teacher), *ALONE, *pfe, f"optim.lr={rate}"), tmp_path / rate)
        trunks.append(load_network(tmp_path / rate).network.state_dict())
    assert not torch.allclose(*(trunk["trunk.stem.0.weight"] for trunk in trunks))


def test_too_few_people_to_measure_it_on_are_refused(tmp_path, teacher):
    write_synthetic_faces(tmp_path / "people", identities=2, images=2)
    with pytest.raises(DataError, match="people: has only 4 pairs of two people; hold out more people"):
        TeachersErrors(open_source(tmp_path / "people"), open_teachers([str(teacher)]))


def test_its_area_is_that_of_a_loop_over_pairs(tmp_path, teacher):
    write_synthetic_faces(tmp_path / "people", identities=12, images=4, seed=3)
    source = open_source(tmp_path / "people")
    teachers = open_teachers([str(teacher)])
    crops = np.stack([source.crop(row) for row in range(len(source))])
    embedding = teachers[0](crops).embedding.astype(np.float64)
    quality = np.random.default_rng(0).permutation(len(source)) / 10

    class Scored:
        def __call__(self, crops):
            from facerts.embedding.outputs import FaceOutputs

            rows = [np.abs(crops[i].astype(int) - all_crops).sum(axis=(1, 2, 3)).argmin() for i in range(len(crops))]
            return FaceOutputs(np.zeros((len(rows), 0), np.float32), None, quality[rows].astype(np.float32), None, {})

    all_crops = crops.astype(int)
    genuine, impostor = [], []
    for i, j in combinations(range(len(source)), 2):
        score = float(embedding[i] @ embedding[j])
        if source.labels[i] == source.labels[j]:
            genuine.append((min(quality[i], quality[j]), score))
        else:
            impostor.append(score)
    impostor.sort(reverse=True)
    # 1,056 impostor pairs allow FMR 0.001: the threshold is just above the second highest score.
    assert 1000 <= len(impostor) < 2000
    errors = [score <= impostor[1] for _, score in sorted(genuine)]
    assert 0 < np.mean(errors) < 1
    # Mean FNMR over 0 to 30% rejected, in steps of 0.1%; equal qualities share their errors.
    values = np.array([q for q, _ in sorted(genuine)])
    shared = np.array([np.mean([e for e, q in zip(errors, values, strict=True) if q == value]) for value in values])
    curve = [shared[int(rate * len(shared) / 1000 + 1e-9) :].mean() for rate in range(301)]
    area = np.trapezoid(curve, dx=1 / 300) / np.mean(errors)
    measured = TeachersErrors(source, teachers).measure(Scored())
    assert measured["area_teacher"] == measured["area"] == pytest.approx(area, rel=1e-6)
