"""Recipes: what a training run is, complete in one YAML file; wrong ones fail before any work starts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import torch
import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from facerts.errors import RecipeError, did_you_mean, field_name, problem_text, problems_text
from facerts.images import CROP_SIZE
from facerts.images.changes import CHANGES
from facerts.losses import LOSSES, FaceLoss, PartialFC
from facerts.losses.face_heads import FACE_HEADS
from facerts.losses.face_loss import setting_names
from facerts.nn import BACKBONES, FaceNetwork, build_network, is_backbone
from facerts.onnx.contract import Description
from facerts.training.compose import Fields, compose, missing_values
from facerts.training.schedule import Schedule

Paths = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


def _known(what: str, names: Collection[str], is_known: Callable[[str], bool] | None = None) -> AfterValidator:
    """A check that a name is among those, or known in another way."""

    def check(name: str) -> str:
        if not (name in names if is_known is None else is_known(name)):
            raise ValueError(f"no {what} {name!r}{did_you_mean(name, names)}")
        return name

    return AfterValidator(check)


class Section(BaseModel):
    """A part of a recipe: no unknown keys, no numbers that are not finite, no changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Augmentation(Section):
    """Random changes of the training crops; ``facerts.training.augment`` makes them.

    Attributes:
        views: number of different views of each image, which take turns; the first is the image itself, the others are
            the same for every seed, and only mirroring is drawn anew. Teachers that see the views, which need this, are
            asked once for each, before the training. null for a new view in every epoch.
        flip: mirror half of the images.
        scale: maximum relative change of the crop's scale, e.g. 0.1.
        shift: maximum shift, as a share of the crop's side.
        rotation: maximum rotation in degrees.
        change: probability of a change of a kind from ``facerts.images.changes``, drawn uniformly.
        more_changes: probability of a second one, of another kind, and after each of one more.
        kinds: kinds to draw from; none for all that are not held out for the corruption benchmark.
        max_severity: maximum severity of a change, 0 to 1; the severity is drawn uniformly.
        albumentations: file of a pipeline that runs after all these, as ``albumentations.save(pipeline, file,
            data_format="yaml")`` writes it. It must keep the size of the image.
    """

    views: int | None = Field(None, ge=1)
    flip: bool = True
    scale: float = Field(0.0, ge=0, lt=1)
    shift: float = Field(0.0, ge=0, lt=0.5)
    rotation: float = Field(0.0, ge=0, le=180)
    change: float = Field(0.0, ge=0, le=1)
    more_changes: float = Field(0.0, ge=0, lt=1)
    kinds: list[Annotated[str, _known("change", CHANGES)]] = []
    max_severity: float = Field(1.0, gt=0, le=1)
    albumentations: str | None = None


class Data(Section):
    """Training images.

    Attributes:
        name: name of the data set, written into exported models.
        terms: license terms of the images, written into exported models.
        train: sources with identities; several are combined.
        unlabeled: sources without identities; used only to learn from the teachers.
        unlabeled_share: share of unlabeled images in every batch.
        non_faces: sources of crops without a face, drawn equally often whatever their size. The network then has two
            more outputs: ``not_a_face``, and ``covered`` for covered faces.
        non_face_share: share of non-faces in every batch.
        holdout_identities: number of identities, chosen by the seed, that are held out of training for validation;
            below 1, their share, and then at least four.
        augmentation: see ``Augmentation``.
        workers: number of decoding processes; 0 decodes in the training process.
        per_identity: images of each person in a batch, for methods that draw batches by identity.
    """

    name: str
    terms: str
    train: Paths
    unlabeled: Paths = []
    unlabeled_share: float = Field(0.2, gt=0, lt=1)
    non_faces: Paths = []
    non_face_share: float = Field(0.1, gt=0, lt=1)
    holdout_identities: int | float = Field(0, ge=0)
    augmentation: Augmentation = Augmentation()
    workers: int = Field(2, ge=0)
    per_identity: int = Field(4, ge=2)


class Validation(Section):
    """Validation during training. Choose settings on held-out identities, never on benchmarks.

    Attributes:
        heldout: sources with identities that are not in the training data.
        pairs: number of genuine pairs, and of impostor pairs, drawn from held-out identities.
        benchmarks: verification sets (.bin files, or folders with pairs.txt).
        every_epochs: epochs between validations; the end of the run is always validated.
        flip: add the embedding of each image's mirror image.
    """

    heldout: Paths = []
    pairs: int = Field(3000, ge=10)
    benchmarks: Paths = []
    every_epochs: float = Field(1.0, gt=0, le=1e6)
    flip: bool = False


class Backbone(Section):
    """The network: a name from ``facerts.nn.BACKBONES`` and its size.

    Attributes:
        name: name of the backbone; ``torchvision/NAME`` is a torchvision classifier without its last layers.
        input_size: side in pixels to which the network resizes the crops.
        width: number of channels, relative to the published network.
        dropout: dropout rate before the heads.
        embedding_size: number of dimensions of the embedding.
        embedding: whether the trained network has an embedding. Without one, it predicts a quality for any recognizer
            and learns the method's heads from the teachers' embeddings of the views, projected to ``embedding_size``
            dimensions. During training it also learns these embeddings, by the weights ``teacher.cosine`` and
            ``.similarities``.
        weights: initial weights: a run or checkpoint, which also provides the class centers and, for the same method,
            the heads if they fit; a file of ``facerts export`` or the name of a bundled model; or a file of published
            weights (``facerts.nn.arcface_torch``).
        frozen: train only heads and class centers; trunk and embedding keep their initial weights.
        adapt: before training, adapt the embedding of the initial weights to the training people, in closed form; the
            value is the weight of these people's covariance, see ``facerts.training.adapt``. null: off.
    """

    name: Annotated[str, _known("backbone", BACKBONES, is_backbone)]
    input_size: int = Field(CROP_SIZE, ge=32, le=448)
    width: float = Field(1.0, gt=0, le=64)
    dropout: float = Field(0.0, ge=0, lt=1)
    embedding_size: int = Field(512, gt=1, le=16_384)
    embedding: bool = True
    weights: str | None = None
    frozen: bool = False
    adapt: float | None = Field(None, ge=0, lt=1)

    def __str__(self) -> str:
        return f"{self.name} width {self.width:g}"


class QualityTeacher(Section):
    """A model whose quality tells what to expect of a view.

    Attributes:
        model: an ONNX file that gives a quality.
        description: what its description says, for a file without one in it or beside it.
    """

    model: str
    description: Description | None = None


class Teacher(Section):
    """Trained embedders whose embeddings the network learns to reproduce, in addition to the method's loss.

    Class centers are then the means of the teachers' embeddings of each identity, without the image itself, and are not
    trained; ``facerts.training.distillation`` defines the losses.

    Attributes:
        models: ONNX files with their descriptions; the target is the mean of their cosines.
        target: embeddings of each training "image" and its mirror image, or of the augmented "view" that the network
            sees.
        cosine: weight of 1 − cos of the network's embedding and the target.
        similarities: weight of the squared error of the cosines between a batch's images.
        method: weight of the method's loss.
        method_embedding: embedding that the method's loss compares with the class centers: that of the "student", or
            that of the "teachers" for the augmented view, which trains only the method's other heads.
        expected_weight: for ``crfiqa`` with ``target: cosine``, the number of a person's other images at which the
            measured cosine of a view to its center counts as much as the cosine predicted from the teachers' outputs;
            see ``facerts.training.expected_cosine``. null for the measured cosine alone.
        qualities: models whose quality of each view is one of these outputs.
        cache: folder for the teachers' embeddings; by default in the run's folder. Runs may share one.
    """

    models: Paths = Field(min_length=1)
    target: Literal["image", "view"] = "image"
    cosine: float = Field(4.0, ge=0)
    similarities: float = Field(8.0, ge=0)
    method: float = Field(0.1, ge=0)
    method_embedding: Literal["student", "teachers"] = "student"
    expected_weight: float | None = Field(None, gt=0)
    qualities: list[QualityTeacher] = []
    cache: str | None = None

    @property
    def embeds_views(self) -> bool:
        """Whether the teachers see the augmented views."""
        return self.target == "view" or self.method_embedding == "teachers"


class Optim(Section):
    """Optimization by SGD with momentum or by AdamW.

    Attributes:
        epochs: passes over the training images, also fractions. 0 trains nothing: the run keeps the initial weights,
            adapted by ``backbone.adapt``.
        batch_size: images per step.
        algorithm: "sgd", or "adamw" (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019), for
            which ``momentum`` is its first β.
        lr: initial learning rate.
        momentum: of SGD.
        weight_decay: share of each weight that a step takes off, multiplied by the learning rate.
        decay: factor of the learning rate after each milestone.
        schedule: "step" decays at the milestones, "cosine" at every step, to 0 at the end.
        milestones: epochs after which the rate is multiplied by ``decay``.
        warmup_epochs: epochs over which the rate rises linearly.
        margin_ramp: share of the run over which the margin rises from 0; 0 for the full margin at once. The RTS paper
            ramps the margin of ArcFace heads only; so do the bundled recipes.
        clip_norm: maximum norm of the gradient of network and method; that of the class centers is not clipped, as in
            the field's code. The norm before is logged. null: no clipping.
        average: decay of a moving average of the network's weights, which is then used for validation and export;
            null for none.
    """

    epochs: float = Field(ge=0, le=1e6)
    batch_size: int = Field(gt=1, le=1 << 20)
    algorithm: Literal["sgd", "adamw"] = "sgd"
    lr: float = Field(0.1, gt=0)
    schedule: Schedule = "step"
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(5e-4, ge=0)
    milestones: list[float] = []
    decay: float = Field(0.1, gt=0, le=1)
    warmup_epochs: float = Field(0.0, ge=0)
    margin_ramp: float = Field(0.5, ge=0, le=1)
    clip_norm: float | None = Field(None, gt=0)
    average: float | None = Field(None, gt=0, lt=1)


class Compute(Section):
    """Device, precision and memory use.

    Attributes:
        device: "auto" uses a GPU if there is one.
        precision: precision of the backbone; heads, angles and losses stay in float32. "auto" is "bf16" where the GPU
            or CPU has units for it, else "fp32".
        channels_last: memory layout of the images.
        threads: number of CPU threads; null for PyTorch's default.
        compile: fuse the operations of a step's forward and backward pass with torch.compile; needs a C++ compiler
            and, on a GPU, Triton.
        class_chunk: number of classes whose logits are in memory at a time; fewer need less memory and slightly more
            time.
        class_sample: share of the class centers used in a step, sampled again each time; null for all, which is exact.
            The others are not changed, not even by weight decay or momentum, except with AdamW, fp16 or
            accumulation, which need the full gradient.
        accumulate: number of parts in which each process handles its share of a batch, one after the other; BatchNorm
            is computed for each part separately.
        recompute: store only the input of each residual unit of the backbone, and recompute its activations in the
            backward pass: less memory, more time, the same gradients.
        sync_batch_norm: compute BatchNorm over the images of all processes; on GPUs only.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    channels_last: bool = True
    threads: int | None = Field(None, ge=1)
    compile: bool = False
    class_chunk: int = Field(16_384, ge=1)
    class_sample: float | None = Field(None, gt=0, le=1)
    accumulate: int = Field(1, ge=1)
    recompute: bool = False
    sync_batch_norm: bool = False


class Logging(Section):
    """What a run writes while it trains; its end is always saved.

    Attributes:
        every_steps: steps between log lines, and between checks that the losses are finite.
        checkpoint_steps: steps between checkpoints.
    """

    every_steps: int = Field(20, ge=1)
    checkpoint_steps: int = Field(500, ge=1)


def build_loss(method: Fields, embedding_size: int = 512, seed: int = 0, centers: PartialFC | None = None) -> FaceLoss:
    """The loss with a method's settings, on these class centers; without centers, enough to score."""
    settings, classes = dict(method), 0 if centers is None else centers.num_classes
    name = settings.pop("name")
    return LOSSES[name](classes, embedding_size, centers=centers, seed=seed, **settings)


def _complete(settings: Fields) -> Fields:
    """Check a method's settings and fill in its defaults."""
    name = settings.get("name")
    if not isinstance(name, str) or name not in LOSSES:
        raise ValueError(f"no method {name!r}{did_you_mean(str(name), LOSSES)}")
    known = setting_names(LOSSES[name])
    for unknown in settings.keys() - {"name", *known}:
        raise ValueError(f"{name} has no setting {unknown!r}{did_you_mean(str(unknown), known)}")
    try:
        with torch.device("meta"):
            loss = build_loss(settings)
    except ValidationError as error:
        raise ValueError(problems_text(error.errors())) from error
    return {"name": name, **{key: getattr(loss, key) for key in known}}


# The name of a method and all of its settings.
Method = Annotated[Fields, AfterValidator(_complete)]


class Recipe(Section):
    """A complete training run."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$")
    seed: int = Field(0, ge=0, lt=1 << 63)
    data: Data
    validation: Validation = Validation()
    backbone: Backbone
    method: Method
    teacher: Teacher | None = None
    optim: Optim
    compute: Compute = Compute()
    logging: Logging = Logging()

    @model_validator(mode="after")
    def fits_together(self) -> Recipe:
        """The sections must fit together."""
        if problem := next(self._problems(), None):
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        data, backbone, teacher, optim = self.data, self.backbone, self.teacher, self.optim
        batch_size = optim.batch_size
        with torch.device("meta"):
            loss = self.build_loss()
        name, views, parts, kept = loss.name, loss.views, self.compute.accumulate, data.augmentation.views
        if loss.sampler == "identities" and self.labeled_size % data.per_identity:
            yield (
                f"{name} draws batches by identity: the {self.labeled_size} labeled images of an optim.batch_size of "
                f"{batch_size} must be a multiple of data.per_identity {data.per_identity}"
            )
        if parts > 1 and (views > 1 or batch_size % parts):
            yield (f"compute.accumulate {parts} must divide optim.batch_size, for a method with one view of each image")
        if kept is not None and kept < views:
            yield (
                f"{name} compares {views} views of an image: set data.augmentation.views to at least {views}, or leave "
                "it out"
            )
        if data.holdout_identities >= 1 and data.holdout_identities != int(data.holdout_identities):
            yield (
                f"data.holdout_identities {data.holdout_identities:g} is neither a whole number of identities nor a "
                "share below 1"
            )
        if sorted(optim.milestones) != optim.milestones or any(each >= optim.epochs for each in optim.milestones):
            yield f"optim.milestones {optim.milestones} must rise and lie before the end, epoch {optim.epochs}"
        if optim.schedule == "cosine" and optim.milestones:
            yield "a cosine schedule has no milestones; leave out optim.milestones, or use optim.schedule: step"
        if self.compute.compile and self.compute.recompute:
            yield (
                "compute.recompute and compute.compile exclude each other: torch.compile itself decides what a step "
                "stores and what it recomputes"
            )
        if backbone.adapt is not None and (backbone.weights is None or not backbone.embedding):
            yield (
                "backbone.adapt changes an embedding that is trained already: set backbone.weights, and leave "
                "backbone.embedding true"
            )
        if self.trains_heads_only and backbone.weights is None:
            yield f"{name} trains heads on a network that is trained already: set backbone.weights to its run"
        if not optim.epochs and (backbone.weights is None or teacher is not None):
            yield "optim.epochs 0 keeps the initial weights: set backbone.weights, and leave out teacher"
        if backbone.frozen:
            if backbone.weights is None:
                yield "backbone.frozen keeps a network that is trained already: set backbone.weights"
            if teacher is not None and not teacher.method:
                yield (
                    "a frozen network cannot learn to embed as a teacher does, and teacher.method is 0, so nothing is "
                    "left to learn: leave out backbone.frozen or teacher"
                )
            if not loss.learns_beside_embedding:
                yield f"{name} has nothing beside the embedding: with backbone.frozen the network would not learn"
        if not backbone.embedding:
            if teacher is None or teacher.method_embedding == "student":
                yield (
                    "backbone.embedding false leaves the method's heads to learn, from teachers: set teacher.models "
                    "and teacher.method_embedding: teachers"
                )
            if not loss.heads():
                yield f"{name} has no head: without an embedding there is nothing to learn"
        if teacher is not None and teacher.expected_weight is None and teacher.qualities:
            yield "teacher.qualities tell what cosines to expect: set teacher.expected_weight, such as 4"
        if teacher is not None and teacher.expected_weight is not None:
            learns_cosine = (name, self.method.get("target")) == ("crfiqa", "cosine")
            if not learns_cosine or teacher.method_embedding == "student":
                yield (
                    "teacher.expected_weight is about what crfiqa learns from teachers: set method.name: crfiqa, "
                    "method.target: cosine and teacher.method_embedding: teachers"
                )
        if teacher is not None and teacher.embeds_views and kept is None:
            yield (
                "teacher.target: view and teacher.method_embedding: teachers ask the teachers about views that come "
                "again: set data.augmentation.views, such as 4"
            )
        for kind, paths, share, images in (
            ("unlabeled", data.unlabeled, data.unlabeled_share, self.unlabeled_size),
            ("non_face", data.non_faces, data.non_face_share, self.non_face_size),
        ):
            if paths and (views > 1 or parts > 1):
                yield (
                    f"images without identity go with one view of each image and compute.accumulate 1, not with "
                    f"{views} views and {parts} parts"
                )
            if paths and not (images and self.labeled_size > 1):
                yield (
                    f"data.{kind}_share {share:g} of optim.batch_size {batch_size} must leave room for one image "
                    "without identity and two labeled images"
                )
        if self.non_face_size < len(data.non_faces):
            yield (
                f"data.non_face_share {data.non_face_share:g} of optim.batch_size {batch_size} must leave room for one "
                f"image of each of the {len(data.non_faces)} data.non_faces"
            )
        if data.unlabeled and teacher is None:
            yield "data.unlabeled: images without identity learn from teachers; set teacher.models"

    @property
    def trains_heads_only(self) -> bool:
        """Whether the method keeps its network: not where the embeddings that it builds on are the teachers'."""
        teachers_embed = self.teacher is not None and self.teacher.method_embedding == "teachers"
        return LOSSES[self.method["name"]].trains == "heads" and not teachers_embed

    @property
    def unlabeled_size(self) -> int:
        """How many images of a batch, after the labeled ones, are faces without identity."""
        return round(self.data.unlabeled_share * self.optim.batch_size) if self.data.unlabeled else 0

    @property
    def non_face_size(self) -> int:
        """How many images of a batch, after those, show no face."""
        return round(self.data.non_face_share * self.optim.batch_size) if self.data.non_faces else 0

    @property
    def labeled_size(self) -> int:
        """How many images of a batch have an identity."""
        return self.optim.batch_size - self.unlabeled_size - self.non_face_size

    @property
    def learned_embedding_size(self) -> int:
        """Number of dimensions of the embedding that the network has in training; 0 for none."""
        teacher, backbone = self.teacher, self.backbone
        learns = backbone.embedding or (teacher is not None and (teacher.cosine or teacher.similarities))
        return backbone.embedding_size if learns else 0

    def build_loss(self, centers: PartialFC | None = None) -> FaceLoss:
        """The loss with this recipe's settings, on these class centers; without centers, enough to score."""
        return build_loss(self.method, self.backbone.embedding_size, self.seed, centers)

    def build_network(self, loss: FaceLoss) -> FaceNetwork:
        """The network that this recipe trains, with the head of its loss and random weights."""
        backbone, heads = self.backbone, loss.heads()
        if self.data.non_faces:
            heads = {**heads, **FACE_HEADS}
        if not backbone.embedding:
            # The trained network has none, though it may learn one in training.
            heads = {name: replace(spec, reads="features") for name, spec in heads.items()}
        return build_network(
            backbone.name,
            embedding_size=self.learned_embedding_size,
            heads=heads,
            width=backbone.width,
            dropout=backbone.dropout,
            input_size=backbone.input_size,
        )

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json", by_alias=True), sort_keys=False, allow_unicode=True)


def load_recipe(recipe: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe; ``facerts.training.compose.compose`` says what it may be made of."""
    fields, where = compose(recipe, overrides)
    try:
        return Recipe.model_validate(fields)
    except ValidationError as error:
        raise RecipeError(f"{where}: {explain(error)}") from error


def require_values(recipe: Recipe) -> None:
    """Refuse to train with values that are still to be given, or name environment variables that are not set.

    Validation sets may name such variables: they are left out where they are not found.
    """
    if missing := missing_values(recipe.model_dump(exclude={"validation"})):
        raise RecipeError("; ".join(missing))


def explain(error: ValidationError, recipe: type[BaseModel] = Recipe) -> str:
    """The first problems in a sentence, with the nearest field of the recipe to an unknown one."""

    def text_of(problem: Mapping[str, Any]) -> str:
        if problem["type"] != "extra_forbidden":
            return problem_text(problem)
        name = field_name(problem)
        return f"unknown key {name!r}{did_you_mean(name, _fields(recipe))}"

    return problems_text(error.errors(), text_of)


def _fields(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted names of all fields of a section and of those below it."""
    for name, field in section.model_fields.items():
        yield prefix + name
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, Section):
                yield from _fields(part, f"{prefix}{name}.")


# Fields that change how a run goes, not what it computes; a resumed run may change them.
FREE_FIELDS = (
    "validation",
    "logging",
    "teacher.cache",
    "data.workers",
    "compute.device",
    "compute.threads",
    "compute.compile",
    "compute.recompute",
    "compute.class_chunk",
)


def changed_fields(before: Recipe, after: Recipe) -> list[str]:
    """Dotted names of the fields that differ and matter to the weights."""

    def flat(value: object, prefix: str = "") -> dict[str, object]:
        if not isinstance(value, dict):
            return {prefix.removesuffix("."): value}
        return {name: v for key, entry in value.items() for name, v in flat(entry, f"{prefix}{key}.").items()}

    old, new = (
        flat(before.model_dump(mode="json", by_alias=True)),
        flat(after.model_dump(mode="json", by_alias=True)),
    )
    names = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    return [name for name in names if not any(f"{name}.".startswith(f"{free}.") for free in FREE_FIELDS)]
