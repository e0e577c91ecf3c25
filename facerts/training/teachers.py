"""What the teachers say of the images: embeddings of the originals or of augmented views, and qualities.

A teacher takes longer for a crop than a small network takes to learn from it. With ``data.augmentation.views`` the same
views come again, so each teacher is asked once for each of them, and the answers are kept in files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.changed import ChangedCrops
from facerts.datasets.fingerprint import hash_images
from facerts.datasets.source import WrappedSource
from facerts.embedding import OnnxEmbedder, load_embedder
from facerts.embedding.embed import IN_FLIGHT, embed_source, score_source
from facerts.embedding.onnx_embedder import OnnxModel, OnnxQuality
from facerts.embedding.output_cache import OutputCache
from facerts.errors import Error, first_line
from facerts.hub.find import find_model
from facerts.io.console import say, warn
from facerts.io.files import atomic_write
from facerts.io.progress import progress_bar
from facerts.training.augment import KeptViews, kinds_of
from facerts.training.recipe import QualityTeacher, Recipe

# Name of the cache folder inside the run folder.
CACHE = "teachers"
# Images per forward pass. The maps of larger batches leave a core's cache, which doubles the time of some teachers.
BATCH = 16
# Images of one file: what an interruption can lose is at most the time for one of them.
FILE_IMAGES = 4096
# Embeddings are kept in 16 bits, which changes a cosine by less than 0.001.
STORED = np.float16
# Keeps the logarithm of a zero norm finite.
MIN_NORM = 1e-6

# By view, and by file of images.
Answers = list[list[NDArray[np.float16]]]


def open_teachers(models: Sequence[str]) -> list[OnnxEmbedder]:
    """The models whose embeddings are learned."""
    return [load_embedder(find_model(model), threads=_threads()) for model in models]


def open_qualities(teachers: Sequence[QualityTeacher]) -> list[OnnxQuality]:
    """The models whose quality is learned."""
    return [
        OnnxQuality(find_model(teacher.model), description=teacher.description, threads=_threads())
        for teacher in teachers
    ]


def _threads() -> int:
    """Threads of a forward pass: several batches are in a teacher at a time, and share the cores."""
    return max(1, (os.cpu_count() or 1) // IN_FLIGHT)


def joined(unit: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Unit embeddings of k teachers, concatenated and divided by √k: the cosine of two is the mean of the teachers'."""
    if len(unit) == 1:
        return unit[0]
    return np.concatenate(unit, axis=1) / np.float32(np.sqrt(len(unit)))


def embed_cached(teachers: Sequence[OnnxEmbedder], source: Source, cache: Path) -> NDArray[np.float32]:
    """``(N, D)`` joined unit embeddings of a source's images plus their mirrors', from the cache if it has them.

    The cache is a folder with one file per teacher and set of images; several runs may share it.
    """
    outputs, sha256 = OutputCache(cache), hash_images(source).sha256

    def embedding(teacher: OnnxEmbedder) -> NDArray[np.float32]:
        key = {"teacher": teacher.identity, "images": sha256, "flip": True}
        found = outputs.arrays(
            key, lambda: {"embedding": embed_source(teacher, source, flip=True, batch_size=BATCH).embedding}
        )
        return found["embedding"]

    return joined([embedding(teacher) for teacher in teachers])


class ViewEmbeddings:
    """Embeddings of the K views of N images by several teachers, and qualities by others.

    Images are the labeled and then those without identity, without augmentation. Files are found by the hash of
    everything they depend on, so several runs may share their folder, and more views only add files. ``identity`` is
    a hash of everything that the answers depend on.
    """

    def __init__(
        self,
        embedders: Sequence[OnnxEmbedder],
        images: Source,
        recipe: Recipe,
        cache: Path,
        qualities: Sequence[OnnxQuality] = (),
    ) -> None:
        views = recipe.data.augmentation.views
        assert views is not None
        self._images, self._recipe, self._cache = images, recipe, OutputCache(cache)
        starts = range(0, len(images), FILE_IMAGES)
        sha256 = hash_images(images).sha256
        teachers = [*embedders, *qualities]
        # All teachers of some images come in a row, so that each view is made once for all of them.
        files = {
            (number, view, start): self._file(teacher, sha256, view, start)
            for view in range(views)
            for start in starts
            for number, teacher in enumerate(teachers)
        }
        self.identity = hashlib.sha256("".join(path.name for path in files.values()).encode()).hexdigest()
        self._compute(teachers, files)
        answers = [
            [[np.load(files[number, view, start], mmap_mode="r") for start in starts] for view in range(views)]
            for number in range(len(teachers))
        ]
        self._embeddings, self._qualities = answers[: len(embedders)], answers[len(embedders) :]

    @property
    def count(self) -> int:
        """Number of views of each image."""
        return len(self._embeddings[0])

    def rows(self, samples: NDArray[np.int64], views: NDArray[np.int64]) -> list[NDArray[np.float32]]:
        """For each teacher, the unit embeddings ``(B, D)`` of the given views of the given images."""
        return [_unit(_rows(files, samples, views)) for files in self._embeddings]

    def originals(self) -> NDArray[np.float32]:
        """``(N, D)`` the teachers' joined embeddings of the images themselves."""
        images = np.arange(len(self._images))
        return joined(self.rows(images, np.zeros_like(images)))

    def answers(self, samples: NDArray[np.int64], views: NDArray[np.int64]) -> NDArray[np.float32]:
        """``(B, F)`` all that is known of the given views of the given images.

        Those are the teachers' joined unit embeddings, the logarithms of their norms, and the qualities.
        """
        found = [_rows(files, samples, views) for files in self._embeddings]
        norms = [np.log(np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), MIN_NORM)) for rows in found]
        qualities = [_rows(files, samples, views) for files in self._qualities]
        return np.concatenate([joined([_unit(rows) for rows in found]), *norms, *qualities], axis=1)

    def _file(self, model: OnnxModel, sha256: str, view: int, start: int) -> Path:
        """The file of what a teacher says of one view of some images."""
        data = self._recipe.data
        augmentation = data.augmentation.model_dump(mode="json", exclude={"views", "flip"})
        augmented = {"augmentation": {**augmentation, "kinds": kinds_of(data.augmentation)}}
        key = {
            "teacher": model.identity,
            "images": sha256,
            "first": start,
            "view": view,
            **(augmented if view else {}),
        }
        return self._cache.path_of(key, ".npy")

    def _compute(self, teachers: Sequence[OnnxModel], files: dict[tuple[int, int, int], Path]) -> None:
        """Write the files that do not exist yet, or are damaged."""
        images = {start: min(FILE_IMAGES, len(self._images) - start) for _, _, start in files}
        missing = {key: path for key, path in files.items() if not _is_intact(path, images[key[2]])}
        if not missing:
            return
        sizes = [_answers(teacher, self._images, range(1)).shape[1] for teacher in teachers]
        bytes_needed = sum(images[start] * sizes[number] * STORED().itemsize for number, _, start in missing)
        folder = self._cache.folder
        folder.mkdir(parents=True, exist_ok=True)
        if bytes_needed > (free := shutil.disk_usage(folder).free):
            raise Error(
                f"{folder}: what the teachers say of the views needs {bytes_needed / 1e9:.1f} GB, and "
                f"{free / 1e9:.1f} GB are free; set fewer data.augmentation.views, or another teacher.cache"
            )
        say(
            f"asking {len(teachers)} teacher{'s' if len(teachers) > 1 else ''} for "
            f"{self._recipe.data.augmentation.views} views of {len(self._images):,} images: "
            f"{bytes_needed / 1e6:,.0f} MB in {folder}"
        )
        total = sum(images[start] for _, _, start in missing)
        with progress_bar() as bar:
            task = bar.add_task("teachers", total=total, unit="views")
            for (view, start), keys in groupby(missing, lambda key: key[1:]):
                rows, crops = range(start, start + images[start]), _HeldCrops(self._view(view))
                for key in keys:
                    answers = _answers(teachers[key[0]], crops, rows)
                    with atomic_write(missing[key]) as file:
                        np.save(file, answers.astype(STORED))
                    bar.advance(task, len(rows))

    def _view(self, view: int) -> Source:
        """The images as the teachers see them in one view."""
        kept = KeptViews(self._recipe.data.augmentation, self._recipe.seed)

        def change(crop: NDArray[np.uint8], index: int) -> NDArray[np.uint8]:
            return kept.view(crop, view, index)

        return ChangedCrops(self._images, f"view {view}", change)


class _HeldCrops(WrappedSource):
    """Crops that are made once, however often they are read."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._crops: dict[int, NDArray[np.uint8]] = {}

    def crop(self, index: int) -> NDArray[np.uint8]:
        if index not in self._crops:
            self._crops[index] = self._source.crop(index)
        return self._crops[index]


def _answers(teacher: OnnxModel, images: Source, rows: range) -> NDArray[np.float32]:
    """What a teacher says of some images: ``(rows, D)`` embeddings, of unit length if their norms are not known.

    A model without embedding says the quality ``(rows, 1)``.
    """
    if isinstance(teacher, OnnxEmbedder):
        outputs = embed_source(teacher, images, flip=False, indices=rows, batch_size=BATCH, progress=False)
        return outputs.embedding if outputs.norm is None else outputs.embedding * outputs.norm[:, None]
    assert isinstance(teacher, OnnxQuality)
    scores = score_source(images, {"quality": teacher}, indices=rows, batch_size=BATCH, progress=False)
    return scores["quality"][:, None]


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(MIN_NORM))
    return unit


def _rows(files: Answers, samples: NDArray[np.int64], views: NDArray[np.int64]) -> NDArray[np.float32]:
    """What one teacher said of the given views of the given images."""
    where = zip(views.tolist(), *map(np.ndarray.tolist, np.divmod(samples, FILE_IMAGES)), strict=True)
    return np.stack([files[view][file][row] for view, file, row in where]).astype(np.float32)


def _is_intact(path: Path, images: int) -> bool:
    """Whether a file exists and has embeddings of so many images; warns of a damaged one."""
    if not path.is_file():
        return False
    try:
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        warn(f"{path}: damaged ({first_line(error)}); it is computed again")
        return False
    if stored.ndim == 2 and stored.dtype == STORED and len(stored) == images:
        return True
    warn(f"{path}: not the embeddings of {images:,} images; it is computed again")
    return False
