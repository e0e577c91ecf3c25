"""``facerts data``: inspect data sets and convert between their layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from facerts.cli.curate import Sources, dedup, exclude_overlap, generate, pack, split
from facerts.cli.option_groups import Commands
from facerts.cli.output import print_result
from facerts.cli.shared_options import Json

data = Commands(no_args_is_help=True, help="Inspect data sets and convert between their layouts.")

for command in (pack, generate, split, dedup, exclude_overlap):
    data.command()(command)


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
def bin_set(benchmark: Path, *, out: Path, json: Json = False) -> None:
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
