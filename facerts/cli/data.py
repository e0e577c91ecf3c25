"""``facerts data``: inspect data sets, convert between their layouts, and make others of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from facerts.cli.option_groups import Commands
from facerts.cli.output import Column, print_result, print_rows, warn
from facerts.cli.settings import CommandSettings
from facerts.cli.shared_options import Json, ModelOrDefault, NewFile
from facerts.errors import Error

if TYPE_CHECKING:
    from facerts.curation.embeddings import SourceEmbedder
    from facerts.curation.output_spec import OutputSpec, Report

# Rows of a table of identities; the report has more.
PAIRS = 10

data = Commands(no_args_is_help=True, help="Inspect data sets and convert between their layouts.")

Sources = Annotated[
    list[str],
    typer.Argument(
        help="Folders, RecordIO directories, .tar shards, .bin sets or list files; patterns with * are expanded.",
        metavar="SRC...",
    ),
]
Out = Annotated[
    Path,
    typer.Option(help="Path to write to: a new folder for a RecordIO directory or tar shards, or a .tar file."),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random choice.")]


@dataclass(frozen=True)
class WriteOptions:
    """What is written besides the images, and in which layout.

    Attributes:
        shards: Write this number of tar shards instead of a record directory.
        dry_run: Write only the report, OUT.dry-run.json, no images; otherwise it is OUT.report.json.
    """

    shards: Annotated[int | None, typer.Option(min=1)] = None
    dry_run: Annotated[bool, typer.Option("--dry-run")] = False

    def output(self, out: Path) -> OutputSpec:
        """Where and in which layout a data set is written."""
        from facerts.curation.output_spec import OutputSpec

        return OutputSpec(out, self.shards, self.dry_run)


# Options of dedup that have an effect only with --by embedding.
EMBEDDING_OPTIONS = ("threshold", "identity_threshold", "min_own_cosine", "within_identities", "model")


@data.command()
def split(
    sources: Sources,
    *,
    out: Out,
    held_out: Path,
    identities: Annotated[int | None, typer.Option(min=1)] = None,
    share: float | None = None,
    seed: Seed = 0,
    writing: WriteOptions,
    json: Json = False,
) -> None:
    """Split a data set by identity, so that no person is in both parts.

    Example: facerts data split faces/ --out faces_train --held-out faces_test --share 0.1

    Args:
        held_out: Path for the held-out identities, see --out.
        identities: Number of identities to hold out.
        share: Share of the identities to hold out, above 0 and below 1.
    """
    from facerts.curation.rearrange import split as run
    from facerts.datasets import open_source

    result = run(
        open_source(sources),
        writing.output(out),
        writing.output(held_out),
        identities=identities,
        share=share,
        seed=seed,
    )
    _show(result, json)


@data.command()
def pack(
    sources: Sources,
    *,
    out: Out,
    shuffled: Annotated[bool, typer.Option("--shuffle")] = False,
    seed: Seed = 0,
    prefix_sources: Annotated[bool, typer.Option("--prefix-sources")] = False,
    check: bool = True,
    writing: WriteOptions,
    json: Json = False,
) -> None:
    """Write the images of one or more sources, unchanged, as a RecordIO directory, a tar file or tar shards.

    Identities of the same name are merged. A pattern in quotes is one source.

    Exits with status 1 if any image could not be read.

    Example: facerts data pack faces/ more_faces/ --out all_faces

    Args:
        shuffled: In random order, so that training can read them sequentially at full speed.
        prefix_sources: Prefix identities with the name of their source, so that none are merged.
        check: Decode every image, and leave out images that cannot be decoded.
    """
    from facerts.curation.rearrange import pack as run

    shuffle_seed = seed if shuffled else None
    result = run(sources, writing.output(out), prefix_sources=prefix_sources, shuffle_seed=shuffle_seed, check=check)
    _show(result, json)


@data.command()
def generate(
    *,
    out: Out,
    identities: Annotated[int, typer.Option(min=2)] = 10_575,
    images: Annotated[int, typer.Option(min=1)] = 4,
    people: Annotated[int, typer.Option(min=1)] = 1000,
    seed: Seed = 0,
    shards: Annotated[int | None, typer.Option(min=1)] = None,
    json: Json = False,
) -> None:
    """Generate synthetic faces of any number of identities, to measure the speed of training without real data.

    Example: facerts data generate --identities 181000 --out synthetic

    Args:
        identities: Number of identities.
        images: Number of images per identity.
        people: Number of different faces; further identities repeat the first ones.
        shards: Write this number of tar shards instead of a record directory.
    """
    from facerts.curation.output_spec import OutputSpec
    from facerts.curation.rearrange import pack as run
    from facerts.datasets.synthetic import SyntheticSource

    source = SyntheticSource(identities, images, people=people, seed=seed)
    _show(run([source], OutputSpec(out, shards)), json)


@data.command()
def dedup(
    context: typer.Context,
    sources: Sources,
    *,
    out: Out,
    by: Literal["hash", "embedding"] = "hash",
    threshold: float = 0.95,
    identity_threshold: float = 0.7,
    min_own_cosine: float | None = None,
    within_identities: Annotated[bool, typer.Option("--within-identities")] = False,
    identities: Literal["report", "merge", "drop"] = "report",
    model: ModelOrDefault = None,
    writing: WriteOptions,
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Remove duplicates within identities, and report identities that share images or look like one person.

    Exits with status 1 if any image could not be read.

    Example: facerts data dedup faces/ --by embedding --threshold 0.95 --out faces_once

    Args:
        by: Compare images by their bytes or their embeddings.
        threshold: Minimum cosine similarity of near-duplicates.
        identity_threshold: Minimum cosine similarity of the means of two identities that look like one person.
        min_own_cosine: Drop images whose cosine similarity to the mean of the others of their identity is lower than
            this.
        within_identities: Compare no images of different identities, in less than quadratic time.
        identities: What to do about two identities that look like one person: report, merge, or drop the smaller one.
    """
    from facerts.curation.dedup import DedupThresholds
    from facerts.curation.dedup import dedup as run
    from facerts.datasets import open_source

    if by == "hash":
        _refuse_options(context, EMBEDDING_OPTIONS, "--by hash does not use embeddings")
    result = run(
        open_source(sources),
        writing.output(out),
        _embedder(model, settings) if by == "embedding" else None,
        DedupThresholds(threshold, identity_threshold, min_own_cosine, not within_identities),
        identity_action=identities,
        detector=settings.face_finder() if by == "embedding" else None,
    )
    _show(result, json)


@data.command()
def exclude_overlap(
    sources: Sources,
    *,
    benchmark: list[str],
    out: Out,
    threshold: float = 0.5,
    single_images: Annotated[bool, typer.Option("--single-images")] = False,
    model: ModelOrDefault = None,
    writing: WriteOptions,
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Remove the identities that resemble people in a benchmark.

    Exits with status 1 if any image could not be read.

    Example: facerts data exclude-overlap faces/ --benchmark lfw/ --threshold 0.5 --out faces_not_lfw

    Args:
        benchmark: Benchmark whose people to exclude: a folder of LFW, CFP, AgeDB, CALFW, CPLFW, XQLFW or IJB, a .bin
            set, or any other images; may be repeated.
        threshold: Minimum cosine similarity of the mean of an identity and an image of a benchmark.
        single_images: Also compare each image of an identity, not just the mean.
    """
    from facerts.curation.exclude_overlap import exclude_overlap as run
    from facerts.datasets import open_source

    result = run(
        open_source(sources),
        benchmark,
        writing.output(out),
        _embedder(model, settings),
        threshold=threshold,
        single_images=single_images,
        detector=settings.face_finder(),
    )
    _show(result, json)


@data.command()
def unpack(sources: Sources, *, out: Path, json: Json = False) -> None:
    """Write every image of a source as a file, in folders by identity.

    Example: facerts data unpack faces_rec --out faces

    Args:
        out: Path of a new folder.
    """
    from facerts.curation.rearrange import unpack as run
    from facerts.datasets import open_source

    source = open_source(sources)
    run(source, out)
    result = {"images": len(source), "identities": len(source.identities), "folder": str(out)}
    print_result(result, json)


@data.command()
def inspect(sources: Sources, *, every: Annotated[bool, typer.Option("--all")] = False, json: Json = False) -> None:
    """Show the number of images and identities of a source, image sizes, and images that cannot be decoded.

    Exits with status 1 if any image cannot be decoded.

    Example: facerts data inspect faces_rec

    Args:
        every: Decode every image, not just a sample of 1,000.
    """
    from facerts.datasets import open_source
    from facerts.datasets.inspect import inspect_source

    report, problems = inspect_source(open_source(sources), every=every)
    print_result(report, json, details={"broken": problems}, problems=problems)


@data.command(name="bin")
def bin_set(benchmark: Path, *, out: NewFile, json: Json = False) -> None:
    """Write a verification benchmark as one .bin file, with its pairs in order.

    Example: facerts data bin lfw/ --out lfw.bin

    Args:
        benchmark: Folder in the layout of LFW, with pairs.txt.
        out: Path of the .bin file to write.
    """
    from facerts.datasets import open_benchmark
    from facerts.datasets.pair_layouts import save_bin

    opened = open_benchmark(benchmark)
    save_bin(opened, out)
    result = {"pairs": len(opened.same), "genuine": int(opened.same.sum()), "file": str(out)}
    print_result(result, json)


def _embedder(model: str | None, settings: CommandSettings) -> SourceEmbedder:
    """The model that compares images."""
    from facerts.curation.embeddings import SourceEmbedder
    from facerts.embedding import load_embedder
    from facerts.hub.find import find_model

    opened = load_embedder(find_model(model or settings.recognizer), **settings.runtime())
    return SourceEmbedder(opened, settings.output_cache)


def _refuse_options(context: typer.Context, names: Sequence[str], reason: str) -> None:
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise Error(f"{reason}; leave out --{name.replace('_', '-')}")


def _show(report: Report, json: bool) -> None:
    """Print the report; exit with status 1 if images could not be read."""
    for note in report.get("benchmarks", {}).get("notes", []):
        warn(note)
    unreadable = report["dropped"]["by_reason"].get("cannot be read", 0)
    unreadable += len(report.get("benchmarks", {}).get("unreadable", []))
    problem = f"{unreadable:,} images could not be read; the report names them"
    print_result(report if json else _print_tables(report), json, problems=[problem] * bool(unreadable))


def _print_tables(report: Report) -> Report:
    """Print the tables; return what else to print."""
    source, verb = report["in"], "would be written" if report["dry_run"] else "written"
    rows = [{"": "read", "what": source["name"], **source}]
    rows += [
        {"": "dropped", "what": reason, "images": images} for reason, images in report["dropped"]["by_reason"].items()
    ]
    rows += [{"": verb, "what": f"{part['path']} ({part['form']})", **part} for part in report["written"]]
    print_rows(rows, ["", "what", "images", "identities"])
    pairs = report.get("identity_pairs", {})
    columns: list[Column] = [("identities", lambda pair: f"{pair['first']}, {pair['second']}"), "one_person"]
    columns += [("cosine of means", "mean_cosine"), "shared_images", "share"]
    title = "Pairs of identities: {count:,}, of one person: {one_person:,} ({done})"
    print_rows(pairs.get("list", [])[:PAIRS], columns, title.format_map(pairs) if pairs else "")
    if overlap := report.get("overlap"):
        title = f"Identities that look like somebody in a benchmark: {overlap['identities']:,}"
        nearest = [
            row | {"identity": f"{row['identity']} ({state})"}
            for state, of in (("dropped", overlap["left_out"]), ("kept", overlap["nearest_kept"]))
            for row in of[: PAIRS // 2]
        ]
        print_rows(nearest, ["identity", "resembles", "cosine"], title)
    fields = {"report": report["report"], "seconds": report["seconds"]}
    if "model" in report["settings"]:
        model = report["settings"]["model"]
        fields["model"] = f"{model['name']} ({model['sha256'][:12]}…)"
    if quantiles := report.get("own_cosine", {}).get("quantiles"):
        fields["cosine_to_own_identity"] = {f"{100 * float(share):g}%": value for share, value in quantiles.items()}
    return fields
