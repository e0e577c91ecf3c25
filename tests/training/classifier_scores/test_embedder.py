"""A training run as an embedder: scores against explicit loops over the network, and errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from facerts.embedding.embed import embed_crops
from facerts.errors import Error, ModelError
from facerts.evaluation import embed_source
from facerts.evaluation.baselines import CLASSIFIER_SCORES as RESULT_NAMES
from facerts.training.classifier_scores import CLASSIFIER_SCORES, parse_score
from facerts.training.classifier_scores.classifier import Classifier, load_classifier
from facerts.training.classifier_scores.classifier_embedder import ClassifierEmbedder, load_run
from facerts.training.classifier_scores.ensemble import SoftmaxEnsemble
from facerts.training.classifier_scores.max_softmax import MaxSoftmax
from facerts.training.classifier_scores.mc_dropout import DEFAULT_RATE, keyed_masks
from facerts.training.loop import train
from facerts.training.network_embedder import NetworkEmbedder, to_network_input
from facerts.training.recipe import Recipe

Crops = NDArray[np.uint8]
MakeRecipe = Callable[..., Recipe]
FEW = ["mc_dropout:passes=5", "ser_fiq:passes=5"]


@pytest.fixture(scope="module")
def classifier(trained_run: Path) -> Classifier:
    return load_classifier(trained_run)


def scored(run: Path, crops: Crops, *scores: str) -> dict[str, NDArray[np.float32]]:
    return load_run(run, scores)(crops).extras


def logits_of(classifier: Classifier, embedding: NDArray[np.float64]) -> NDArray[np.float64]:
    """γ cos θ by hand; the fixture's γ is 16."""
    centers = classifier.centers.weight.double().numpy()
    unit = embedding / np.linalg.norm(embedding, axis=1, keepdims=True)
    return np.asarray(16 * unit @ (centers / np.linalg.norm(centers, axis=1, keepdims=True)).T)


def head(classifier: Classifier, features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Linear layer and BatchNorm of the embedding, by hand."""
    linear, norm = classifier.network.embedding
    raw = features @ linear.weight.double().numpy().T + linear.bias.double().numpy()
    mean, variance = norm.running_mean.double().numpy(), norm.running_var.double().numpy()
    return np.asarray((raw - mean) / np.sqrt(variance + norm.eps) + norm.bias.double().numpy())


def features_of(classifier: Classifier, crops: Crops) -> NDArray[np.float64]:
    with torch.no_grad():
        return classifier.network.trunk(to_network_input(torch.from_numpy(crops))).double().numpy()


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def test_the_registry_and_the_names_in_results_agree() -> None:
    assert {*CLASSIFIER_SCORES, "ensemble"} == set(RESULT_NAMES)


def test_scores_do_not_change_the_other_outputs(
    classifier: Classifier, trained_run: Path, crops: Crops
) -> None:
    outputs = load_run(
        trained_run,
        ["max_softmax", "max_logit", "energy", "odin", "newton_temperature", "perturbed_quality", *FEW],
    )(crops)
    plain = NetworkEmbedder(classifier.network, classifier.method)(crops)
    for name in ("embedding", "norm", "quality", "uncertainty"):
        np.testing.assert_array_equal(getattr(outputs, name), getattr(plain, name))
    assert set(outputs.extras) == {*plain.extras, *CLASSIFIER_SCORES}
    assert all(outputs.extras[name].shape == (len(crops),) for name in CLASSIFIER_SCORES)
    assert all(np.ptp(outputs.extras[name]) > 0 for name in CLASSIFIER_SCORES)


def test_max_softmax_max_logit_and_energy_are_those_of_scaled_cosines(
    classifier: Classifier, trained_run: Path, crops: Crops
) -> None:
    logits = logits_of(classifier, head(classifier, features_of(classifier, crops)))
    extras = scored(trained_run, crops, "max_softmax:temperature=2", "energy", "max_logit")
    np.testing.assert_allclose(extras["max_softmax"], np.log(softmax(logits / 2).max(axis=1)), rtol=1e-3)
    np.testing.assert_allclose(extras["max_logit"], logits.max(axis=1), rtol=1e-4)
    np.testing.assert_allclose(extras["energy"], np.log(np.exp(logits).sum(axis=1)), rtol=1e-4)


def test_mc_dropout_and_ser_fiq_against_a_loop_over_masks(
    classifier: Classifier, trained_run: Path, crops: Crops
) -> None:
    features = features_of(classifier, crops)
    masks = keyed_masks(5, features.shape[1], DEFAULT_RATE).numpy()
    passes = [head(classifier, features * mask / (1 - DEFAULT_RATE)) for mask in masks]
    extras = scored(trained_run, crops, *FEW)
    mean = sum(softmax(logits_of(classifier, embedding)) for embedding in passes) / 5
    np.testing.assert_allclose(extras["mc_dropout"], np.log(np.max(mean, axis=1)), rtol=1e-3)
    unit = [embedding / np.linalg.norm(embedding, axis=1, keepdims=True) for embedding in passes]
    distances = [np.linalg.norm(unit[i] - unit[j], axis=1) for i in range(5) for j in range(i)]
    np.testing.assert_allclose(extras["ser_fiq"], 2 / (1 + np.exp(np.mean(distances, axis=0))), rtol=1e-4)


def test_odin_without_perturbation_is_max_softmax_and_with_it_is_higher(
    trained_run: Path, crops: Crops
) -> None:
    still = scored(trained_run, crops, "odin:epsilon=0,temperature=10", "max_softmax:temperature=10")
    np.testing.assert_allclose(still["odin"], still["max_softmax"], rtol=1e-5)
    moved = scored(trained_run, crops, "odin:epsilon=0.0005,temperature=10")
    assert (moved["odin"] > still["odin"]).mean() > 0.9


def test_perturbation_increases_the_quality_of_each_image(trained_run: Path, crops: Crops) -> None:
    plain = load_run(trained_run)(crops).quality
    assert plain is not None
    still = scored(trained_run, crops, "perturbed_quality:epsilon=0")["perturbed_quality"]
    np.testing.assert_allclose(still, plain, atol=1e-5)
    moved = scored(trained_run, crops, "perturbed_quality:epsilon=0.0005")["perturbed_quality"]
    assert (moved > plain).mean() > 0.9
    alone = scored(trained_run, crops[2:3], "perturbed_quality:epsilon=0.0005")["perturbed_quality"]
    np.testing.assert_allclose(alone, moved[2:3], atol=0.02 * np.std(plain))


def test_masks_are_fixed_and_keep_their_share() -> None:
    masks = keyed_masks(100, 400, 0.3)
    assert masks.float().mean().item() == pytest.approx(0.7, abs=0.01)
    assert torch.equal(keyed_masks(7, 400, 0.3), masks[:7])
    assert len({tuple(mask.tolist()) for mask in masks}) == 100
    # Independent of one another: two masks agree where both keep or both drop.
    agreement = (masks[0] == masks[1:]).float().mean(dim=1)
    assert agreement.mean().item() == pytest.approx(0.7**2 + 0.3**2, abs=0.01)


def test_the_dropout_rate_is_that_of_the_run_by_default(classifier: Classifier, crops: Crops) -> None:
    recipe = classifier.recipe
    assert recipe.backbone.dropout == 0
    trained = recipe.model_copy(update={"backbone": recipe.backbone.model_copy(update={"dropout": 0.2})})

    def ser_fiq(text: str, recipe: Recipe) -> NDArray[np.float32]:
        return ClassifierEmbedder(replace(classifier, recipe=recipe), [parse_score(text)])(crops).extras[
            "ser_fiq"
        ]

    own = ser_fiq("ser_fiq:passes=4", trained)
    np.testing.assert_array_equal(own, ser_fiq("ser_fiq:passes=4,rate=0.2", recipe))
    default = ser_fiq("ser_fiq:passes=4", recipe)
    np.testing.assert_array_equal(default, ser_fiq("ser_fiq:passes=4,rate=0.5", trained))
    # Fewer features are dropped, so the passes agree better.
    assert own.mean() > default.mean()


def test_an_image_scores_the_same_in_any_batch(trained_run: Path, crops: Crops) -> None:
    names = ["max_softmax", "max_logit", "energy", "newton_temperature", *FEW]
    stepped = ("odin", "perturbed_quality")
    embedder = load_run(trained_run, [*names, *stepped], [trained_run])
    together = embedder(crops).extras
    for size in (1, 5):
        parts = [embedder(crops[start : start + size]).extras for start in range(0, len(crops), size)]
        for name in RESULT_NAMES:
            apart = np.concatenate([part[name] for part in parts])
            # The perturbation uses the signs of gradients, which rounding may flip where a gradient is 0.
            allowed = (0.02 if name in stepped else 1e-3) * np.std(together[name])
            np.testing.assert_allclose(apart, together[name], rtol=1e-5, atol=allowed, err_msg=name)
    np.testing.assert_array_equal(embedder(crops).extras["mc_dropout"], together["mc_dropout"])


def test_an_ensemble_of_a_run_with_itself_is_the_run(trained_run: Path, crops: Crops) -> None:
    extras = load_run(trained_run, ["max_softmax"], [trained_run, trained_run / "checkpoint.pt"])(
        crops
    ).extras
    np.testing.assert_allclose(extras["ensemble"], extras["max_softmax"], rtol=1e-4, atol=1e-6)


def test_an_ensemble_is_the_mean_over_its_members(classifier: Classifier, crops: Crops) -> None:
    other = load_classifier(classifier.path)
    with torch.no_grad():
        other.network.embedding[0].weight += 0.05 * torch.randn_like(other.network.embedding[0].weight)
    embedder = ClassifierEmbedder(classifier, [MaxSoftmax()], SoftmaxEnsemble([classifier, other]))
    parts = [
        softmax(logits_of(member, head(member, features_of(member, crops)))) for member in (classifier, other)
    ]
    expected = np.log(((parts[0] + parts[1]) / 2).max(axis=1))
    extras = embedder(crops).extras
    np.testing.assert_allclose(extras["ensemble"], expected, rtol=1e-3)
    assert not np.allclose(extras["ensemble"], extras["max_softmax"], rtol=1e-3)


def test_an_ensemble_over_other_classes_is_refused(classifier: Classifier) -> None:
    def member(**data: object) -> Classifier:
        recipe = classifier.recipe
        return replace(
            classifier, recipe=recipe.model_copy(update={"data": recipe.data.model_copy(update=data)})
        )

    with pytest.raises(Error, match=r"must have the same classes.*8 identities of 'others'"):
        SoftmaxEnsemble([classifier, member(name="others")])
    kept_out = member(holdout_identities=2)
    SoftmaxEnsemble([kept_out, kept_out])
    reseeded = replace(kept_out, recipe=kept_out.recipe.model_copy(update={"seed": 9}))
    with pytest.raises(Error, match="2 held out by seed 9"):
        SoftmaxEnsemble([kept_out, reseeded])
    # Without held-out identities, the seed does not change the classes.
    SoftmaxEnsemble(
        [classifier, replace(classifier, recipe=classifier.recipe.model_copy(update={"seed": 9}))]
    )


def test_flipping_does_not_change_scores(trained_run: Path, crops: Crops) -> None:
    embedder = load_run(trained_run, ["max_softmax", *FEW])
    calls = []
    hook = embedder._classifier.network.embedding.register_forward_hook(lambda *_: calls.append(1))
    plain, passes = embed_crops(embedder, crops, flip=False), len(calls)
    both = embed_crops(embedder, crops, flip=True)
    hook.remove()
    for name in ("max_softmax", "mc_dropout", "ser_fiq"):
        np.testing.assert_array_equal(both.extras[name], plain.extras[name])
    assert not np.allclose(both.embedding, plain.embedding)
    # Flipping costs one more pass, but no scores.
    assert len(calls) == 2 * passes + 1


def test_a_run_has_the_name_of_its_folder_or_checkpoint(trained_run: Path, tmp_path: Path) -> None:
    embedder = load_run(trained_run)
    assert (embedder.name, embedder.method) == (trained_run.name, "rts")
    (tmp_path / "best.pt").write_bytes((trained_run / "checkpoint.pt").read_bytes())
    copy = load_run(tmp_path / "best.pt")
    assert (copy.name, copy.sha256) == ("best", embedder.sha256)
    assert len(copy.sha256) == 64
    with pytest.raises(ModelError, match="no such file"):
        load_run(tmp_path)


@pytest.mark.slow
def test_a_method_without_logits_is_refused_except_for_scores_that_need_none(
    make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    recipe = make_recipe("method.name=supcon", "optim.epochs=1", "optim.milestones=[]")
    train(recipe, tmp_path / "run")
    for name in set(CLASSIFIER_SCORES) - {"ser_fiq", "perturbed_quality"}:
        with pytest.raises(Error, match="supcon trains no softmax over class centers"):
            load_run(tmp_path / "run", [name])
    with pytest.raises(Error, match="supcon trains no softmax"):
        load_run(tmp_path / "run", [], [tmp_path / "run"])
    crops = np.zeros((2, 112, 112, 3), dtype=np.uint8)
    assert load_run(tmp_path / "run", ["ser_fiq:passes=2"])(crops).extras["ser_fiq"].shape == (2,)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("max_sofmax", "no score 'max_sofmax', did you mean 'max_softmax'?"),
        ("ensemble", r"\(--ensemble RUN gives the score of an ensemble\)"),
        ("odin:epsilom=1", "odin has no option 'epsilom', did you mean 'epsilon'?"),
        ("odin:epsilon", "'epsilon' is not of the form OPTION=VALUE"),
        ("odin:epsilon=-1", "odin:epsilon=-1: epsilon: Input should be greater than or equal to 0"),
        ("energy:temperature=inf", "temperature: Input should be a finite number"),
        ("ser_fiq:passes=1", "passes: Input should be greater than or equal to 2"),
        ("mc_dropout:rate=1", "rate: Input should be less than 1"),
    ],
)
def test_wrong_scores_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(Error, match=sentence):
        parse_score(text)


def test_duplicate_and_impossible_scores_are_refused(trained_run: Path) -> None:
    with pytest.raises(Error, match="--score odin: given twice"):
        load_run(trained_run, ["odin", "odin:epsilon=0"])
    with pytest.raises(
        Error, match=f"rho 3 must be below {math.log(8):.4g}, the logarithm of the 8 identities"
    ):
        load_run(trained_run, ["newton_temperature:rho=3"])


def test_newton_temperature_is_that_of_the_cosines(
    classifier: Classifier, trained_run: Path, crops: Crops
) -> None:
    cosine = logits_of(classifier, head(classifier, features_of(classifier, crops))) / 16
    solved = scored(trained_run, crops, "newton_temperature:rho=1")["newton_temperature"]
    for row, tau in zip(cosine, solved, strict=True):
        p = softmax(row[None] / float(tau))[0]
        # At the minimum the divergence of the softmax from the uniform one is ρ.
        assert float((p * np.log(8 * p)).sum()) == pytest.approx(1.0, abs=1e-3)


def test_a_whole_source_can_be_embedded(trained_run: Path, drawn_faces: Path) -> None:
    from facerts.datasets import open_source

    outputs = embed_source(
        load_run(trained_run, ["energy"]), open_source(drawn_faces), flip=True, progress=False
    )
    assert outputs.extras["energy"].shape == (64,)
    np.testing.assert_allclose(F.normalize(torch.from_numpy(outputs.embedding)), outputs.embedding, atol=1e-5)
