"""``facerts gallery``: enroll people, search for them, and keep poor and wrong images out."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from facerts.cli.option_groups import Commands
from facerts.cli.output import EXIT_SOME_FAILED, Column, note, number, print_result, print_rows
from facerts.cli.settings import CommandSettings
from facerts.cli.shared_options import Images, Json, NewGallery, NewTable, ScorerOptions
from facerts.errors import Error
from facerts.io.console import say

if TYPE_CHECKING:
    from facerts.galleries import Gallery

GalleryPlace = Annotated[
    str,
    typer.Argument(
        help="Gallery file (.npz), or address of one in a database: postgresql://user@host/database?gallery=people.",
        metavar="GALLERY",
    ),
]
gallery = Commands(no_args_is_help=True, help="Galleries of known people: build, search, list, check, best images.")


@gallery.command()
def build(
    folder: Annotated[list[str], typer.Argument(metavar="FOLDER...")],
    *,
    out: NewGallery,
    models: ScorerOptions,
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Enroll the largest face of each image; poor images and images without a face are named and left out.

    Exits with status 1 if any image could not be read.

    Example: facerts gallery build people/ --out people.npz

    Args:
        folder: Images by person: a folder with one subfolder for each, a RecordIO directory or tar shards.
        out: Gallery file to write (.npz), or address of a gallery in a database, which is replaced.
    """
    _enroll(out, models, settings, folder, json, new=True)


@gallery.command()
def search(
    place: GalleryPlace,
    images: Images,
    *,
    fpir: float = 0.01,
    k: Annotated[int, typer.Option("-k", min=1)] = 1,
    out: NewTable = None,
    models: ScorerOptions,
    largest: Annotated[bool, typer.Option("--largest")] = False,
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Search for the person of each face: a match at a stated error rate, unknown, or too poor to say.

    Exits with status 1 if any image could not be read.

    Example: facerts gallery search people.npz photos/ --fpir 0.01 --out found.csv

    Args:
        fpir: Share of searches for unknown people that may find somebody, above 0 and below 1.
        k: Number of candidates of each face.
        largest: Search only for the largest face of each photo.
    """
    from facerts.galleries import Decision, Match

    known = _open(place, out)
    scorer = models.open(settings)
    threshold = known.threshold(fpir, scorer.recognizer)
    matches = known.search(
        scorer,
        images,
        fpir=fpir,
        k=k,
        min_quality=settings.min_quality_of(scorer),
        largest=largest,
        progress="searching",
    )
    # Those who were found first, then the unknown, then what says nothing.
    order = [*Decision]
    counts = Counter(match.decision for match in matches)
    summary = {
        "threshold": round(threshold.cosine, 4),
        "threshold_ci95": threshold.ci95 and [round(side, 4) for side in threshold.ci95],
        "fpir": fpir,
        **{decision.value.replace(" ", "_"): counts[decision] for decision in order},
    }
    if not json and counts[Decision.UNKNOWN]:
        say(
            f"unknown: nobody is similar enough for an FPIR of {fpir:g}, at which {100 * fpir:g}% of the searches for "
            "people who are not enrolled find somebody; more images of each person find more of those who are"
        )
    print_result(
        summary,
        json,
        matches,
        [("image", "path"), "decision", ("most similar", "person"), "cosine", "percentile", ("note", note)],
        name="matches",
        out=out,
        kind=Match,
        first=lambda match: order.index(match.decision),
    )


@gallery.command(name="list")
def list_(place: GalleryPlace, *, json: Json = False) -> None:
    """List the people of a gallery with their numbers of images.

    Example: facerts gallery list people.npz
    """
    known = _open(place)
    content, counts = known.summary(), known.image_counts()
    summary = {"people": content.people, "images": content.images, "model": content.model}
    columns, details = [("person", itemgetter(0)), ("images", itemgetter(1))], {"images_by_person": counts}
    print_result(summary, json, counts.items(), columns, most=len(counts), details=details)


@gallery.command()
def check(
    place: GalleryPlace,
    *,
    out: NewTable = None,
    missed: float = 0.08,
    json: Json = False,
) -> None:
    """List enrollments that are poor, not a face, of another person, or duplicates; nothing is changed.

    Exits with status 1 if there are any. To remove them, review the file and pass it to gallery remove --from.

    Example: facerts gallery check people.npz --out check.csv

    Args:
        missed: Share of other people's images that may stay unnoticed, above 0 and below 1.
    """
    from facerts.galleries import Finding, Limits

    known = _open(place, out)
    findings = known.check(Limits(missed=missed))
    content = known.summary()
    summary = {
        "people": content.people,
        "images": content.images,
        "suspicious": len(findings),
        "reasons": dict(Counter(finding.reason.value for finding in findings)),
    }
    columns: list[Column] = [
        ("image or person", lambda finding: finding.path or finding.person),
        *("reason", "reasons"),
        ("false alarms", lambda finding: number(f"{finding.false_alarms:.2g}")),
        *("own_cosine", ("other's", "other_cosine"), ("nearest other", "other_person")),
    ]
    print_result(summary, json, findings, columns, name="findings", out=out, kind=Finding)
    if findings:
        raise typer.Exit(EXIT_SOME_FAILED)


@gallery.command()
def best(
    place: GalleryPlace,
    *,
    k: Annotated[int, typer.Option("-k", min=1)] = 1,
    out: NewTable = None,
    copy: Path | None = None,
    json: Json = False,
) -> None:
    """List the best images of each person: of good quality, and similar to the person's other images.

    Example: facerts gallery best people.npz -k 3 --copy best/

    Args:
        k: Number of images of each person.
        copy: Folder to copy them to, with one subfolder for each person.
    """
    from facerts.galleries import BestImage, copy_images

    images = _open(place, out).best(k)
    summary = {"people": len({image.person for image in images})}
    if copy is not None:
        summary["copied"] = len(copy_images(images, copy))
    columns: list[Column] = ["person", "rank", ("image", "path"), "score", "own_cosine", "reasons"]
    print_result(summary, json, images, columns, name="images", out=out, kind=BestImage)


@gallery.command()
def add(
    place: GalleryPlace,
    images: Images,
    *,
    person: str | None = None,
    models: ScorerOptions,
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Enroll more images; an image from a path that is already enrolled replaces the earlier one.

    Exits with status 1 if any image could not be read.

    Example: facerts gallery add people.npz photos/anna/ --person anna

    Args:
        person: Person of the images; by default images are in one subfolder for each person.
    """
    _enroll(place, models, settings, images, json, person=person)


@gallery.command()
def remove(
    place: GalleryPlace,
    people: Annotated[list[str] | None, typer.Argument(metavar="NAME...")] = None,
    *,
    image: list[str] | None = None,
    from_: Annotated[Path | None, typer.Option("--from")] = None,
    json: Json = False,
) -> None:
    """Remove people or images from a gallery, and print what was removed; image files are not touched.

    Example: facerts gallery remove people.npz anna ben

    Args:
        people: People to remove with all their images; gallery list has their names.
        image: Path of an image to remove, as enrolled; may be repeated.
        from_: Remove what this report of gallery check lists (.csv or .jsonl), but no person's last face.
    """
    from facerts.galleries import read_findings

    if not people and not image and from_ is None:
        raise typer.BadParameter("give the names of people, --image or --from")
    known = _open(place)
    findings = read_findings(from_) if from_ is not None else []
    removed = known.remove(people=people or [], paths=image or [], findings=findings)
    result = {
        "removed_images": len(removed.entries),
        "removed_people": list(removed.gone),
        "people": removed.people,
        "images": removed.images,
        "file": known.name,
    }
    columns, kept = [("person", itemgetter(0)), ("image", itemgetter(1))], removed.kept
    if not json:
        print_rows(kept, columns, "Kept, as the person would have no image; --image removes it")
        print_rows(removed.entries, columns, "Removed")
    print_result(result, json, details={"removed": removed.entries, "kept": kept})


def _enroll(
    place: str,
    models: ScorerOptions,
    settings: CommandSettings,
    images: list[str],
    json: bool,
    *,
    new: bool = False,
    person: str | None = None,
) -> None:
    from facerts.scoring.reasons import REJECTING

    known, scorer = _open(place), models.open(settings)
    how: dict[str, Any] = {"min_quality": settings.min_quality_of(scorer), "progress": "enrolling", "person": person}
    enrolled = known.build(scorer, images, overwrite=True, **how) if new else known.add(scorer, images, **how)
    why = [next((reason for reason in REJECTING if reason in each.reasons), "unreadable") for each in enrolled.rejected]
    result = {
        "people": enrolled.people,
        "images": enrolled.images,
        "rejected": dict(Counter(why)),
        "enrolled_with_reasons": dict(enrolled.reasons),
        "people_without_an_image": list(enrolled.without_image),
        "file": known.name,
    }
    columns: list[Column] = [("not enrolled", "path"), "person", ("note", note)]
    print_result(result, json, enrolled.rejected, columns, name="rejected_images")


def _open(place: str, out: Path | None = None) -> Gallery:
    """Open a gallery, once it is clear that rows can be written."""
    from facerts.galleries import Gallery
    from facerts.scoring.sinks import check_sink

    if out is not None:
        check_sink(out)
    if place.lower().endswith(".onnx"):
        raise Error(f"{place} is a model, not a gallery; give a gallery first, and the model as --model")
    return Gallery(place)
