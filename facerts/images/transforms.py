"""Albumentations, which makes some of the changes of ``facerts.images.changes``, and whole pipelines of a user's own.

2.0.8 is the last version under the MIT license.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.errors import DataError, first_line, importing

ImageArray = NDArray[np.uint8]
# Otherwise importing it asks a server for newer versions.
os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")


@cache
def albumentations() -> Any:
    """The library's functions on arrays, as ``pixel`` and ``blur``, and itself as ``library``."""
    with importing("some changes of images need albumentations", "use"):
        import albumentations as library
        from albumentations.augmentations.blur import functional as blur
        from albumentations.augmentations.pixel import functional as pixel
    return SimpleNamespace(library=library, pixel=pixel, blur=blur)


def read_pipeline(path: str | Path) -> Callable[[ImageArray, int], ImageArray]:
    """A pipeline, as ``albumentations.save(pipeline, path, data_format="yaml")`` writes it, of an image and a seed."""
    import yaml

    library = albumentations().library
    try:
        content = yaml.safe_load(Path(path).read_text())
        pipeline = library.from_dict(content)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except KeyError as error:
        raise DataError(f"{path}: albumentations {library.__version__} has no transform {error}") from error
    except (yaml.YAMLError, ValueError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path}: not a pipeline written by albumentations.save(pipeline, path, data_format='yaml') "
            f"({first_line(error)})"
        ) from error
    if not isinstance(pipeline, library.Compose):
        pipeline = library.Compose([pipeline])

    def run(image: ImageArray, seed: int) -> ImageArray:
        pipeline.set_random_seed(seed)
        changed: ImageArray = pipeline(image=image)["image"]
        if changed.shape != image.shape or changed.dtype != np.uint8:
            raise DataError(
                f"{path}: its pipeline makes {changed.dtype} {changed.shape} of uint8 {image.shape}; leave out what "
                "changes the size or type of an image"
            )
        return changed

    run(np.zeros((112, 112, 3), np.uint8), 0)
    return run
