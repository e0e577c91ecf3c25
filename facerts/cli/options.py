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
    DetectorName, typer.Option(help="none: pictures are aligned crops; yunet: find the faces in photos.")
]
DetectorModel = Annotated[Path | None, typer.Option(help="The detector's .onnx file.")]
Batch = Annotated[int, typer.Option(min=1, help="Crops in a run of the network.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads of a run; ONNX Runtime's choice by default.")
]
Provider = Annotated[
    list[str] | None, typer.Option(help="ONNX Runtime execution provider, e.g. CUDAExecutionProvider.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Align = Annotated[
    Path | None, typer.Option(help="Pictures are photos: find and align their faces with this YuNet .onnx.")
]
