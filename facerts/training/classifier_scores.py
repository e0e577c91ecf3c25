"""Scores of a training run's classifier without further training: baselines for learned qualities.

A classifier trained on C identities computes, for each image, the logits f = γ cos θ to its class centers. Its
confidence is a measure of quality that needs no training. Higher is better for all scores. Probabilities are returned
as logarithms, which rank images in the same way but do not saturate at 1 in float32.

A score is a function of a run and its ``Activations`` for a batch; its keywords are its options on the command line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from inspect import signature
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, ValidationError, create_model
from torch import Tensor

from facerts.embedding.outputs import FaceOutputs
from facerts.embedding.recognizer_scores import stability
from facerts.errors import Error, did_you_mean, problems_text
from facerts.evaluation.while_training import NetworkEmbedder, to_network_input
from facerts.images import CROP_SIZE
from facerts.io.files import sha256_file
from facerts.losses import ClassificationLoss, FaceLoss, PartialFC
from facerts.losses.noise import keyed_normal
from facerts.losses.robust_loss import newton_temperature as robust_temperature
from facerts.nn import FaceNetwork
from facerts.training.checkpoint import FILE, load_network
from facerts.training.recipe import Recipe

# Range of a pixel in the network's input, [−1, 1]; the ε of ODIN is a share of it.
INPUT_RANGE = 2.0
# For runs trained without dropout: the rate that the authors of SER-FIQ use with ArcFace, in the same place.
DEFAULT_RATE = 0.5

Positive = Annotated[float, Field(gt=0)]
Epsilon = Annotated[float, Field(ge=0)]
Passes = Annotated[int, Field(ge=2)]
# Share of the features that a pass drops; None for the rate of the run, or 0.5 if it was trained without dropout.
Rate = Annotated[float | None, Field(gt=0, lt=1)]


@dataclass(frozen=True)
class Classifier:
    """Network and class centers of a run, in evaluation mode and without gradients of their parameters.

    Attributes:
        loss: its ``score`` turns the network's outputs into the exported ones.
        centers: class centers of the C training identities.
    """

    path: Path
    network: FaceNetwork
    loss: FaceLoss
    recipe: Recipe
    centers: PartialFC

    @property
    def name(self) -> str:
        """Name of the run's folder, or of the checkpoint file if it was renamed."""
        return self.path.parent.resolve().name if self.path.name == FILE else self.path.stem

    @property
    def identities(self) -> int:
        """C, the number of training identities."""
        return len(self.centers.weight)

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return self.centers.weight.device

    def cosines(self, embedding: Tensor) -> Tensor:
        """Cosines ``(B, C)`` of embeddings ``(B, d)`` of any norm to the class centers; an error without a softmax."""
        if not isinstance(self.loss, ClassificationLoss):
            raise Error(
                f"{self.path}: {self.loss.name} trains no softmax over class centers (it has no logit_scale), so "
                "there are no logits; use a run of a classification method such as arcface, or a score that needs "
                "only the embedding (ser_fiq)"
            )
        return self.centers.cosines(embedding)

    def logits(self, embedding: Tensor) -> Tensor:
        """Logits γ cos θ ``(B, C)`` of embeddings ``(B, d)`` of any norm, without margin.

        Temperatures that the method predicts for an image (RTS, relaxed softmax, GODIN) are left out, because they are
        the method's own quality.
        """
        cosines = self.cosines(embedding)
        assert isinstance(self.loss, ClassificationLoss)
        return self.loss.logit_scale * cosines

    def image_logits(self, images: Tensor) -> Tensor:
        """Logits ``(B, C)`` of network inputs ``(B, 3, 112, 112)``."""
        return self.logits(self.network.embedding(self.network.trunk(images)))

    def image_quality(self, images: Tensor) -> Tensor:
        """The method's own quality ``(B,)`` of network inputs ``(B, 3, 112, 112)``."""
        return self.loss.score(self.network(images))["quality"]


def load_classifier(run: str | Path) -> Classifier:
    """Load a run's classifier from its folder or a checkpoint file, onto a GPU if there is one."""
    path = Path(run) / FILE if Path(run).is_dir() else Path(run)
    trained = load_network(path)
    centers = PartialFC(trained.identities, trained.recipe.backbone.embedding_size)
    centers.load_state_dict({"weight": trained.centers})
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for module in (trained.network, centers, trained.loss.state):
        module.eval().requires_grad_(False).to(device)
    return Classifier(path, trained.network, trained.loss, trained.recipe, centers)


@dataclass(frozen=True)
class Activations:
    """Input and intermediate outputs of a network for a batch.

    Attributes:
        images: ``(B, 3, 112, 112)`` network inputs.
        features: ``(B, F)`` outputs of the trunk.
        embedding: ``(B, d)``, of any norm.
    """

    images: Tensor
    features: Tensor
    embedding: Tensor


# The scores ``(B,)`` of a batch.
ClassifierScore = Callable[[Classifier, Activations], Tensor]


def log_max_softmax(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """log max_k softmax(f/T)_k: ``(B, C)`` to ``(B,) float64``."""
    scaled = logits.double() / temperature
    top, index = scaled.max(dim=1, keepdim=True)
    # Sum the other classes separately: added to 1, they would be rounded away if the network is confident.
    others = (scaled - top).exp().scatter(1, index, 0.0).sum(dim=1)
    return -others.log1p()


def max_softmax(run: Classifier, batch: Activations, temperature: Positive = 1.0) -> Tensor:
    """Maximum softmax probability: log max_k softmax(f/T)_k.

    Hendrycks, Gimpel: "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural Networks",
    ICLR 2017; with a temperature T as in ODIN, Eq. 1.
    """
    return log_max_softmax(run.logits(batch.embedding), temperature)


def max_logit(run: Classifier, batch: Activations) -> Tensor:
    """max_k γ cos θ_k. Of a run of GODIN it is max_k h_k, the other score of its paper.

    Hendrycks, Basart, Mazeika, Zou, Kwon, Mostajabi, Steinhardt, Song: "Scaling Out-of-Distribution Detection for
    Real-World Settings", ICML 2022.
    """
    return run.logits(batch.embedding).amax(dim=1)


def perturbed(score_of: Callable[[Tensor], Tensor], images: Tensor, epsilon: float) -> Tensor:
    """x̃ = x − ε sign(−∇_x S(x)), a step that increases the score S (Liang et al., Eq. 2).

    ``score_of`` maps images ``(B, 3, H, W)`` to scores ``(B,)``, each of which must not depend on the other images. The
    result is detached, and the gradients of parameters are not changed.
    """
    with torch.enable_grad():
        images = images.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(score_of(images).sum(), images)
    return images.detach() - epsilon * torch.sign(-gradient)


def odin(run: Classifier, batch: Activations, epsilon: Epsilon = 0.0014, temperature: Positive = 1000.0) -> Tensor:
    """Maximum softmax at a high temperature T on a perturbed input; the defaults are those of the authors' code.

    Liang, Li, Srikant: "Enhancing The Reliability of Out-of-distribution Image Detection in Neural Networks", ICLR
    2018. To tune ε, use faces only and take the ε with the highest mean score.
    """

    def score(images: Tensor) -> Tensor:
        return log_max_softmax(run.image_logits(images), temperature)

    return score(perturbed(score, batch.images, INPUT_RANGE * epsilon))


def perturbed_quality(run: Classifier, batch: Activations, epsilon: Epsilon = 0.0014) -> Tensor:
    """The quality of the run's own method on a perturbed input: of a run of GODIN, the score of its paper.

    Hsu, Shen, Jin, Kira: "Generalized ODIN", CVPR 2020.
    """
    return run.image_quality(perturbed(run.image_quality, batch.images, INPUT_RANGE * epsilon))


def negative_energy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """−E(x) = T log Σ_k exp(f_k/T): ``(B, C)`` to ``(B,) float64``."""
    return temperature * (logits.double() / temperature).logsumexp(dim=1)


def energy(run: Classifier, batch: Activations, temperature: Positive = 1.0) -> Tensor:
    """The negative energy −E(x).

    Liu, Wang, Owens, Li: "Energy-based Out-of-distribution Detection", NeurIPS 2020, Eq. 4.
    """
    return negative_energy(run.logits(batch.embedding), temperature)


def mean_softmax(members: Iterable[Tensor]) -> Tensor:
    """log max_k (1/M) Σ_m softmax(f_m)_k: logits ``(B, C)`` of M members, one at a time, to ``(B,) float64``.

    Members are the passes of MC dropout or the networks of an ensemble; there must be one.
    """
    total, count = None, 0
    for logits in members:
        log_probability = logits.double().log_softmax(dim=1)
        total = log_probability if total is None else torch.logaddexp(total, log_probability)
        count += 1
    if total is None:
        raise ValueError("the mean needs at least one member")
    return total.amax(dim=1) - math.log(count)


@lru_cache(maxsize=4)
def keyed_masks(passes: int, features: int, rate: float) -> Tensor:
    """The features that each pass keeps, ``(passes, features) bool``; masks do not depend on the number of passes.

    They are keyed by the number of the pass alone: all images, in any batch, go through the same subnetworks, so that
    an image's score does not depend on when it is scored.
    """
    noise = keyed_normal(0, 0, torch.arange(passes), features)
    return noise.double() > NormalDist().inv_cdf(rate)


def _dropped(run: Classifier, batch: Activations, passes: int, rate: float | None) -> list[Tensor]:
    """The embeddings ``(B, d)`` of each pass under dropout, of any norm."""
    rate = rate or run.recipe.backbone.dropout or DEFAULT_RATE
    masks = keyed_masks(passes, batch.features.shape[1], rate).to(batch.features.device)
    return [run.network.embedding(batch.features * mask / (1.0 - rate)) for mask in masks]


def mc_dropout(run: Classifier, batch: Activations, passes: Passes = 100, rate: Rate = None) -> Tensor:
    """Maximum of the mean softmax over several passes with dropout before the heads.

    Gal, Ghahramani: "Dropout as a Bayesian Approximation", ICML 2016, Eq. 6.
    """
    return mean_softmax(map(run.logits, _dropped(run, batch, passes, rate)))


def ser_fiq(run: Classifier, batch: Activations, passes: Passes = 100, rate: Rate = None) -> Tensor:
    """Stability of the embedding over several passes under dropout; needs no class centers.

    Terhörst, Kolf, Damer, Kirchbuchner, Kuijper: "SER-FIQ: Unsupervised Estimation of Face Image Quality Based on
    Stochastic Embedding Robustness", CVPR 2020.
    """
    embeddings = torch.stack(_dropped(run, batch, passes, rate), dim=1).cpu().numpy()
    return torch.tensor([stability(image) for image in embeddings])


def newton_temperature(run: Classifier, batch: Activations, rho: Positive = 1.0, tau_min: Positive = 0.001) -> Tensor:
    """The temperature τ ≥ τ_0 that minimizes an image's robust loss against all class centers; ρ < log C.

    Qiu et al.: "To Cool or not to Cool? Temperature Network Meets Large Foundation Models via DRO", ICML 2024. This is
    what their temperature network (``losses.tempnet``) learns to predict; see ``losses.robust_loss``. Of the values
    1, 3 and 6, the default ρ separates held-out faces best from degraded versions of them. The paper does not say that
    a high temperature means a good image: against all class centers, that of held-out faces falls as they are degraded.
    (The one that TempNet learns from batches rises.)
    """
    max_rho = math.log(run.identities)
    if rho >= max_rho:
        raise Error(
            f"newton_temperature: rho {rho:g} must be below {max_rho:.4g}, the logarithm of the {run.identities} "
            f"identities of {run.path}, or every temperature is tau_min; use a smaller one: "
            "newton_temperature:rho=…"
        )
    return robust_temperature(run.cosines(batch.embedding), rho, tau_min)


# By their names in results and on the command line.
CLASSIFIER_SCORES: dict[str, Callable[..., Tensor]] = {
    score.__name__: score
    for score in (
        max_softmax,
        max_logit,
        odin,
        energy,
        mc_dropout,
        ser_fiq,
        newton_temperature,
        perturbed_quality,
    )
}


def ensemble_of(members: Sequence[Classifier]) -> ClassifierScore:
    """Maximum of the mean softmax of several runs, which may differ in everything but their classes.

    Lakshminarayanan, Pritzel, Blundell: "Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles",
    NeurIPS 2017, section 2.4.
    """
    first, *others = ((member.path, _classes(member)) for member in members)
    for path, classes in others:
        if classes != first[1]:
            raise Error(
                f"{path}: the runs of an ensemble must have the same classes; this one has {classes}, and {first[0]} "
                f"has {first[1]}; use runs on the same data"
            )
    return lambda _run, batch: mean_softmax(member.image_logits(batch.images) for member in members)


def _classes(member: Classifier) -> str:
    """Everything that determines which identity a class is; the seed does, if it selects held-out identities."""
    data = member.recipe.data
    held_out = f", {data.holdout_identities} held out by seed {member.recipe.seed}"
    return f"{member.identities} identities of {data.name!r}{held_out if data.holdout_identities else ''}"


def parse_score(text: str) -> tuple[str, ClassifierScore]:
    """The name and the score of ``NAME`` or ``NAME:OPTION=VALUE,…``."""
    name, _, rest = text.partition(":")
    if name not in CLASSIFIER_SCORES:
        hint = did_you_mean(name, CLASSIFIER_SCORES) or f"; available: {', '.join(CLASSIFIER_SCORES)}"
        raise Error(f"no score {name!r}{hint} (ensemble:RUN is the score of an ensemble with another run)")
    score = CLASSIFIER_SCORES[name]
    hints = get_type_hints(score, include_extras=True)
    known = {
        key: (hints[key], option.default)
        for key, option in signature(score).parameters.items()
        if option.default is not option.empty
    }
    options = {}
    for part in rest.split(",") if rest else ():
        key, equals, value = part.partition("=")
        if not equals:
            raise Error(f"score {text}: {part!r} is not of the form OPTION=VALUE")
        if key not in known:
            hint = did_you_mean(key, known) or f"; available: {', '.join(known)}"
            raise Error(f"score {text}: {name} has no option {key!r}{hint}")
        options[key] = value
    model = create_model(name, __config__=ConfigDict(allow_inf_nan=False), **known)  # type: ignore[call-overload]
    try:
        return name, partial(score, **dict(model.model_validate(options)))
    except ValidationError as error:
        raise Error(f"score {text}: {problems_text(error.errors())}") from error


class ClassifierEmbedder:
    """Embeds crops with a run; the scores are extras of its outputs. See ``embedding.outputs.Embedder``."""

    def __init__(self, classifier: Classifier, scores: Mapping[str, ClassifierScore]) -> None:
        self.name = classifier.name
        self.method = classifier.loss.name
        self.sha256 = sha256_file(classifier.path)
        self.without_scores = NetworkEmbedder(
            classifier.network, classifier.loss.score, name=self.name, method=self.method
        )
        self.without_scores.sha256 = self.sha256
        self._classifier, self._scores = classifier, scores
        # A score that the run cannot give says so now, not in the middle of an evaluation.
        self(np.zeros((1, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8))

    @torch.no_grad()
    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        features: list[Tensor] = []
        hook = self._classifier.network.trunk.register_forward_hook(
            lambda _module, _inputs, output: features.append(output)
        )
        try:
            outputs = self.without_scores(crops)
        finally:
            hook.remove()
        images = to_network_input(torch.from_numpy(np.ascontiguousarray(crops)).to(self._classifier.device))
        activations = Activations(images, features[0], self._classifier.network.embedding(features[0]))
        extras = {
            name: score(self._classifier, activations).float().cpu().numpy() for name, score in self._scores.items()
        }
        return replace(outputs, extras={**outputs.extras, **extras})


def load_run(
    run: str | Path,
    scores: Sequence[str] = (),
    ensemble: Sequence[str | Path] = (),
    *,
    threads: int | None = None,
) -> ClassifierEmbedder:
    """A training run as an embedder.

    Args:
        run: folder of the run, or a checkpoint file.
        scores: ``NAME`` or ``NAME:OPTION=VALUE,…``, see ``CLASSIFIER_SCORES``.
        ensemble: further runs on the same identities; if there are any, the outputs include the score ``ensemble``.
    """
    parsed: dict[str, ClassifierScore] = {}
    for name, score in map(parse_score, scores):
        if name in parsed:
            raise Error(f"score {name}: given twice; give each score once")
        parsed[name] = score
    if threads is not None:
        torch.set_num_threads(threads)
    classifier = load_classifier(run)
    if ensemble:
        parsed["ensemble"] = ensemble_of([classifier, *map(load_classifier, ensemble)])
    return ClassifierEmbedder(classifier, parsed)
