"""The commands of ``facerts data`` that make data sets from data sets: split, merge, shuffle, dedup, disjoin."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from facerts.cli.options import Align, Batch, Json, ModelOrDefault, Provider, Threads
from facerts.cli.output import EXIT_SOME_FAILED, fields_table, print_json, rows_table, warn
from facerts.errors import Error

if TYPE_CHECKING:
    from facerts.curation.embeddings import Embedding

# Reasons to leave a picture out that are not the command's purpose.
BROKEN = ("cannot be read", "cannot be decoded")
# Options of dedup that mean something with --by embedding alone.
OF_EMBEDDINGS = (
    *(
        "model",
        "threshold",
        "identity_threshold",
        "min_own_cosine",
        "pictures_across",
        "align",
        "flip",
        "cache",
    ),
    *("search", "batch_size", "threads", "provider"),
)
# Rows of a table; the report and its lists have more.
SHOWN = 10


class By(str, Enum):
    """What pictures are equal by."""

    HASH = "hash"
    PIXELS = "pixels"
    EMBEDDING = "embedding"


class Searching(str, Enum):
    """What compares embeddings; both are exact."""

    NUMPY = "numpy"
    FAISS = "faiss"


Sources = Annotated[
    list[str],
    typer.Argument(
        help="Folders, record directories, .tar shards, .bin sets, list files; patterns with * are expanded.",
        metavar="SRC...",
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        help="A folder that does not exist yet, for a record directory or tar shards; or a .tar file."
    ),
]
Shards = Annotated[
    int | None, typer.Option(min=1, help="Write as many tar shards, and not a record directory.")
]
Seed = Annotated[int, typer.Option(min=0, help="Of the drawing.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write the report and its lists, and no pictures.")]
Report = Annotated[
    Path | None,
    typer.Option(
        help="The .json file of the report; by default OUT.report.json, in a dry run OUT.dry-run.json."
    ),
]
Cache = Annotated[
    Path | None, typer.Option(help="A folder to keep embeddings in; later commands take them from it.")
]
Flip = Annotated[bool, typer.Option(help="Add each crop's mirror to its embedding.")]
SearchBy = Annotated[Searching, typer.Option("--search", help="What compares embeddings; both are exact.")]


def add_to(data: typer.Typer) -> None:
    """Add the commands to ``facerts data``."""
    for command in (split, merge, shuffle, dedup, disjoin):
        data.command()(command)


def split(
    sources: Sources,
    out: Out,
    held_out: Annotated[Path, typer.Option(help="As --out, for the identities that are held out.")],
    identities: Annotated[int | None, typer.Option(min=1, help="Identities to hold out.")] = None,
    share: Annotated[float | None, typer.Option(help="Or the share of them, above 0 and below 1.")] = None,
    seed: Seed = 0,
    shards: Shards = None,
    dry_run: DryRun = False,
    report: Report = None,
    json: Json = False,
) -> None:
    """Split by identity: nobody is in both parts.

    Example: facerts data split faces/ --out faces_train --held-out faces_test --share 0.1
    """
    from facerts.curation.curation_job import Settings
    from facerts.curation.output_spec import Target
    from facerts.curation.split import split as run
    from facerts.datasets import open_source

    told = run(
        open_source(sources),
        Target(out, shards),
        Target(held_out, shards),
        identities=identities,
        share=share,
        seed=seed,
        settings=Settings(dry_run, report),
    )
    _show(told, json)


def merge(
    sources: Sources,
    out: Out,
    prefix_sources: Annotated[
        bool,
        typer.Option(
            "--prefix-sources", help="Put each source's name before its identities', so that none are shared."
        ),
    ] = False,
    shards: Shards = None,
    dry_run: DryRun = False,
    report: Report = None,
    json: Json = False,
) -> None:
    """Join several sources; identities of the same name are one. A pattern in quotes is one source.

    Example: facerts data merge faces/ more_faces/ --out all_faces
    """
    from facerts.curation.curation_job import Settings
    from facerts.curation.merge import merge as run
    from facerts.curation.output_spec import Target

    _show(
        run(sources, Target(out, shards), prefix_sources=prefix_sources, settings=Settings(dry_run, report)),
        json,
    )


def shuffle(
    sources: Sources,
    out: Out,
    shards: Shards = None,
    seed: Seed = 0,
    dry_run: DryRun = False,
    report: Report = None,
    json: Json = False,
) -> None:
    """Put all pictures in one random order, so that they can be read one after the other at full speed.

    Example: facerts data shuffle faces/ --out shuffled --shards 8
    """
    from facerts.curation.curation_job import Settings
    from facerts.curation.output_spec import Target
    from facerts.curation.shuffle import shuffle as run
    from facerts.datasets import open_source

    _show(run(open_source(sources), Target(out, shards), seed=seed, settings=Settings(dry_run, report)), json)


def dedup(
    context: typer.Context,
    sources: Sources,
    out: Out,
    by: Annotated[
        By, typer.Option(help="Equal bytes, equal decoded pixels, or embeddings that are almost equal.")
    ] = By.HASH,
    model: ModelOrDefault = None,
    threshold: Annotated[float, typer.Option(help="Least cosine of near-duplicates.")] = 0.95,
    identity_threshold: Annotated[
        float, typer.Option(help="Least cosine of the means of two identities that look like one person.")
    ] = 0.7,
    min_own_cosine: Annotated[
        float | None,
        typer.Option(
            help="Leave out pictures less similar than this to the mean of their identity's others."
        ),
    ] = None,
    pictures_across: Annotated[
        bool, typer.Option(help="Compare pictures of different identities; time grows with their square.")
    ] = True,
    merge_identities: Annotated[
        bool, typer.Option("--merge-identities", help="Make one of identities that look like one person.")
    ] = False,
    drop_identities: Annotated[
        bool,
        typer.Option(
            "--drop-identities", help="Keep the larger of two identities that look like one person."
        ),
    ] = False,
    align: Align = None,
    flip: Flip = False,
    cache: Cache = None,
    search: SearchBy = Searching.NUMPY,
    shards: Shards = None,
    dry_run: DryRun = False,
    report: Report = None,
    batch_size: Batch = 64,
    threads: Threads = None,
    provider: Provider = None,
    json: Json = False,
) -> None:
    """Leave out duplicates within identities, and report identities that share pictures or look like one person.

    Ends with 1 if any picture could not be read.

    Example: facerts data dedup faces/ --by embedding --threshold 0.95 --out faces_once
    """
    from facerts.curation.curation_job import Settings
    from facerts.curation.exact_duplicates import dedup as run
    from facerts.curation.identity_pairs import Across
    from facerts.curation.output_spec import Target
    from facerts.datasets import open_source

    if merge_identities and drop_identities:
        raise Error("identities cannot be both merged and dropped; give one of the two")
    across = Across.MERGE if merge_identities else Across.DROP if drop_identities else Across.REPORT
    target, settings = Target(out, shards), Settings(dry_run, report)
    if by is not By.EMBEDDING:
        _refuse_given(context, OF_EMBEDDINGS, f"--by {by.value} compares no embeddings")
        _show(run(open_source(sources), target, by=by.value, across=across, settings=settings), json)
        return
    from facerts.curation.dedup import Limits
    from facerts.curation.dedup import dedup as run_by_embedding

    limits = Limits(threshold, identity_threshold, min_own_cosine, pictures_across)
    told = run_by_embedding(
        open_source(sources),
        target,
        _embedding(model, flip, cache, search, batch_size, threads, provider),
        limits,
        across=across,
        align=_detector(align, threads, provider),
        settings=settings,
    )
    _show(told, json)


def disjoin(
    sources: Sources,
    benchmark: Annotated[
        list[str],
        typer.Option(
            help="Whose people to leave out: a folder of LFW, CFP, AgeDB, CALFW, CPLFW or IJB, a .bin set, or any "
            "other pictures; may be repeated."
        ),
    ],
    out: Out,
    model: ModelOrDefault = None,
    threshold: Annotated[
        float, typer.Option(help="Least cosine of an identity's mean and a picture of a benchmark.")
    ] = 0.5,
    single_images: Annotated[
        bool, typer.Option("--single-images", help="Compare the identities' single pictures as well.")
    ] = False,
    align_benchmark: Annotated[
        str | None,
        typer.Option(
            help="The benchmark's pictures are photos: find and align their faces, as --align of dedup does."
        ),
    ] = None,
    flip: Flip = False,
    cache: Cache = None,
    search: SearchBy = Searching.NUMPY,
    shards: Shards = None,
    dry_run: DryRun = False,
    report: Report = None,
    batch_size: Batch = 64,
    threads: Threads = None,
    provider: Provider = None,
    json: Json = False,
) -> None:
    """Leave out the identities that look like somebody in a benchmark. Ends with 1 if any picture could not be read.

    Example: facerts data disjoin faces/ --benchmark lfw/ --threshold 0.5 --out faces_not_lfw
    """
    from facerts.curation.curation_job import Settings
    from facerts.curation.exclude_overlap import disjoin as run
    from facerts.curation.output_spec import Target
    from facerts.datasets import open_source

    told = run(
        open_source(sources),
        benchmark,
        Target(out, shards),
        _embedding(model, flip, cache, search, batch_size, threads, provider),
        threshold=threshold,
        single_images=single_images,
        align_benchmarks=_detector(align_benchmark, threads, provider),
        settings=Settings(dry_run, report),
    )
    _show(told, json)


def _refuse_given(context: typer.Context, names: Sequence[str], why: str) -> None:
    """Refuse options that would do nothing."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise Error(f"{why}; leave out --{name.replace('_', '-')}")


def _embedding(
    model: str | None,
    flip: bool,
    cache: Path | None,
    search: Searching,
    batch_size: int,
    threads: int | None,
    provider: list[str] | None,
) -> Embedding:
    from facerts.curation.embeddings import Embedding
    from facerts.embedding import load_embedder
    from facerts.hub.registry import find_model

    embedder = load_embedder(find_model(model), providers=provider, threads=threads, batch_size=batch_size)
    return Embedding(embedder, flip, cache, search.value)


def _detector(given: str | None, threads: int | None, provider: list[str] | None) -> Any:
    from facerts.detection import open_any_detector

    return None if given is None else open_any_detector(given, providers=provider, threads=threads)


def _show(told: dict[str, Any], json: bool) -> None:
    """The report on the terminal; pictures that could not be read end the command with 1."""
    for note in told.get("benchmarks", {}).get("notes", []):
        warn(note)
    print_json(told) if json else _tables(told)
    broken = sum(told["dropped"]["by_reason"].get(reason, 0) for reason in BROKEN)
    broken += len(told.get("benchmarks", {}).get("unreadable", []))
    if broken:
        warn(f"pictures that could not be read: {broken:,}; the report and its lists name them")
        raise typer.Exit(EXIT_SOME_FAILED)


def _tables(told: dict[str, Any]) -> None:
    came, dropped = told["in"], told["dropped"]
    rows = [["came in", came["name"], _number(came["images"]), _number(came["identities"])]]
    rows += [["left out", reason, _number(images), ""] for reason, images in dropped["by_reason"].items()]
    verb = "would be written" if told["dry_run"] else "written"
    rows += [
        [
            verb,
            f"{data_set['path']} ({data_set['form']})",
            _number(data_set["images"]),
            _number(data_set["identities"]),
        ]
        for data_set in told["written"]
    ]
    rows_table("Pictures", ["", "what", "images", "identities"], rows)
    if pairs := told.get("identity_pairs", {}).get("surest"):
        _pairs_table(told["identity_pairs"], pairs[:SHOWN])
    if found := told.get("overlap", {}):
        _overlap_table(found)
    fields = {"report": told["report"], **told["lists"], "seconds": told["seconds"]}
    if "model" in told["settings"]:
        model = told["settings"]["model"]
        fields["model"] = f"{model['name']} ({model['sha256'][:12]}…)"
    if quantiles := told.get("own_cosine", {}).get("quantiles"):
        fields["cosine_to_own_identity"] = {
            f"{100 * float(share):g} %": value for share, value in quantiles.items()
        }
    fields_table(fields)


def _pairs_table(told: dict[str, Any], surest: list[dict[str, Any]]) -> None:
    by_means = "mean_cosine" in surest[0]
    rows = [
        [
            f"{pair['first']}, {pair['second']}",
            "yes" if pair["one_person"] else "no",
            *([f"{pair['mean_cosine']:.3f}"] if by_means else []),
            _number(pair["similar_pictures"] if by_means else pair["equal_pictures"]),
            f"{pair['share']:.2f}",
        ]
        for pair in surest
    ]
    header = [
        "identities",
        "one person",
        *(["cosine of means"] if by_means else []),
        "pictures in common",
        "share",
    ]
    title = f"Pairs of identities: {told['count']:,}, of one person: {told['one_person']:,} ({told['done']})"
    rows_table(title, header, rows)


def _overlap_table(found: dict[str, Any]) -> None:
    rows = [
        [f"{row['identity']} ({state})", row["resembles"], f"{row['cosine']:.3f}"]
        for state, of in (("left out", found["left_out"]), ("kept", found["nearest_kept"]))
        for row in of[: SHOWN // 2]
    ]
    title = f"Identities that look like somebody in a benchmark: {found['identities']:,}"
    rows_table(title, ["identity", "resembles", "cosine"], rows)


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
