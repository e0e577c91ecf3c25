"""``facerts web``."""

from __future__ import annotations

import gzip
from typing import Annotated

import typer

from facerts.cli.output import print_result
from facerts.cli.shared_options import Json, NewFolder


def web(
    *,
    out: NewFolder,
    recognizer: Annotated[str | None, typer.Option(metavar="MODEL")] = None,
    json: Json = False,
) -> None:
    """Write a page that scores photos in the browser, and its ES module; images never leave the visitor's machine.

    Example: facerts web --out site/

    Args:
        out: Folder to write: static files for any web server, such as python -m http.server --directory site/.
        recognizer: Name or .onnx file of the recognizer that compares faces; by default, faces are not compared.
    """
    from facerts.web import write_site

    sizes = write_site(out, recognizer)
    # As a server would compress them; what is compressed already stays about as large.
    packed = sum(len(gzip.compress((out / name).read_bytes())) for name in sizes)
    summary: dict[str, object] = {
        "folder": str(out),
        "files": len(sizes),
        "bytes": sum(sizes.values()),
        "bytes_compressed": packed,
    }
    print_result(lambda: summary, json)
