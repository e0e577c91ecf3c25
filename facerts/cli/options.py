"""Options shared by several commands."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class DetectorName(str, Enum):
    """Face detectors."""

    NONE = "none"
    YUNET = "yunet"
    SCRFD = "scrfd"


Model = Annotated[
    str,
    typer.Option(
        help="Name of a model that ships (see facerts models list), an .onnx embedder (a foreign one with its .json "
        "beside it), or an insightface model pack."
    ),
]
ModelOrDefault = Annotated[
    str | None,
    typer.Option(
        help="Name of a model that ships (see facerts models list), an .onnx embedder (a foreign one with its .json "
        "beside it), or an insightface model pack; default: the default model that ships.",
    ),
]
Pictures = Annotated[
    list[str],
    typer.Argument(
        help="Images, folders, record directories, .tar shards or list files.", metavar="PATHS..."
    ),
]
Detector = Annotated[
    DetectorName,
    typer.Option(help="Face detector for photos: yunet or scrfd; none if the images are aligned crops."),
]
DetectorModel = Annotated[
    Path | None,
    typer.Option(
        help="The detector's .onnx file, or an insightface model pack for scrfd; not needed for yunet after facerts "
        "models pull yunet."
    ),
]
DetThreshold = Annotated[
    float | None,
    typer.Option(
        "--det-threshold",
        min=0,
        max=1,
        help="Minimum detection score of a face; default: the detector's own, 0.6 for yunet and 0.5 for scrfd.",
    ),
]
ResizeCrops = Annotated[
    bool,
    typer.Option(
        "--resize-crops",
        help="Resize aligned crops that are not 112 x 112 (without a detector). Otherwise they are an error, because "
        "they may be photos.",
    ),
]
Batch = Annotated[int, typer.Option(min=1, help="Number of crops in a batch.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads per forward pass; by default, ONNX Runtime decides.")
]
RunBatch = Annotated[
    int | None,
    typer.Option(min=1, help="Number of crops in a batch; by default 16 on the CPU and 64 elsewhere."),
]
RunThreads = Annotated[
    int,
    typer.Option(
        min=1, help="Threads per forward pass; as many passes run at the same time as keep all cores busy."
    ),
]
Provider = Annotated[
    list[str] | None, typer.Option(help="ONNX Runtime execution provider, e.g. CUDAExecutionProvider.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Align = Annotated[
    str | None,
    typer.Option(
        help="Treat images as photos: find and align their faces with this detector, an .onnx file of YuNet or SCRFD, "
        "an insightface model pack, or yunet after facerts models pull yunet."
    ),
]
