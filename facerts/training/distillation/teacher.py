"""Distillation: the network learns to embed as trained embedders do.

The teachers say of each training image where it lies; the network is shown the image augmented and degraded and is to
find the same place. With s the unit embeddings of the network, and t those of the teachers, whose cosine is the mean
of the teachers' cosines (k unit embeddings one after the other, divided by √k),

    L_cos = mean_i (1 − s_i · P t_i)
    L_sim = mean_{i≠j} (s_i · s_j − t_i · t_j)²        (Park et al., "Relational Knowledge Distillation", CVPR 2019,
                                                        with the cosine as the relation)
    L = w_cos L_cos + w_sim L_sim + w_method L_method

P maps the teachers' D numbers to the d of the network and back to length 1: the projection to the d principal
directions of the training images' embeddings, which keeps their cosines better than any other linear map to d numbers
does in the mean square (Eckart and Young, Psychometrika 1936). It is the identity where d = D.

The method's own loss sees the labeled images, compared with the means of P t of each person.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.datasets import Source
from facerts.errors import Error
from facerts.training.class_head.leave_one_out_means import LeaveOneOutMeans
from facerts.training.distillation.embeddings import CACHE, Ensemble
from facerts.training.methods import Batch, Loss
from facerts.training.methods.base import Outputs
from facerts.training.recipe import Recipe
from facerts.training.recipe import Teacher as Settings


class Teacher(nn.Module):
    """The teachers' embeddings of the training images, and the losses against them.

    Args:
        settings: the weights of the losses.
        embeddings: ``(N + U, D)`` unit, of the labeled images and then of the unlabeled, in the order of the data.
        labels: ``(N,)`` people, numbered without gaps.
        size: d of the network's embedding, at most D.
        ensemble: the teachers, where they are asked about views.

    Attributes:
        centers: the people's means.
        projection: ``(D, d)`` principal directions; saved with the run, which would not find the same places with
            another basis. Empty where d = D.
    """

    embeddings: Tensor
    projection: Tensor
    targets: Tensor

    def __init__(
        self,
        settings: Settings,
        embeddings: NDArray[np.float32],
        labels: NDArray[np.int64],
        size: int,
        ensemble: Ensemble | None = None,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._ensemble = ensemble
        self.register_buffer("embeddings", torch.from_numpy(embeddings))
        directions = principal_directions(embeddings, size) if size < embeddings.shape[1] else np.empty(0)
        self.register_buffer("projection", torch.from_numpy(directions.astype(np.float32)))
        self.register_buffer("targets", self.project(self.embeddings))
        self.centers = LeaveOneOutMeans(
            self.targets[: len(labels)], torch.from_numpy(labels), identities=int(labels.max()) + 1
        )

    def project(self, embeddings: Tensor) -> Tensor:
        """P: ``(B, D)`` of the teachers to ``(B, d)`` unit."""
        return (
            F.normalize(embeddings @ self.projection.to(embeddings)) if len(self.projection) else embeddings
        )

    def take_projection(self, projection: Tensor) -> None:
        """Go on with the projection of an earlier part of the run; the means of people come from its checkpoint."""
        self.projection = projection.to(self.embeddings.device)
        self.targets = self.project(self.embeddings)

    def centers_for(self, batch: Batch) -> LeaveOneOutMeans:
        """The people's means, each image of the batch left out of its own."""
        return self.centers.without(self.targets[self._rows(batch)], batch.labels)

    def of_views(self, crops: Tensor) -> Tensor | None:
        """``(B, D)`` what the teachers say of a batch's augmented crops; None where nothing depends on it.

        Args:
            crops: ``(B, 112, 112, 3) uint8`` RGB.
        """
        if self._ensemble is None:
            return None
        return torch.from_numpy(self._ensemble.of_views(crops.cpu().numpy())).to(self.embeddings.device)

    def method_outputs(self, outputs: Outputs, views: Tensor | None) -> Outputs:
        """What the method's loss sees: the network's outputs, or with the teachers' embedding of the view in them.

        With the teachers' embedding a learned scale speaks of the image, and not of what the network has yet to learn.
        """
        if self._settings.method_embedding == "student":
            return outputs
        assert views is not None
        return {**outputs, "embedding": self.project(views)}

    def loss(self, embedding: Tensor, batch: Batch, method: Loss, views: Tensor | None = None) -> Loss:
        """The whole loss of a step.

        Args:
            embedding: ``(B, d)`` of the network.
            batch: of the step, with the unlabeled images.
            method: the method's loss, of the labeled images.
            views: ``(B, D)`` of the teachers, where they are asked about views.
        """
        rows, weights = self._rows(batch), self._settings
        of_view = weights.target == "view"
        if of_view:
            assert views is not None
        with torch.autocast(embedding.device.type, enabled=False):
            student = F.normalize(embedding)
            teacher = views if of_view and views is not None else self.embeddings[rows]
            place = self.project(teacher) if of_view else self.targets[rows]
            distance = (1.0 - (student * place).sum(dim=1)).mean()
            others = ~torch.eye(len(student), dtype=torch.bool, device=student.device)
            similarities = (student @ student.T - teacher @ teacher.T)[others].square().mean()
        total = (
            weights.cosine * distance + weights.similarities * similarities + weights.method * method.total
        )
        parts = {"teacher_distance": distance.detach(), "teacher_similarities": similarities.detach()}
        return Loss(total, {**parts, **method.parts}, method.per_image)

    def _rows(self, batch: Batch) -> Tensor:
        return batch.samples.to(self.embeddings.device)


def principal_directions(unit: NDArray[np.float32], size: int) -> NDArray[np.float64]:
    """``(D, d)`` orthonormal directions in which embeddings ``(N, D)`` differ from 0 most, largest first."""
    values = unit.astype(np.float64)
    _, directions = np.linalg.eigh(values.T @ values)
    return np.ascontiguousarray(directions[:, ::-1][:, :size])


def open_teacher(recipe: Recipe, source: Source, unlabeled: Source | None, folder: Path) -> Teacher | None:
    """The recipe's teachers, or None where it has none.

    Args:
        recipe: of the run.
        source: the labeled training images.
        unlabeled: those without identities.
        folder: of the run, where the teachers' embeddings are kept unless the recipe says otherwise.

    Raises:
        Error: a teacher cannot be used, or the network is to embed in more numbers than the teachers do.
    """
    settings = recipe.teacher
    if settings is None:
        return None
    assert source.labels is not None
    ensemble = Ensemble(settings.models)
    cache = Path(settings.cache) if settings.cache else folder / CACHE
    parts = [ensemble.of_source(images, cache) for images in (source, unlabeled) if images is not None]
    embeddings = parts[0] if len(parts) == 1 else np.concatenate(parts)
    given, size = embeddings.shape[1], recipe.backbone.embedding_size
    if size > given:
        raise Error(
            f"{' and '.join(settings.models)}: {given} numbers in all, and the network learns to embed as they do: "
            f"backbone.embedding_size must be at most {given}, not {size}"
        )
    return Teacher(
        settings, embeddings, source.labels, size, ensemble if settings.asked_about_views else None
    )
