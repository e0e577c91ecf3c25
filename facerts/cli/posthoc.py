"""``facerts posthoc``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from facerts.cli.options import Batch, Json, Model, Provider, Threads
from facerts.cli.output import fields_table, print_json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(posthoc)


def posthoc(
    method: Annotated[str, typer.Argument(help="The method: rts, dul, pfe, tau, tempnet, …")],
    model: Model,
    data: Annotated[list[str], typer.Option(help="Aligned pictures with identities; may be repeated.")],
    out: Annotated[Path, typer.Option(help="The .onnx file to write.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Settings of the method: kl_weight=30 margin=0.4", metavar="[KEY=VALUE]..."),
    ] = None,
    tap: Annotated[
        str | None,
        typer.Option(help="An earlier tensor of the graph that the head reads beside the embedding."),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="The .npz file that keeps what the embedder says; beside --out by default."),
    ] = None,
    norm: Annotated[
        bool | None,
        typer.Option(
            help="The head reads the logarithm of the embedding's length too; by default where there is one."
        ),
    ] = None,
    views: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Views of each picture: itself and augmented ones. By default 1; 4 for methods that compare views.",
        ),
    ] = None,
    flip: Annotated[bool, typer.Option(help="Half of the augmented views are mirrored.")] = True,
    scale: Annotated[
        float, typer.Option(min=0, max=0.9, help="Their largest relative change of scale.")
    ] = 0.15,
    shift: Annotated[
        float, typer.Option(min=0, max=0.4, help="Their largest shift, as a share of the side.")
    ] = 0.04,
    rotation: Annotated[float, typer.Option(min=0, max=180, help="Their largest rotation in degrees.")] = 8.0,
    ladder: Annotated[
        float, typer.Option(min=0, max=1, help="Share of them that is degraded: blur, noise, light, …")
    ] = 0.5,
    ladder_strength: Annotated[float, typer.Option(min=0.01, max=1, help="The hardest degradation.")] = 1.0,
    hidden: Annotated[int, typer.Option(min=1, help="Units of the hidden layer.")] = 256,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the pictures, at most.")] = 8,
    train_batch: Annotated[int, typer.Option(min=2, help="Pictures in a step of training.")] = 512,
    per_identity: Annotated[
        int, typer.Option(min=2, help="Pictures of a person in a step, for methods that compare a person's.")
    ] = 4,
    lr: Annotated[float, typer.Option(min=0, help="Learning rate of Adam.")] = 1e-3,
    holdout: Annotated[
        float, typer.Option(min=0, max=0.9, help="Share of the identities whose loss ends the training.")
    ] = 0.1,
    seed: Annotated[int, typer.Option(help="Of weights, orders, views, noise and held-out identities.")] = 0,
    device: Annotated[str, typer.Option(help="Where the training runs: auto, cpu or cuda.")] = "auto",
    terms: Annotated[str, typer.Option(help="Terms of the pictures, written into the file.")] = "",
    batch_size: Batch = 64,
    threads: Threads = None,
    provider: Provider = None,
    json: Json = False,
) -> None:
    """Train a quality head on a frozen ONNX embedder, and write one ONNX file with embedding and quality.

    Example: facerts posthoc rts --model theirs.onnx --data faces/ --out scored.onnx
    """
    from facerts.hub.registry import find_model
    from facerts.training.posthoc import HeadSettings, add_quality
    from facerts.training.recipe import Augmentation

    done = add_quality(
        method,
        find_model(model),
        data,
        out,
        overrides=overrides or [],
        settings=HeadSettings(hidden, epochs, train_batch, lr, holdout, seed, device, per_identity, norm),
        views=views,
        augmentation=Augmentation(
            flip=flip,
            scale=scale,
            shift=shift,
            rotation=rotation,
            ladder=ladder,
            ladder_strength=ladder_strength,
        ),
        tap=tap,
        cache=cache,
        terms=terms,
        providers=provider,
        threads=threads,
        batch_size=batch_size,
    )
    result = {
        "file": str(out),
        "features": str(done.cache),
        "images": done.trained.images,
        "identities": done.trained.identities,
        "loss": [round(loss, 4) for loss in done.trained.loss],
        "heldout_loss": [round(loss, 4) for loss in done.trained.heldout_loss],
        "checked_crops": done.parity.crops,
        "smallest_cosine": done.parity.cosine,
        "largest_quality_error": done.parity.quality_error,
    }
    print_json(result) if json else fields_table(result)
