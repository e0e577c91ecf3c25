"""``facerts data``: inspect data sets and convert between their layouts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from facerts.cli.curate import Sources, dedup, exclude_overlap, merge, shuffle, split
from facerts.cli.option_groups import Commands
from facerts.cli.output import print_result
from facerts.cli.shared_options import Json

if TYPE_CHECKING:
    from facerts.curation.pack import PackResult

data = Commands(no_args_is_help=True, help="Inspect data sets and convert between their layouts.")

for command in (split, merge, shuffle, dedup, exclude_overlap):
    data.command()(command)


Layout = Annotated[
    Literal["rec", "tar"], typer.Option("--format", help="Layout: a record directory or tar shards.")
]


@data.command()
def pack(
    sources: Sources,
    *,
    out: Path,
    layout: Layout = "rec",
    shard_images: Annotated[int, typer.Option(min=1)] = 10_000,
    check: bool = True,
    json: Json = False,
) -> None:
    """Pack images, unchanged, into a record directory (train.rec, train.idx, property) or tar shards.

    Example: facerts data pack faces/ --out faces_rec

    Args:
        out: Folder to write to.
        shard_images: Number of images per tar shard.
        check: Decode every image, and leave out images that cannot be decoded.
    """
    from facerts.curation.pack import pack_records, pack_shards
    from facerts.datasets import open_source

    source = open_source(sources)
    if layout == "rec":
        _show(pack_records(source, out, check=check), json)
    else:
        _show(pack_shards(source, out, images_per_shard=shard_images, check=check), json)


@data.command()
def generate(
    *,
    out: Path,
    identities: Annotated[int, typer.Option(min=2)] = 10_575,
    images: Annotated[int, typer.Option(min=1)] = 4,
    people: Annotated[int, typer.Option(min=1)] = 1000,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    layout: Layout = "rec",
    json: Json = False,
) -> None:
    """Generate synthetic faces of any number of identities, to measure the speed of training without real data.

    Example: facerts data generate --identities 181000 --out synthetic

    Args:
        out: Folder to write to.
        identities: Number of identities.
        images: Number of images per identity.
        people: Number of different faces; further identities repeat the first ones.
        seed: Seed of the faces.
    """
    from facerts.curation.pack import pack_records, pack_shards
    from facerts.datasets.synthetic import SyntheticSource

    source = SyntheticSource(identities, images, people=people, seed=seed)
    write = pack_records if layout == "rec" else pack_shards
    _show(write(source, out, check=False), json)


@data.command()
def unpack(sources: Sources, *, out: Path, json: Json = False) -> None:
    """Write every image of a source as a file, in folders by identity.

    Example: facerts data unpack faces_rec --out faces

    Args:
        out: Path of a new folder.
    """
    from facerts.curation.pack import unpack as run
    from facerts.datasets import open_source

    _show(run(open_source(sources), out), json)


@data.command()
def inspect(
    sources: Sources, *, every: Annotated[bool, typer.Option("--all")] = False, json: Json = False
) -> None:
    """Show the number of images and identities of a source, image sizes, and images that cannot be decoded.

    Exits with status 1 if any image cannot be decoded.

    Example: facerts data inspect faces_rec

    Args:
        every: Decode every image, not just a sample of 1,000.
    """
    from facerts.datasets import open_source
    from facerts.datasets.inspect import inspect_source

    report = inspect_source(open_source(sources), every=every)
    problems = report.pop("broken")
    print_result(report, json, details={"broken": problems}, problems=problems)


@data.command(name="bin")
def bin_set(benchmark: Path, *, out: Path, json: Json = False) -> None:
    """Write a verification benchmark as one .bin file, with its pairs in order.

    Example: facerts data bin lfw/ --out lfw.bin

    Args:
        benchmark: Folder in the layout of LFW, with pairs.txt.
        out: Path of the .bin file to write.
    """
    from facerts.benchmarks import open_benchmark
    from facerts.benchmarks.pair_layouts import save_bin

    opened = open_benchmark(benchmark)
    save_bin(opened, out)
    result = {"pairs": len(opened.same), "genuine": int(opened.same.sum()), "file": str(out)}
    print_result(result, json)


def _show(packed: PackResult, json: bool) -> None:
    files, left_out = list(map(str, packed.files)), packed.left_out
    result = {
        "images": packed.images,
        "identities": packed.identities,
        "files": files if len(files) <= 4 else f"{files[0]} … {files[-1]}",
        "left_out": len(left_out),
    }
    problems = [f"left out: {problem}" for problem in left_out]
    print_result(result, json, details={"files": files, "left_out": left_out}, problems=problems)
