"""``facerts posthoc``: a quality for a recognizer, by a head on its features or from another model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from facerts.cli.export import notes_of, print_next, thresholds_of
from facerts.cli.option_groups import Commands, Group
from facerts.cli.output import EXIT_SOME_FAILED, print_result, warn
from facerts.cli.settings import CommandSettings
from facerts.cli.shared_options import Json, Model, NewFile

METHOD = "METHOD"
# The shipped model whose quality is grafted if none is named.
QUALITY = "facerts-quality"


class _Methods(Group):
    """A group in which any word but a command's name is the method of a head, or one of its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [METHOD, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        # The usage of a head names its method as an argument.
        return None if name == METHOD else name, command, rest


posthoc = Commands(
    cls=_Methods, no_args_is_help=True, help="Add a quality to a recognizer without changing its embeddings."
)


@posthoc.command()
def graft(
    *,
    model: Model,
    quality: str = QUALITY,
    out: NewFile,
    data: list[str] | None = None,
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Merge a recognizer and a quality model into one ONNX file with the outputs of both, without training.

    Exits with status 1 if any of the faces to calibrate on could not be read.

    Example: facerts posthoc graft --model theirs.onnx --out joined.onnx

    Args:
        quality: Name of a bundled model, or path of an .onnx model with a quality (a third-party one with its .json
            next to it).
        out: Path of the .onnx file to write.
        data: Your own faces, as for facerts calibrate, to choose quality and match thresholds on; may be repeated.
    """
    from facerts.calibration.graft import graft_quality

    result = graft_quality(model, quality, out, faces=data, **settings.runtime())
    description, parity = result.description, result.parity
    for note in notes_of(description, result.left_out):
        warn(note)
    summary = {
        "file": str(out),
        "bytes": out.stat().st_size,
        "method": description.method,
        "checked_crops": parity.crops,
        "smallest_cosine": parity.cosine,
        "largest_quality_error": parity.quality_error,
        **thresholds_of(description),
    }
    print_result(summary, json)
    print_next(out, description)
    if result.left_out:
        raise typer.Exit(EXIT_SOME_FAILED)


@posthoc.command(METHOD)
def head(
    method: str,
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None,
    *,
    model: Model,
    data: list[str],
    out: NewFile,
    terms: str = "",
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Train a quality head on a frozen ONNX recognizer, and write one ONNX file with both outputs.

    On held-out people, the head is compared with facerts-quality, and thresholds are chosen as by facerts
    calibrate.

    Example: facerts posthoc rts --model theirs.onnx --data faces/ --out scored.onnx

    Args:
        method: Name of the method: rts, dul, pfe, tau, tempnet, …
        data: Aligned images with identities; may be repeated.
        out: Path of the .onnx file to write.
        overrides: Settings of the method, e.g. kl_weight=30, of the training, e.g. train.epochs=20, and of the
            augmented views as in recipes, e.g. augmentation.views=2 augmentation.change=0.8
        terms: License terms of the images, written into the file.
    """
    from facerts.hub.find import find_model
    from facerts.training.posthoc import add_quality

    result = add_quality(
        method,
        find_model(model),
        data,
        out,
        overrides=overrides or [],
        cache=settings.output_cache,
        terms=terms,
        **settings.runtime(),
    )
    summary = {
        "file": str(out),
        "features": str(result.cache),
        "images": result.trained.images,
        "identities": result.trained.identities,
        "loss": [round(loss, 4) for loss in result.trained.loss],
        "heldout_loss": [round(loss, 4) for loss in result.trained.heldout_loss],
        "checked_crops": result.parity.crops,
        "smallest_cosine": result.parity.cosine,
        "largest_quality_error": result.parity.quality_error,
        **thresholds_of(result.description),
    }
    for note in notes_of(result.description, ()):
        warn(note)
    if not json:
        for found in result.comparisons:
            summary["measured"] = f"{found.people} held-out people, {found.images} images"
            summary[f"better_than_{found.reference},_{found.crops}_crops"] = found.verdict
    if result.advice:
        warn(result.advice)
    comparisons = [{**asdict(found), "better": found.better, "verdict": found.verdict} for found in result.comparisons]
    print_result(summary, json, details={"comparisons": comparisons, "advice": result.advice})
    print_next(out, result.description)
