"""``facerts people``: group photos by person without names, and correct the groups for good."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from facerts.cli.option_groups import Commands
from facerts.cli.output import Column, print_result, warn
from facerts.cli.settings import CommandSettings
from facerts.cli.shared_options import Images, Json, NewGallery, NewTable, ScorerOptions
from facerts.io.console import say

if TYPE_CHECKING:
    from facerts.people import Corrected, People

PEOPLE: list[Column] = [
    "person",
    ("name", lambda row: f"{row['name'] or ''}{' (hidden)' * row['hidden']}"),
    "photos",
    "faces",
    ("best face", "best"),
]
FACES: list[Column] = [("face", "id"), ("photo", "path"), "status", "percentile", "reasons"]

Folder = Annotated[Path, typer.Argument(help="Folder of facerts people find.", metavar="FOLDER")]
PersonArgument = Annotated[str, typer.Argument(help="Number or name of a person.", metavar="PERSON")]

people = Commands(
    no_args_is_help=True,
    help="Group photos by person, without names: find, correct, name, copy, make a gallery.",
)


@people.command(name="find")
def find_(
    images: Images,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER")],
    add: Annotated[bool, typer.Option("--add")] = False,
    models: ScorerOptions,
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Group the faces of photos by person; poor faces form no groups. Run it again for new photos, or to continue.

    Exits with status 1 if any photo could not be read.

    Example: facerts people find photos/ --out people/

    Args:
        out: Folder for the groups, the page and the table; later runs keep the corrections made there.
        add: Leave the groups of earlier runs and their photos unchanged, and only assign new faces.
    """
    from facerts.people import find_people

    scorer = models.open(settings)
    found = find_people(
        scorer,
        images,
        out,
        add=add,
        min_quality=settings.min_quality_of(scorer),
        progress="finding faces",
    )
    for notice in found.notices:
        warn(notice)
    if found.vanished:
        count = len(found.vanished)
        photos = "1 photo of the last run is" if count == 1 else f"{count:,} photos of the last run are"
        warn(f"{photos} not there any more, first {found.vanished[0]}")
    page = _write_page(found.people)
    print_result(
        {**found.people.summary(), "new_photos": found.scored, "photos_gone": len(found.vanished), **page},
        json,
        details={"people_by_number": _listed(found.people)},
        problems=[error for error in found.people.found.error.tolist() if error],
        all_in="people.csv lists",
    )
    if not json:
        say(f"next: open the page, or name a person: facerts people name {shlex.quote(str(out))} NUMBER NAME")


@people.command(name="list")
def list_(
    folder: Folder,
    *,
    out: NewTable = None,
    json: Json = False,
) -> None:
    """List the people, those with most photos first.

    Example: facerts people list people/ --out faces.parquet

    Args:
        out: File to write a row for each face to: .csv, .jsonl or .parquet.
    """
    from facerts.people import read_people

    known = read_people(folder)
    if out is not None:
        known.write_table(out)
    print_result(known.summary(), json, _listed(known), PEOPLE, name="people_by_number")


@people.command()
def show(folder: Folder, person: PersonArgument, *, json: Json = False) -> None:
    """List the faces of a person, the best first.

    Example: facerts people show people/ 12
    """
    from facerts.people import read_people

    known = read_people(folder)
    one = known.person(person)
    faces = [face for face in known.faces() if face.person == one.number]
    print_result({"person": one.number, "name": one.name or None}, json, faces, FACES, name="faces")


@people.command()
def merge(
    folder: Folder,
    persons: Annotated[list[str], typer.Argument(help="Numbers or names of people.", metavar="PERSON PERSON...")],
    *,
    json: Json = False,
) -> None:
    """Merge groups of one person; the first keeps its number and name.

    Example: facerts people merge people/ 3 17
    """
    from facerts.people import merge_people

    _end(merge_people(folder, persons), json)


@people.command()
def move(
    folder: Folder,
    faces: Annotated[
        list[str],
        typer.Argument(
            help="Ids of faces, such as 3f2a9c01-0, from the page or people.csv; or photos, with #1 for the "
            "second face of one.",
            metavar="FACE...",
        ),
    ],
    *,
    to: Annotated[str, typer.Option(metavar="PERSON|new|nobody")],
    json: Json = False,
) -> None:
    """Correct whose face it is: move faces to another person, a new one, or nobody.

    Example: facerts people move people/ 3f2a9c01-0 --to 5

    Args:
        to: Number or name of the person; new for a new person; nobody for non-faces and unwanted faces, which then stay
            in no group.
    """
    from facerts.people import move_faces

    _end(move_faces(folder, faces, to), json)


@people.command()
def name(folder: Folder, person: PersonArgument, name: str, *, json: Json = False) -> None:
    """Name a person; if another person has that name, the two are merged.

    Example: facerts people name people/ 12 "Anna"

    Args:
        name: Name of the person. One that begins with a dot, as .newsreader, hides the person: later faces still join,
            but the page collapses the group, and galleries and copies leave it out.
    """
    from facerts.people import name_person

    _end(name_person(folder, person, name), json)


@people.command()
def undo(folder: Folder, *, json: Json = False) -> None:
    """Undo the last correction; run it again to undo the one before.

    Example: facerts people undo people/
    """
    from facerts.people import undo_decision

    _end(undo_decision(folder), json, "undone")


@people.command()
def copy(
    folder: Folder,
    out: Annotated[Path, typer.Argument(metavar="OUT")],
    *,
    crops: Annotated[bool, typer.Option("--crops")] = False,
    named_only: Annotated[bool, typer.Option("--named-only")] = False,
    json: Json = False,
) -> None:
    """Copy the photos into one folder for each person who is in them; nothing is overwritten.

    Exits with status 1 if any photo could not be copied.

    Example: facerts people copy people/ sorted/

    Args:
        out: Folder for the copies.
        crops: Copy the faces, as aligned crops, instead of the photos.
        named_only: Leave out people without a name.
    """
    from facerts.people import copy_photos, read_people

    copied = copy_photos(read_people(folder), out, crops=crops, named_only=named_only)
    print_result(
        {"copied": len(copied.written), "folder": str(out)},
        json,
        details={"errors": copied.errors},
        problems=copied.errors,
    )


@people.command(name="to-gallery")
def to_gallery(
    folder: Folder,
    *,
    out: NewGallery,
    k: Annotated[int, typer.Option("-k", min=1)] = 5,
    named_only: Annotated[bool, typer.Option("--named-only")] = False,
    json: Json = False,
) -> None:
    """Make a gallery of the best faces of each person, to search with facerts gallery search.

    Example: facerts people to-gallery people/ --out people.npz

    Args:
        out: Gallery file to write (.npz), or address of a gallery in a database, which is replaced.
        k: Number of faces of each person.
        named_only: Leave out people without a name; otherwise they are called person-12.
    """
    from facerts.galleries import Gallery
    from facerts.people import read_people

    place = Gallery(out)
    images = read_people(folder).gallery(k, named_only=named_only).read()
    place.replace(images)
    print_result({"people": len(images.people), "images": len(images), "file": place.name}, json)


def _end(corrected: Corrected, json: bool, done: str = "done") -> None:
    """Write the page anew, and print what changed."""
    from facerts.people.corrections import recorded

    known = corrected.people
    with recorded():
        page = _write_page(known)
    numbers = [f"{number} {known.by_number[number].name}".strip() for number in corrected.numbers]
    print_result(
        {
            done: corrected.decision.action.value,
            "people": numbers,
            "faces_moved": len(corrected.decision.faces),
            "decisions": known.decisions,
            **page,
        },
        json,
    )


def _write_page(known: People) -> dict[str, str]:
    """Write the page; groups and tables are written already."""
    from facerts.report.people_page import write_people_page

    return {"page": str(write_people_page(known))}


def _listed(known: People) -> list[dict[str, object]]:
    return [
        {
            "person": person.number,
            "name": person.name or None,
            "hidden": person.hidden,
            "photos": person.photos,
            "faces": len(person.rows),
            "best": known.face_id(int(person.rows[0])),
        }
        for person in known.persons
    ]
