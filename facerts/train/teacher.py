"""Distillation: the network learns to embed as a trained embedder does.

The teacher says of each training picture, as it is, where it lies; the network is shown the picture augmented and
degraded and is to find the same place. With s and t the unit embeddings of the network and of the teacher,

    L_cos = mean_i (1 − s_i · t_i)
    L_sim = mean_{i≠j} (s_i · s_j − t_i · t_j)²        (Park et al., "Relational Knowledge Distillation", CVPR 2019,
                                                        with the cosine as the relation)
    L = w_cos L_cos + w_sim L_sim + w_method L_method

The method's own loss, with the people's labels, sees the network's embeddings against the means of the teacher's.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.data import Source
from facerts.embedder import load_embedder
from facerts.errors import Error
from facerts.evaluate.cache import cached_arrays, embedder_key
from facerts.evaluate.embed import embed_source
from facerts.evaluate.pictures import hash_pictures
from facerts.methods import Batch, Loss
from facerts.train.means import LeaveOneOutMeans
from facerts.train.recipe import Recipe
from facerts.train.recipe import Teacher as Settings

# Of the teacher's embeddings, in the run's folder.
CACHE = "teacher.npz"


def teacher_embeddings(settings: Settings, source: Source, cache: Path) -> NDArray[np.float32]:
    """``(N, d)`` unit embeddings of pictures as they are, each the sum of the picture's and of its mirror's.

    Args:
        settings: name the teacher.
        source: of aligned pictures.
        cache: the .npz file that keeps them, unless the settings name another.

    Raises:
        ModelError: the teacher cannot be used.
        DataError: the cache is a file of another kind.
    """
    embedder = load_embedder(settings.model)
    key = f"{embedder_key(embedder, flip=True)} {hash_pictures(source).sha256}"
    arrays = cached_arrays(
        Path(settings.cache) if settings.cache else cache,
        key,
        lambda: {"embedding": embed_source(embedder, source, flip=True).embedding},
    )
    return arrays["embedding"]


class Teacher(nn.Module):
    """A teacher's embeddings of the training pictures, and the losses against them.

    Args:
        settings: the weights of the losses.
        embeddings: ``(N, d)`` unit, in the order of the data.
        labels: ``(N,)`` people, numbered without gaps.

    Attributes:
        centres: the people's means.
    """

    embeddings: Tensor

    def __init__(
        self, settings: Settings, embeddings: NDArray[np.float32], labels: NDArray[np.int64]
    ) -> None:
        super().__init__()
        self._settings = settings
        self.register_buffer("embeddings", torch.from_numpy(embeddings))
        self.centres = LeaveOneOutMeans(
            self.embeddings, torch.from_numpy(labels), identities=int(labels.max()) + 1
        )

    def centres_for(self, batch: Batch) -> LeaveOneOutMeans:
        """The people's means, each image of the batch left out of its own."""
        return self.centres.without(self._of(batch), batch.labels)

    def loss(self, embedding: Tensor, batch: Batch, method: Loss) -> Loss:
        """The whole loss of a step.

        Args:
            embedding: ``(B, d)`` of the network.
            batch: of the step.
            method: the method's loss.
        """
        with torch.autocast(embedding.device.type, enabled=False):
            student, teacher = F.normalize(embedding), self._of(batch)
            distance = (1.0 - (student * teacher).sum(dim=1)).mean()
            others = ~torch.eye(len(student), dtype=torch.bool, device=student.device)
            similarities = (student @ student.T - teacher @ teacher.T)[others].square().mean()
        weights = self._settings
        total = (
            weights.cosine * distance + weights.similarities * similarities + weights.method * method.total
        )
        parts = {"teacher_distance": distance.detach(), "teacher_similarities": similarities.detach()}
        return Loss(total, {**parts, **method.parts}, method.per_image)

    def _of(self, batch: Batch) -> Tensor:
        """``(B, d)`` the teacher's unit embeddings of the batch's images as they are."""
        return self.embeddings[batch.samples.to(self.embeddings.device)]


def open_teacher(recipe: Recipe, source: Source, folder: Path) -> Teacher | None:
    """The recipe's teacher, or None where it has none.

    Args:
        recipe: of the run.
        source: the training pictures.
        folder: of the run, where the teacher's embeddings are kept unless the recipe says otherwise.

    Raises:
        Error: the teacher cannot be used, or embeds in another number of numbers than the network is to.
    """
    settings = recipe.teacher
    if settings is None:
        return None
    assert source.labels is not None
    embeddings = teacher_embeddings(settings, source, folder / CACHE)
    size = embeddings.shape[1]
    if size != recipe.backbone.embedding_size:
        raise Error(
            f"{settings.model} embeds in {size} numbers, and the network learns to embed as it does: "
            f"backbone.embedding_size must be {size}, not {recipe.backbone.embedding_size}"
        )
    return Teacher(settings, embeddings, source.labels)
