"""Distillation: the network learns to reproduce the embeddings of trained embedders (teachers).

The teachers embed each training image; the network sees the image augmented and degraded and learns to predict the same
embedding. With s the unit embeddings of the network, and t those of the teachers (k unit embeddings concatenated and
divided by √k, so that their cosine is the mean of the teachers' cosines),

    L_cos = mean_i (1 − s_i · P t_i)
    L_sim = mean_{i≠j} (s_i · s_j − t_i · t_j)²        (Park et al., "Relational Knowledge Distillation", CVPR 2019,
                                                        with the cosine as the relation)
    L = w_cos L_cos + w_sim L_sim + w_method L_method

P maps the D dimensions of the teachers to the d of the network and normalizes: it projects to the d principal
directions of the training images' embeddings. Of all linear maps to d dimensions it preserves their cosines best in
the mean square (Eckart and Young, Psychometrika 1936). If d = D it is the identity.

The method's own loss is computed on the labeled images, with each person's mean of P t as class center. If it reads the
teachers' embeddings of the views instead of the network's, it is also computed on the images without identity: each is
compared with its own original, as the only image of a person. A network without embedding learns from this loss alone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.datasets import Joined, Source
from facerts.errors import Error
from facerts.losses import LossValue
from facerts.losses.face_loss import Outputs
from facerts.losses.leave_one_out_means import LeaveOneOutMeans
from facerts.nn.device import to_device
from facerts.training.expected_cosine import ExpectedCosines
from facerts.training.loader import Batch
from facerts.training.recipe import Recipe
from facerts.training.recipe import Teacher as TeacherSettings
from facerts.training.teachers import CACHE, ViewEmbeddings, embed_cached, joined, open_qualities, open_teachers


class Distillation(nn.Module):
    """The teachers' embeddings of the training images, and the losses against them.

    Args:
        embeddings: ``(N + U, D)`` unit embeddings of the labeled and then the unlabeled images, in data order.
        labels: ``(N,)`` identities.
        size: d of the network's embedding, at most D.
        views: what the teachers say of the views; None if no loss depends on it.
        cache: folder of what is computed from that, which only expected cosines need.

    Attributes:
        projection: ``(D, d)`` principal directions; empty if d = D. Checkpoints save it, because a resumed run needs
            the same basis.
    """

    embeddings: Tensor
    projection: Tensor
    targets: Tensor

    def __init__(
        self,
        settings: TeacherSettings,
        embeddings: NDArray[np.float32],
        labels: NDArray[np.int64],
        identities: int,
        size: int,
        views: ViewEmbeddings | None = None,
        cache: Path | None = None,
    ) -> None:
        super().__init__()
        self._settings, self._views = settings, views
        self.register_buffer("embeddings", torch.from_numpy(embeddings))
        directions = principal_directions(embeddings, size) if size < embeddings.shape[1] else np.empty(0)
        self.register_buffer("projection", torch.from_numpy(directions.astype(np.float32)))
        self.register_buffer("targets", self.project(self.embeddings))
        self._labeled, self._identities = len(labels), identities
        if settings.method_embedding == "teachers":
            others = len(embeddings) - len(labels)
            labels = np.concatenate([labels, identities + np.arange(others)])
            identities += others
        self.centers = LeaveOneOutMeans(self.targets[: len(labels)], torch.from_numpy(labels), identities)
        self._people = torch.from_numpy(labels)
        self._expected = None
        if settings.expected_weight is not None:
            # Checked by the recipe.
            assert views is not None
            assert cache is not None
            self._expected = ExpectedCosines(views, labels, self._own_cosines, size, settings.expected_weight, cache)

    def project(self, embeddings: Tensor) -> Tensor:
        """P: teachers' embeddings ``(B, D)`` to unit embeddings ``(B, d)``."""
        return F.normalize(embeddings @ self.projection.to(embeddings)) if len(self.projection) else embeddings

    def load_projection(self, projection: Tensor) -> None:
        """Use the projection of a checkpoint; the class centers are loaded separately."""
        self.projection = projection.to(self.embeddings.device)
        self.targets = self.project(self.embeddings)

    def method_batch(self, batch: Batch) -> Batch:
        """The first images of a batch, those that the method's loss is computed on, each with an identity."""
        if self._settings.method_embedding == "student":
            labeled = int((batch.samples < self._labeled).sum())
            return batch.rows(slice(labeled))
        own = to_device(self._identities + batch.samples - self._labeled, batch.labels.device)
        return batch._replace(labels=torch.where(batch.labels < 0, own, batch.labels))

    def centers_for(self, batch: Batch) -> LeaveOneOutMeans:
        """The mean embeddings of the identities, each image of the batch left out of its own."""
        return self.centers.without(self.targets[self._rows(batch)], batch.labels)

    def embed_views(self, batch: Batch) -> Tensor | None:
        """The teachers' embeddings ``(B, D)`` of a batch's augmented crops; None if no loss depends on them."""
        if self._views is None:
            return None
        found = joined(self._views.rows(batch.samples.numpy(), batch.views.numpy()))
        return torch.from_numpy(found).to(self.embeddings.device)

    def method_outputs(self, outputs: Outputs, batch: Batch, views: Tensor | None) -> Outputs:
        """The outputs for the method's loss: the network's, or with what the teachers say of the view instead.

        With the teachers' embedding, a learned uncertainty describes the image, not what the network has yet to learn.
        """
        if self._settings.method_embedding == "student":
            return outputs
        assert views is not None
        expected = {} if self._expected is None else self._expected(batch)
        return {**outputs, "embedding": self.project(views), **expected}

    def _own_cosines(self, samples: NDArray[np.int64], views: NDArray[np.int64]) -> NDArray[np.float32]:
        """Cosines ``(B,)`` of the teachers' embeddings of views to the means of the persons' other images."""
        assert self._views is not None
        unit = self.project(torch.from_numpy(joined(self._views.rows(samples, views))))
        rows = torch.from_numpy(samples)
        labels = self._people[rows]
        return self.centers.without(self.targets[rows], labels).own(unit, labels).numpy()

    def loss(self, embedding: Tensor, batch: Batch, method: LossValue, views: Tensor | None = None) -> LossValue:
        """The total loss of a step, with the method's on the labeled images; the batch has the unlabeled ones, too.

        ``embedding`` ``(B, d)`` is the network's, d is 0 if it has none; ``views`` ``(B, D)`` are the teachers', see
        ``embed_views``.
        """
        rows, weights = self._rows(batch), self._settings
        if not embedding.shape[1]:
            return LossValue(weights.method * method.total, method.parts, method.per_image)
        teacher = views if weights.target == "view" else self.embeddings[rows]
        assert teacher is not None
        with torch.autocast(embedding.device.type, enabled=False):
            student = F.normalize(embedding)
            target = self.project(teacher) if weights.target == "view" else self.targets[rows]
            distance = (1.0 - (student * target).sum(dim=1)).mean()
            others = ~torch.eye(len(student), dtype=torch.bool, device=student.device)
            similarities = (student @ student.T - teacher @ teacher.T)[others].square().mean()
        total = weights.cosine * distance + weights.similarities * similarities + weights.method * method.total
        parts = {"teacher_distance": distance.detach(), "teacher_similarities": similarities.detach()}
        return LossValue(total, {**parts, **method.parts}, method.per_image)

    def _rows(self, batch: Batch) -> Tensor:
        return to_device(batch.samples, self.embeddings.device)


def principal_directions(unit: NDArray[np.float32], size: int) -> NDArray[np.float64]:
    """The top d principal directions (uncentered) of embeddings ``(N, D)``: ``(D, d)`` orthonormal, largest first."""
    values = unit.astype(np.float64)
    _, directions = np.linalg.eigh(values.T @ values)
    return np.ascontiguousarray(directions[:, ::-1][:, :size])


def open_distillation(recipe: Recipe, source: Source, unlabeled: Source | None, folder: Path) -> Distillation | None:
    """The distillation from a recipe's teachers, or None if it has no teachers.

    ``folder`` is that of the run, for the cache of embeddings unless the recipe names another.
    """
    settings = recipe.teacher
    if settings is None:
        return None
    assert source.labels is not None
    teachers = open_teachers(settings.models)
    cache = Path(settings.cache) if settings.cache else folder / CACHE
    views = None
    if settings.embeds_views:
        images = source if unlabeled is None else Joined([source, unlabeled])
        views = ViewEmbeddings(teachers, images, recipe, cache, open_qualities(settings.qualities))
        embeddings = views.originals()
    else:
        sources = [source] if unlabeled is None else [source, unlabeled]
        embeddings = np.concatenate([embed_cached(teachers, images, cache) for images in sources])
    max_size, size = embeddings.shape[1], recipe.backbone.embedding_size
    if size > max_size:
        raise Error(
            f"backbone.embedding_size {size} must be at most {max_size}, the size of the embeddings of "
            f"{' and '.join(settings.models)} together"
        )
    return Distillation(settings, embeddings, source.labels, len(source.identities), size, views, cache)
