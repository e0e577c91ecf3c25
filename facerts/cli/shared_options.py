"""Options that several commands share, and groups of them; see ``facerts.cli.option_groups``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from facerts.detection import FaceFinder
    from facerts.evaluation.image_groups import Groups
    from facerts.scoring import Scorer

_MODEL_HELP = (
    "Name of a model (see facerts models list), or path of an .onnx file (a foreign one with its .json beside it) or "
    "of an insightface model pack"
)
Model = Annotated[str, typer.Option(help=f"{_MODEL_HELP}.")]
ModelOrDefault = Annotated[str | None, typer.Option(help=f"{_MODEL_HELP}; by default the default model.")]
Images = Annotated[
    list[str],
    typer.Argument(
        help="Image files, folders, record directories, .tar shards or list files.", metavar="PATHS..."
    ),
]
Detector = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE",
        help="Detector that finds the faces in photos: yunet, or the path of an .onnx file of YuNet or SCRFD, or of "
        "an insightface model pack. auto: yunet, for images that are not 112 x 112, the size of an aligned crop; none: "
        "every image is an aligned crop, a square of any size.",
    ),
]


def _share(text: str) -> float | str:
    if text == "none":
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no share of the faces, such as 0.95, and not none") from None


def _det_size(text: str) -> int | str:
    return int(text) if text.isdigit() else text


Keep = Annotated[Any, typer.Option(parser=_share, metavar="SHARE|none")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Provider = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="What computes: cpu, cuda, tensorrt, migraphx, rocm, coreml or openvino, or another provider of ONNX "
        "Runtime by its name; may be repeated: what the first cannot compute, the next does, and all must start. By "
        "default auto: the fastest that is here, as facerts doctor --bench measured it, or by a fixed order; of those "
        "named after auto, the first that starts.",
    ),
]


@dataclass(frozen=True)
class QualityOptions:
    """The quality of faces, and the detector that finds them.

    Attributes:
        model: One model in place of the parts: name, or path of an .onnx file (a foreign one with its .json beside it).
        quality: Name or .onnx file of the quality; by default facerts-quality. own is the recognizer's own.
        det_threshold: Minimum detector score of a face; by default 0.6 for YuNet and 0.5 for SCRFD.
        det_size: The longest side at which photos are searched: auto, what is needed for faces that are not too small
            to use; a number of pixels; full, their own. Large faces are found at any size.
        rotate: Search photos without an upright face turned by 90, 180 and 270 degrees, too; by default photos, but not
            the frames of videos.
        min_face_size: Leave out the faces of photos whose box has a side below this number of pixels.
        threads: Threads per forward pass; as many passes run at the same time as keep all cores busy.
    """

    model: str | None = None
    quality: Annotated[str | None, typer.Option(metavar="NAME|FILE")] = None
    detector: Detector = "auto"
    det_threshold: Annotated[float | None, typer.Option(min=0, max=1)] = None
    det_size: Annotated[Any, typer.Option(parser=_det_size, metavar="auto|PIXELS|full")] = "auto"
    rotate: Annotated[bool | None, typer.Option("--rotate/--no-rotate")] = None
    min_face_size: Annotated[float, typer.Option(min=0, metavar="PIXELS")] = 0
    threads: Annotated[int, typer.Option(min=1)] = 1
    provider: Provider = None

    def open(self) -> Scorer:
        """See ``facerts.load``."""
        from facerts.scoring import load

        return load(
            self.model,
            quality=self.quality,
            recognizer=getattr(self, "recognizer", None),
            detector=self.detector,
            det_threshold=self.det_threshold,
            det_size=self.det_size,
            rotate=self.rotate,
            min_face_size=self.min_face_size,
            batch_size=getattr(self, "batch_size", None),
            threads=self.threads,
            providers=self.provider,
        )


@dataclass(frozen=True)
class ScorerOptions(QualityOptions):
    """The quality and the recognizer of faces, and the detector that finds them.

    Attributes:
        recognizer: Name or .onnx file of the recognizer, or an insightface model pack; by default the one that
            facerts models use chose.
    """

    recognizer: Annotated[str | None, typer.Option(metavar="NAME|FILE|PACK")] = None


@dataclass(frozen=True)
class BatchOptions:
    """How the forward passes of a model run.

    Attributes:
        batch_size: Number of crops per batch.
        threads: Threads per forward pass; by default, ONNX Runtime decides.
    """

    batch_size: Annotated[int, typer.Option(min=1)] = 64
    threads: Annotated[int | None, typer.Option(min=1)] = None
    provider: Provider = None

    def keywords(self) -> dict[str, Any]:
        """The arguments of functions that load a model."""
        from facerts.onnx.providers import AUTO

        return {"providers": self.provider or [AUTO], "threads": self.threads, "batch_size": self.batch_size}


@dataclass(frozen=True)
class CropOptions:
    """Whether images are aligned crops or photos."""

    detector: Detector = "none"

    def open(self, batches: BatchOptions) -> FaceFinder | None:
        """What finds the faces in photos; None if every image is an aligned crop."""
        from facerts.detection import open_face_finder

        providers = batches.keywords()["providers"]
        return open_face_finder(self.detector, providers=providers, threads=batches.threads)


@dataclass(frozen=True)
class GroupOptions:
    """Groups of the images, whose acceptance and errors are compared.

    Attributes:
        groups: Groups of the images: a CSV file with the header image,ATTRIBUTE[,ATTRIBUTE...] and a row for each
            image.
        group_edges: Edges of ranges of a numeric attribute, e.g. age=13,20,40,60: below 13, 13 to 19, ...; may be
            repeated.
    """

    groups: Path | None = None
    group_edges: list[str] | None = None

    def read(self) -> Groups | None:
        """The groups; None if none are given."""
        from facerts.evaluation.image_groups import read_groups

        if self.groups is None:
            if self.group_edges:
                raise typer.BadParameter("--group-edges needs the attributes of --groups")
            return None
        return read_groups(self.groups, self.group_edges or ())
