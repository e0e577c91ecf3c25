"""The teachers' embeddings of every keyed view of every image, computed once and kept in files.

A teacher takes longer for a crop than a small network takes to learn from it. With ``data.augmentation.views`` the same
views come again, so each teacher is asked once for each of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.changed import ChangedCrops
from facerts.datasets.fingerprint import hash_images
from facerts.embedding import OnnxEmbedder
from facerts.embedding.embed import embed_source
from facerts.embedding.output_cache import OutputCache
from facerts.errors import Error, first_line
from facerts.io.console import say, warn
from facerts.io.files import atomic_write
from facerts.io.progress import progress_bar
from facerts.training.augment import Corruption, build_augmentation
from facerts.training.distillation.teachers import BATCH
from facerts.training.recipe import Recipe

# Images of one file: what an interruption can lose is at most the time for one of them.
FILE_IMAGES = 4096
# Embeddings are kept in 16 bits, which changes a cosine by less than 0.001.
STORED = np.float16


class ViewEmbeddings:
    """Embeddings of the K views of N images by several teachers.

    Files are found by the hash of everything they depend on, so several runs may share their folder, and more views
    only add files.

    Args:
        images: the labeled images and then those without identity, without augmentation.
        cache: the folder.

    Raises:
        Error: there is no room for the files.
    """

    def __init__(
        self, embedders: Sequence[OnnxEmbedder], images: Source, recipe: Recipe, cache: Path
    ) -> None:
        views = recipe.data.augmentation.views
        assert views is not None
        self._images, self._recipe, self._cache = images, recipe, OutputCache(cache)
        starts = range(0, len(images), FILE_IMAGES)
        sha256 = hash_images(images).sha256
        files = {
            (number, view, start): self._file(embedder, sha256, view, start)
            for view in range(views)
            for number, embedder in enumerate(embedders)
            for start in starts
        }
        self._compute(embedders, files)
        self._files = [
            [
                [np.load(files[number, view, start], mmap_mode="r") for start in starts]
                for view in range(views)
            ]
            for number in range(len(embedders))
        ]

    def rows(self, samples: NDArray[np.int64], views: NDArray[np.int64]) -> list[NDArray[np.float32]]:
        """For each teacher, the unit embeddings ``(B, D)`` of the given views of the given images."""
        found = []
        for files in self._files:
            where = zip(views.tolist(), *map(np.ndarray.tolist, np.divmod(samples, FILE_IMAGES)), strict=True)
            unit = np.stack([files[view][file][row] for view, file, row in where]).astype(np.float32)
            found.append(unit / np.linalg.norm(unit, axis=1, keepdims=True))
        return found

    def _file(self, embedder: OnnxEmbedder, sha256: str, view: int, start: int) -> Path:
        """The file of a teacher's embeddings of one view of some images."""
        data, teacher = self._recipe.data, self._recipe.teacher
        assert teacher is not None
        key = {
            "teacher": embedder.identity,
            "images": sha256,
            "first": start,
            "seed": self._recipe.seed,
            "view": view,
            "augmentation": data.augmentation.model_dump(mode="json", exclude={"views"}),
            "zoom": teacher.zoom,
            "corrupted": [data.corrupt_fraction, data.corrupt_radius],
        }
        return self._cache.path_of(key, ".npy")

    def _compute(self, embedders: Sequence[OnnxEmbedder], files: dict[tuple[int, int, int], Path]) -> None:
        """Write the files that do not exist yet, or are damaged."""
        images = {start: min(FILE_IMAGES, len(self._images) - start) for _, _, start in files}
        missing = {key: path for key, path in files.items() if not _is_intact(path, images[key[2]])}
        if not missing:
            return
        sizes = [
            embedder(np.zeros((1, *self._images.crop(0).shape), np.uint8)).embedding.shape[1]
            for embedder in embedders
        ]
        bytes_needed = sum(images[start] * sizes[number] * STORED().itemsize for number, _, start in missing)
        folder = self._cache.folder
        folder.mkdir(parents=True, exist_ok=True)
        if bytes_needed > (free := shutil.disk_usage(folder).free):
            raise Error(
                f"{folder}: the teachers' embeddings of the views need {bytes_needed / 1e9:.1f} GB, and "
                f"{free / 1e9:.1f} GB are free; set fewer data.augmentation.views, or another teacher.cache"
            )
        say(
            f"asking {len(embedders)} teacher{'s' if len(embedders) > 1 else ''} for "
            f"{self._recipe.data.augmentation.views} views of {len(self._images):,} images: "
            f"{bytes_needed / 1e6:,.0f} MB in {folder}"
        )
        total = sum(images[start] for _, _, start in missing)
        with progress_bar() as bar:
            task = bar.add_task("teachers", total=total, unit="views")
            for (number, view, start), path in missing.items():
                rows = range(start, start + images[start])
                outputs = embed_source(
                    embedders[number],
                    self._view(view),
                    flip=False,
                    indices=rows,
                    batch_size=BATCH,
                    progress=False,
                )
                with atomic_write(path) as file:
                    np.save(file, outputs.embedding.astype(STORED))
                bar.advance(task, len(rows))

    def _view(self, view: int) -> Source:
        """The images as the teachers see them in one view."""
        recipe = self._recipe
        data, teacher = recipe.data, recipe.teacher
        assert teacher is not None
        zoom, augment = teacher.zoom, build_augmentation(data.augmentation)
        corrupt = Corruption(
            len(self._images), fraction=data.corrupt_fraction, radius=data.corrupt_radius, seed=recipe.seed
        )

        def change(crop: NDArray[np.uint8], index: int) -> NDArray[np.uint8]:
            return augment(corrupt(crop, index), (recipe.seed, view, index), zoom=zoom)

        return ChangedCrops(self._images, f"view {view}", change)


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
