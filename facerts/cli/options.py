"""Options that several commands share."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class DetectorName(str, Enum):
    """How faces are found."""

    NONE = "none"
    YUNET = "yunet"
    SCRFD = "scrfd"


Model = Annotated[
    str,
    typer.Option(
        help="A model that ships, by its name (facerts models list), or an .onnx embedder (a foreign one with its "
        ".json beside it), or an insightface model pack."
    ),
]
ModelOrDefault = Annotated[
    str | None,
    typer.Option(
        help="A model that ships, by its name (facerts models list; the default one if left out), or an .onnx "
        "embedder (a foreign one with its .json beside it), or an insightface model pack.",
    ),
]
Pictures = Annotated[
    list[str],
    typer.Argument(
        help="Pictures, folders, record directories, .tar shards, list files.", metavar="PATHS..."
    ),
]
Detector = Annotated[
    DetectorName,
    typer.Option(help="none: pictures are aligned crops; yunet, scrfd: find the faces in photos."),
]
DetectorModel = Annotated[
    Path | None,
    typer.Option(
        help="The detector's .onnx file, or for scrfd an insightface model pack; none is needed for yunet after "
        "facerts models pull yunet."
    ),
]
DetThreshold = Annotated[
    float | None,
    typer.Option(
        "--det-threshold",
        min=0,
        max=1,
        help="Least score of a face in a photo; by default the detector's own, 0.6 for yunet and 0.5 for scrfd.",
    ),
]
ResizeCrops = Annotated[
    bool,
    typer.Option(
        "--resize-crops",
        help="Without a detector: pictures are aligned crops of another size than 112 x 112. Such pictures are an "
        "error otherwise, as they may be photos.",
    ),
]
Batch = Annotated[int, typer.Option(min=1, help="Crops in a run of the network.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads of a run; ONNX Runtime's choice by default.")
]
RunBatch = Annotated[
    int | None,
    typer.Option(min=1, help="Crops in a run of the network; by default 16 on the CPU, 64 elsewhere."),
]
RunThreads = Annotated[
    int,
    typer.Option(min=1, help="Threads of a run of the network; as many run at once as keep all cores busy."),
]
Provider = Annotated[
    list[str] | None, typer.Option(help="ONNX Runtime execution provider, e.g. CUDAExecutionProvider.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Align = Annotated[
    str | None,
    typer.Option(
        help="Pictures are photos: find and align their faces with this detector, an .onnx of YuNet or SCRFD, a model "
        "pack, or yunet after facerts models pull yunet."
    ),
]
