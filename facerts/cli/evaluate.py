"""``facerts evaluate``: how good a model is, and how good its scores of pictures are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from facerts.cli.options import Batch, Json, Model, Provider, Threads
from facerts.cli.output import print_json, rows_table

evaluate = typer.Typer(
    no_args_is_help=True,
    help="Verification, error versus reject, out-of-distribution: numbers with intervals.",
)

Data = Annotated[list[str], typer.Option(help="A .bin set or a folder with pairs.txt; may be repeated.")]
Out = Annotated[Path, typer.Option(help="The result folder; several commands may share one.")]
Flip = Annotated[bool, typer.Option(help="Add each crop's mirror to its embedding.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.add_typer(evaluate, name="evaluate")


@evaluate.command()
def verification(
    model: Model,
    data: Data,
    out: Out,
    flip: Flip = True,
    batch_size: Batch = 64,
    threads: Threads = None,
    provider: Provider = None,
    json: Json = False,
) -> None:
    """Same person or not: 10-fold accuracy, AUROC, EER and TAR at low FAR.

    Example: facerts evaluate verification --model m.onnx --data lfw/ --out results
    """
    _pairs("verification", model, data, out, flip, batch_size, threads, provider, json)


@evaluate.command()
def reject(
    model: Model,
    data: Data,
    out: Out,
    flip: Flip = True,
    batch_size: Batch = 64,
    threads: Threads = None,
    provider: Provider = None,
    json: Json = False,
) -> None:
    """Error versus reject: FNMR at FMR 0.001 while the pairs of lowest quality are left out.

    Example: facerts evaluate reject --model m.onnx --data lfw/ --out results
    """
    _pairs("reject", model, data, out, flip, batch_size, threads, provider, json)


@evaluate.command()
def ood(
    model: Model,
    faces: Annotated[list[str], typer.Option("--in", help="Pictures of faces; may be repeated.")],
    others: Annotated[list[str], typer.Option("--out-of", help="Pictures of other things; may be repeated.")],
    out: Out,
    exclude_in: Annotated[str | None, typer.Option(help="File names to leave out of --in, with *.")] = None,
    exclude_out_of: Annotated[
        str | None, typer.Option(help="File names to leave out of --out-of, with *.")
    ] = None,
    batch_size: Batch = 64,
    threads: Threads = None,
    provider: Provider = None,
    json: Json = False,
) -> None:
    """Faces against what is no face, by the model's quality and by its embedding norm.

    Example: facerts evaluate ood --model m.onnx --in lfw/ --in aaf/ --out-of pets/ --out results
    """
    from facerts.embedder import load_embedder
    from facerts.evaluate.run import run_ood

    embedder = load_embedder(model, providers=provider, threads=threads, batch_size=batch_size)
    result = run_ood(
        embedder,
        faces,
        others,
        out,
        exclude_faces=exclude_in,
        exclude_others=exclude_out_of,
        batch_size=batch_size,
    )
    print_json(result["ood"]) if json else _show_ood(result["ood"])


def _pairs(
    kind: str,
    model: Path,
    data: list[str],
    out: Path,
    flip: bool,
    batch_size: int,
    threads: int | None,
    provider: list[str] | None,
    json: bool,
) -> None:
    from facerts.embedder import load_embedder
    from facerts.evaluate.run import run_pairs

    embedder = load_embedder(model, providers=provider, threads=threads, batch_size=batch_size)
    result = run_pairs(embedder, [kind], data, out, flip=flip, batch_size=batch_size)
    if json:
        print_json(result[kind])
    else:
        (_show_verification if kind == "verification" else _show_reject)(result[kind])


def _show_verification(sections: dict[str, dict[str, Any]]) -> None:
    rows = [
        [
            name,
            _with_interval(section["accuracy"]),
            f"{section['auroc']:.4f}",
            f"{section['eer']:.4f}",
            *[_with_interval(point) for point in section["tar_at_far"].values()],
            f"{section['pairs']:,}",
        ]
        for name, section in sections.items()
    ]
    fars = next(iter(sections.values()))["tar_at_far"]
    header = ["benchmark", "accuracy", "AUROC", "EER", *[f"TAR@FAR {far}" for far in fars], "pairs"]
    rows_table("Verification (95 % intervals over pairs)", header, rows)


def _show_reject(sections: dict[str, list[dict[str, Any]]]) -> None:
    rows = []
    for name, curves in sections.items():
        for curve in curves:
            at = dict(zip(curve["rejected"], curve["fnmr"], strict=True))
            rows.append(
                [
                    f"{name}, {curve['by']}, {curve['convention']}",
                    *[f"{at[share]:.4f}" for share in (0.0, 0.05, 0.1, 0.2)],
                    *[_area(curve, end) for end in ("0.2", "0.95")],
                    f"{curve['random_area']:.4f}",
                    f"{curve['impostors']:,}",
                ]
            )
    header = [
        "benchmark, score, threshold",
        "0 %",
        "5 %",
        "10 %",
        "20 %",
        "area to 20 %",
        "to 95 %",
        "random",
    ]
    rows_table("FNMR at FMR 0.001 by share rejected", [*header, "impostors"], rows)


def _show_ood(section: dict[str, Any]) -> None:
    rows = []
    for score, pooled in section["by"].items():
        # One source by itself is all of them.
        split = {"all": pooled, **pooled["per_source"]} if len(section["in"]) > 1 else pooled["per_source"]
        for source, numbers in split.items():
            tnr = numbers["tnr_at_tpr"]
            rows.append(
                [
                    f"{score}, {source}",
                    _number_and_interval(numbers["auroc"], numbers["ci95"]["auroc"]),
                    *[_number_and_interval(tnr[at], numbers["ci95"][at]) for at in ("0.90", "0.95")],
                    f"{numbers['aupr']:.4f}",
                ]
            )
    faces, others = sum(section["in"].values()), sum(section["out"].values())
    title = f"{faces:,} faces against {others:,} others (95 % intervals over pictures)"
    rows_table(title, ["score, faces", "AUROC", "TNR@TPR90", "TNR@TPR95", "AUPR"], rows)


def _area(curve: dict[str, Any], end: str) -> str:
    value = curve["area"][end]
    interval = curve.get("ci95", {}).get(end)
    return f"{value:.4f}" if interval is None else _number_and_interval(value, interval)


def _with_interval(measured: dict[str, Any]) -> str:
    return _number_and_interval(measured["value"], measured["ci95"])


def _number_and_interval(value: float, interval: list[float]) -> str:
    return f"{value:.4f} [{interval[0]:.4f}, {interval[1]:.4f}]"
