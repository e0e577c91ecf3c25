"""``facerts serve``."""

from __future__ import annotations

import ipaddress
import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from facerts.cli.options import (
    Detector,
    DetectorModel,
    DetectorName,
    ModelOrDefault,
    Provider,
    ResizeCrops,
    RunThreads,
)
from facerts.cli.output import warn
from facerts.errors import Error

TOKEN_VARIABLE = "FACERTS_TOKEN"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(serve)


def serve(
    model: ModelOrDefault = None,
    detector: Detector = DetectorName.NONE,
    detector_model: DetectorModel = None,
    resize_crops: ResizeCrops = False,
    host: Annotated[
        str, typer.Option(help="Address to listen on; by default this machine alone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar=TOKEN_VARIABLE,
            help="Requests must carry it. Others on this machine can see options: the variable and --token-file are "
            "safer.",
        ),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="The file whose first line is the token.")] = None,
    keep: Annotated[
        float | None,
        typer.Option(
            help="Accept faces as the model's own threshold for this share does, where a request names no threshold."
        ),
    ] = None,
    min_quality: Annotated[
        float | None, typer.Option(help="Or accept faces at or above this quality.")
    ] = None,
    max_bytes: Annotated[int, typer.Option(min=1, help="Of a request.")] = 32 << 20,
    max_pixels: Annotated[int, typer.Option(min=1, help="Of a picture.")] = 32_000_000,
    max_faces: Annotated[int, typer.Option(min=1, help="Of a picture that are scored, the largest.")] = 100,
    max_pictures: Annotated[int, typer.Option(min=1, help="In a request.")] = 16,
    queue: Annotated[
        int, typer.Option(min=1, help="Requests worked on at the same time; more are turned away with 503.")
    ] = 64,
    timeout: Annotated[
        float,
        typer.Option(help="Seconds for a request's body to arrive, again for its answer, and to read that."),
    ] = 30.0,
    header_timeout: Annotated[float, typer.Option(help="Seconds for a request's headers to arrive.")] = 10.0,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name or address that the service is reached under, beside localhost, --host and the address that "
            "a request comes in on; may be repeated. * for all.",
        ),
    ] = None,
    allowed_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Whose pages may post, e.g. https://faces.example, beside the service's own; may be repeated. * for "
            "all.",
        ),
    ] = None,
    batch_size: Annotated[
        int,
        typer.Option(
            min=1, help="Most crops of all requests in a run of the network; 1 never joins requests."
        ),
    ] = 8,
    batch_wait_ms: Annotated[
        float,
        typer.Option(
            min=0, help="Between runs, wait so long for a run that would not be full to become fuller."
        ),
    ] = 0.0,
    threads: RunThreads = 1,
    provider: Provider = None,
) -> None:
    """Answer HTTP requests with the faces in pictures, and show a page for people; see docs/serve.md.

    Example: facerts serve --detector yunet --detector-model yunet.onnx --port 8000
    """
    from facerts.scoring import load
    from facerts.serve import Settings, build, listen
    from facerts.serve import serve as answer

    settings = Settings(
        token=_token(token, token_file),
        keep=keep,
        min_quality=min_quality,
        max_bytes=max_bytes,
        max_pixels=max_pixels,
        max_faces=max_faces,
        max_pictures=max_pictures,
        queue=queue,
        timeout=timeout,
        header_timeout=header_timeout,
        batch_wait=batch_wait_ms / 1000,
        allowed_hosts=(*(allowed_host or ()), host),
        allowed_origins=tuple(allowed_origin or ()),
    )
    scorer = load(
        model,
        detector=detector.value,
        detector_model=detector_model,
        resize_crops=resize_crops,
        providers=provider,
        threads=threads,
        batch_size=batch_size,
    )
    app = build(scorer, settings)
    if settings.token is None and not _is_loopback(host):
        warn(f"everybody who reaches {host} may use this service; give it a token ({TOKEN_VARIABLE})")
    listener = listen(host, port)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("facerts").setLevel(logging.INFO)
    answer(app, listener, settings)


def _token(token: str | None, file: Path | None) -> str | None:
    if file is None:
        # The command line takes an empty variable for none; who sets one means to be protected.
        return os.environ.get(TOKEN_VARIABLE) if token is None else token
    if token is not None:
        raise typer.BadParameter(
            f"--token-file and --token (or {TOKEN_VARIABLE}) both give a token; give one"
        )
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{file}: the token cannot be read ({error})") from error
    return lines[0].strip() if lines else ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
