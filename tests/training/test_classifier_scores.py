"""The scores of a run's classifier against loops over its network and finite differences, and errors."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from facerts.embedding.embed import embed_crops
from facerts.errors import Error, ModelError
from facerts.evaluation.baselines import CLASSIFIER_SCORES as RESULT_NAMES
from facerts.evaluation.while_training import NetworkEmbedder, to_network_input
from facerts.training.checkpoint import FILE, save_checkpoint
from facerts.training.classifier_scores import (
    CLASSIFIER_SCORES,
    DEFAULT_RATE,
    ClassifierEmbedder,
    ensemble_of,
    keyed_masks,
    load_classifier,
    load_run,
    log_max_softmax,
    max_softmax,
    parse_score,
    perturbed,
)
from facerts.training.learner import Learner

Crops = NDArray[np.uint8]
FEW = ["mc_dropout:passes=5", "ser_fiq:passes=5"]
PERTURBED = ("odin", "perturbed_quality")


@pytest.fixture(scope="module")
def classifier(trained_run):
    return load_classifier(trained_run)


def scored(run, crops, *scores):
    return load_run(run, scores)(crops).extras


def logits_of(classifier, embedding):
    """γ cos θ by hand; the fixture's γ is 16."""
    centers = classifier.centers.weight.double().numpy()
    unit = embedding / np.linalg.norm(embedding, axis=1, keepdims=True)
    return np.asarray(16 * unit @ (centers / np.linalg.norm(centers, axis=1, keepdims=True)).T)


def head(classifier, features):
    """Linear layer and BatchNorm of the embedding, by hand."""
    linear, norm = classifier.network.embedding
    raw = features @ linear.weight.double().numpy().T + linear.bias.double().numpy()
    mean, variance = norm.running_mean.double().numpy(), norm.running_var.double().numpy()
    return np.asarray((raw - mean) / np.sqrt(variance + norm.eps) + norm.bias.double().numpy())


def features_of(classifier, crops):
    with torch.no_grad():
        return classifier.network.trunk(to_network_input(torch.from_numpy(crops))).double().numpy()


def softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def test_scores_do_not_change_the_other_outputs(classifier, trained_run, crops):
    assert {*CLASSIFIER_SCORES, "ensemble"} == set(RESULT_NAMES)
    others = [name for name in CLASSIFIER_SCORES if name not in ("mc_dropout", "ser_fiq")]
    outputs = load_run(trained_run, [*others, *FEW])(crops)
    plain = NetworkEmbedder(classifier.network, classifier.loss.score)(crops)
    for name in ("embedding", "norm", "quality", "uncertainty"):
        np.testing.assert_array_equal(getattr(outputs, name), getattr(plain, name))
    assert set(outputs.extras) == {*plain.extras, *CLASSIFIER_SCORES}
    assert all(outputs.extras[name].shape == (len(crops),) for name in CLASSIFIER_SCORES)
    assert all(np.ptp(outputs.extras[name]) > 0 for name in CLASSIFIER_SCORES)


def test_scores_of_the_softmax_are_those_of_scaled_cosines(classifier, trained_run, crops):
    logits = logits_of(classifier, head(classifier, features_of(classifier, crops)))
    extras = scored(
        trained_run, crops, "max_softmax:temperature=2", "energy:temperature=3", "max_logit", "newton_temperature"
    )
    np.testing.assert_allclose(extras["max_softmax"], np.log(softmax(logits / 2).max(axis=1)), rtol=1e-3)
    np.testing.assert_allclose(extras["max_logit"], logits.max(axis=1), rtol=1e-4)
    np.testing.assert_allclose(extras["energy"], 3 * np.log(np.exp(logits / 3).sum(axis=1)), rtol=1e-4)
    for cosine, tau in zip(logits / 16, extras["newton_temperature"], strict=True):
        p = softmax(cosine[None] / float(tau))[0]
        # At the minimum the divergence of the softmax from the uniform one is ρ.
        assert float((p * np.log(8 * p)).sum()) == pytest.approx(1.0, abs=1e-3)


def test_mc_dropout_and_ser_fiq_against_a_loop_over_masks(classifier, trained_run, crops):
    features = features_of(classifier, crops)
    masks = keyed_masks(5, features.shape[1], DEFAULT_RATE).numpy()
    passes = [head(classifier, features * mask / (1 - DEFAULT_RATE)) for mask in masks]
    extras = scored(trained_run, crops, *FEW)
    mean = sum(softmax(logits_of(classifier, embedding)) for embedding in passes) / 5
    np.testing.assert_allclose(extras["mc_dropout"], np.log(np.max(mean, axis=1)), rtol=1e-3)
    unit = [embedding / np.linalg.norm(embedding, axis=1, keepdims=True) for embedding in passes]
    distances = [np.linalg.norm(unit[i] - unit[j], axis=1) for i in range(5) for j in range(i)]
    np.testing.assert_allclose(extras["ser_fiq"], 2 / (1 + np.exp(np.mean(distances, axis=0))), rtol=1e-4)


def test_perturbations_are_shares_of_the_range_of_a_pixel(classifier, trained_run, crops):
    plain = ("odin:epsilon=0,temperature=10", "max_softmax:temperature=10", "perturbed_quality:epsilon=0")
    still = scored(trained_run, crops, *plain)
    np.testing.assert_allclose(still["odin"], still["max_softmax"], rtol=1e-5)
    np.testing.assert_allclose(still["perturbed_quality"], load_run(trained_run)(crops).quality, atol=1e-5)
    moved = scored(trained_run, crops, "odin:epsilon=0.0005,temperature=10", "perturbed_quality:epsilon=0.0005")
    # ε is a share of a pixel's range, which is 2 in the network's input.
    images = to_network_input(torch.from_numpy(crops))
    of_images = {
        "perturbed_quality": classifier.image_quality,
        "odin": lambda images: log_max_softmax(classifier.image_logits(images), 10.0),
    }
    for name, score in of_images.items():
        expected = score(perturbed(score, images, 0.001))
        np.testing.assert_allclose(moved[name], expected, atol=0.02 * np.std(still[name]))


def test_the_dropout_rate_is_that_of_the_run_by_default(classifier, crops):
    recipe = classifier.recipe
    assert recipe.backbone.dropout == 0
    trained = recipe.model_copy(update={"backbone": recipe.backbone.model_copy(update={"dropout": 0.2})})

    def ser_fiq(text, recipe):
        embedder = ClassifierEmbedder(replace(classifier, recipe=recipe), dict([parse_score(text)]))
        return embedder(crops).extras["ser_fiq"]

    own = ser_fiq("ser_fiq:passes=4", trained)
    np.testing.assert_array_equal(own, ser_fiq("ser_fiq:passes=4,rate=0.2", recipe))
    default = ser_fiq("ser_fiq:passes=4", recipe)
    np.testing.assert_array_equal(default, ser_fiq("ser_fiq:passes=4,rate=0.5", trained))
    # Fewer features are dropped, so the passes agree better.
    assert own.mean() > default.mean()


def test_an_image_scores_the_same_in_any_batch(trained_run, crops):
    names = ["max_softmax", "max_logit", "energy", "newton_temperature", *FEW]
    embedder = load_run(trained_run, [*names, *PERTURBED], [trained_run])
    together = embedder(crops).extras
    parts = [embedder(crops[start : start + 5]).extras for start in range(0, len(crops), 5)]
    for name in RESULT_NAMES:
        apart = np.concatenate([part[name] for part in parts])
        # The perturbation uses the signs of gradients, which rounding may flip where a gradient is 0.
        allowed = (0.02 if name in PERTURBED else 1e-3) * np.std(together[name])
        np.testing.assert_allclose(apart, together[name], rtol=1e-5, atol=allowed, err_msg=name)
    np.testing.assert_array_equal(embedder(crops).extras["mc_dropout"], together["mc_dropout"])
    # An ensemble of a run with itself is the run.
    np.testing.assert_allclose(together["ensemble"], together["max_softmax"], rtol=1e-4, atol=1e-6)


def test_an_ensemble_is_the_mean_over_its_members(classifier, crops):
    other = load_classifier(classifier.path)
    with torch.no_grad():
        other.network.embedding[0].weight += 0.05 * torch.randn_like(other.network.embedding[0].weight)
    scores = {"max_softmax": max_softmax, "ensemble": ensemble_of([classifier, other])}
    embedder = ClassifierEmbedder(classifier, scores)
    parts = [softmax(logits_of(member, head(member, features_of(member, crops)))) for member in (classifier, other)]
    expected = np.log(((parts[0] + parts[1]) / 2).max(axis=1))
    extras = embedder(crops).extras
    np.testing.assert_allclose(extras["ensemble"], expected, rtol=1e-3)
    assert not np.allclose(extras["ensemble"], extras["max_softmax"], rtol=1e-3)


def test_an_ensemble_over_other_classes_is_refused(classifier):
    def member(seed=classifier.recipe.seed, **data):
        update = {"seed": seed, "data": classifier.recipe.data.model_copy(update=data)}
        return replace(classifier, recipe=classifier.recipe.model_copy(update=update))

    with pytest.raises(Error, match=r"must have the same classes.*8 identities of 'others'"):
        ensemble_of([classifier, member(name="others")])
    with pytest.raises(Error, match="2 held out by seed 9"):
        ensemble_of([member(holdout_identities=2), member(seed=9, holdout_identities=2)])
    ensemble_of([member(holdout_identities=2)] * 2)
    # Without held-out identities, the seed does not change the classes.
    ensemble_of([classifier, member(seed=9)])


def test_flipping_does_not_change_scores(trained_run, crops):
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


def test_a_run_has_the_name_of_its_folder_or_checkpoint(trained_run, tmp_path):
    embedder = load_run(trained_run)
    assert (embedder.name, embedder.method) == (trained_run.name, "rts")
    (tmp_path / "best.pt").write_bytes((trained_run / FILE).read_bytes())
    copy = load_run(tmp_path / "best.pt")
    assert (copy.name, copy.sha256) == ("best", embedder.sha256)
    with pytest.raises(ModelError, match="no such file"):
        load_run(tmp_path)


def test_a_method_without_logits_is_refused_except_for_scores_that_need_none(make_recipe, tmp_path):
    recipe = make_recipe("method.name=supcon")
    save_checkpoint(tmp_path / FILE, recipe, {"step": 1, "position": 1.0, **Learner(recipe, 8).state_dict()})
    for name in set(CLASSIFIER_SCORES) - {"ser_fiq", "perturbed_quality"}:
        with pytest.raises(Error, match="supcon trains no softmax over class centers"):
            load_run(tmp_path, [name])
    with pytest.raises(Error, match="supcon trains no softmax"):
        load_run(tmp_path, [], [tmp_path])
    crops = np.zeros((2, 112, 112, 3), dtype=np.uint8)
    assert load_run(tmp_path, ["ser_fiq:passes=2"])(crops).extras["ser_fiq"].shape == (2,)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("max_sofmax", "no score 'max_sofmax', did you mean 'max_softmax'?"),
        ("ensemble", r"\(ensemble:RUN is the score of an ensemble"),
        ("odin:epsilom=1", "odin has no option 'epsilom', did you mean 'epsilon'?"),
        ("odin:epsilon", "'epsilon' is not of the form OPTION=VALUE"),
        ("odin:epsilon=-1", "odin:epsilon=-1: epsilon: Input should be greater than or equal to 0"),
        ("energy:temperature=inf", "temperature: Input should be a finite number"),
        ("ser_fiq:passes=1", "passes: Input should be greater than or equal to 2"),
        ("mc_dropout:rate=1", "rate: Input should be less than 1"),
    ],
)
def test_wrong_scores_are_refused(text, sentence):
    with pytest.raises(Error, match=sentence):
        parse_score(text)


def test_duplicate_and_impossible_scores_are_refused(trained_run):
    with pytest.raises(Error, match="score odin: given twice"):
        load_run(trained_run, ["odin", "odin:epsilon=0"])
    message = f"rho 3 must be below {math.log(8):.4g}, the logarithm of the 8 identities"
    with pytest.raises(Error, match=message):
        load_run(trained_run, ["newton_temperature:rho=3"])


def test_max_softmax_separates_values_that_are_1_in_float32():
    sure = torch.tensor([[60.0, 0.0], [64.0, 0.0]])
    assert torch.softmax(sure, dim=1).max(dim=1).values.tolist() == [1.0, 1.0]
    first, second = log_max_softmax(sure).float().tolist()
    assert first < second < 0


def test_masks_are_fixed_and_keep_their_share():
    masks = keyed_masks(100, 400, 0.3)
    assert masks.float().mean().item() == pytest.approx(0.7, abs=0.01)
    assert torch.equal(keyed_masks(7, 400, 0.3), masks[:7])
    # Independent of one another: two masks agree where both keep or both drop.
    agreement = (masks[0] == masks[1:]).float().mean(dim=1)
    assert agreement.mean().item() == pytest.approx(0.7**2 + 0.3**2, abs=0.01)


@pytest.mark.parametrize("temperature", [1.0, 1000.0])
def test_odins_step_against_finite_differences(temperature):
    random = torch.Generator().manual_seed(5)
    inner, outer, images = (
        torch.randn(*shape, generator=random).double() for shape in ((48, 12), (12, 5), (3, 3, 4, 4))
    )
    inner.requires_grad_()

    def network(images):
        return torch.tanh(images.flatten(1) @ inner / 7) @ outer

    def score(images):
        return log_max_softmax(network(images), temperature)

    def log_probability(image, label):
        scores = (network(image[None])[0] / temperature).tolist()
        return scores[label] - math.log(sum(math.exp(score) for score in scores))

    classes, expected = network(images).argmax(dim=1).tolist(), images.clone()
    for row in range(len(images)):
        for place in np.ndindex(3, 4, 4):
            step = torch.zeros(3, 4, 4, dtype=torch.float64)
            step[place] = 1e-5
            up, down = (log_probability(images[row] + sign * step, classes[row]) for sign in (1, -1))
            expected[row][place] += 0.25 * math.copysign(1.0, up - down)
    moved = perturbed(score, images, 0.25)
    torch.testing.assert_close(moved, expected)
    assert not moved.requires_grad
    assert inner.grad is None
    assert torch.equal(perturbed(score, images, 0.0), images)
