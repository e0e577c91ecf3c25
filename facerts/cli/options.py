"""Options shared by several commands."""

from __future__ import annotations

import os
from typing import Annotated

import typer


def _go_offline(offline: bool) -> None:
    if offline:
        os.environ["FACERTS_OFFLINE"] = "1"


Model = Annotated[
    str,
    typer.Option(
        help="Name of a shipped model (see facerts models list), or path of an .onnx embedder (a foreign one with its "
        ".json beside it) or of an insightface model pack."
    ),
]
ModelOrDefault = Annotated[
    str | None,
    typer.Option(
        help="Name of a shipped model (see facerts models list), or path of an .onnx embedder (a foreign one with its "
        ".json beside it) or of an insightface model pack; by default the default model.",
    ),
]
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
        help="Detector that finds the faces in photos: yunet, which is downloaded (0.2 MB) when it is first needed, or "
        "the path of an .onnx file of YuNet or SCRFD, or of an insightface model pack. auto: yunet, for images that "
        "are not 112 x 112, the size of an aligned crop; none: every image is an aligned crop.",
    ),
]
Offline = Annotated[
    bool,
    typer.Option(
        "--offline",
        callback=_go_offline,
        expose_value=False,
        help="Download nothing, as with FACERTS_OFFLINE=1; fail if yunet is needed and not on this machine.",
    ),
]
DetThreshold = Annotated[
    float | None,
    typer.Option(
        "--det-threshold",
        min=0,
        max=1,
        help="Minimum detector score of a face; by default 0.6 for yunet and 0.5 for scrfd.",
    ),
]
ResizeCrops = Annotated[
    bool,
    typer.Option(
        "--resize-crops",
        help="Every image is an aligned crop, a square of any size; implies --detector none.",
    ),
]
Batch = Annotated[int, typer.Option(min=1, help="Number of crops per batch.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads per forward pass; by default, ONNX Runtime decides.")
]
RunBatch = Annotated[
    int | None,
    typer.Option(min=1, help="Number of crops per batch; by default 16 on the CPU and 64 elsewhere."),
]
RunThreads = Annotated[
    int,
    typer.Option(
        min=1, help="Threads per forward pass; as many passes run at the same time as keep all cores busy."
    ),
]
Provider = Annotated[
    list[str] | None,
    typer.Option(help="ONNX Runtime execution provider, e.g. CUDAExecutionProvider; may be repeated."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
GroupRules = Annotated[
    list[str] | None,
    typer.Option(
        "--groups",
        help="Groups of the images: a CSV file with the header image,ATTRIBUTE[,ATTRIBUTE...] and a row for each "
        "image, or ATTRIBUTE=REGEX, whose first group captures the value in each image's name; may be repeated.",
    ),
]
GroupEdges = Annotated[
    list[str] | None,
    typer.Option(
        help="Edges of ranges of a numeric attribute, e.g. age=13,20,40,60: below 13, 13 to 19, ...; may be repeated."
    ),
]
