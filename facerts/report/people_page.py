"""The page of people: a contact sheet for each, with the commands that correct it.

The page lies in the folder of people and shows the crops beside it, which are loaded as they come into view; it needs
no script and no network.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from facerts.io.files import atomic_write
from facerts.people.find_job import crop_name
from facerts.people.people import FaceStatus, People, Person
from facerts.people.people_folder import CROPS, PAGE, ROWS
from facerts.report.template import open_template, resource
from facerts.scoring.reasons import in_words
from facerts.version import __version__

# A browser lays out some ten thousand images; the table has all faces.
MAX_FACES, MAX_PEOPLE, MAX_ONCE, MAX_UNCLEAR = 24, 400, 400, 300
# Less likely people are not suggested.
MIN_PROBABILITY = 0.01
# Faces that an example of a command names.
EXAMPLE_FACES = 2


@dataclass(frozen=True)
class Thumbnail:
    """A face on the page.

    Attributes:
        source: address of its crop, relative to the page.
        text: what it shows, for those who do not see it.
        id: name of the face for commands.
        caption: percentile of its quality.
        poor: whether it was attached to a group rather than a member.
        suggested: the person that it is most like, where it is of none.
        probability: that it is of that person, in percent.
        reasons: what makes it poor, in words.
    """

    source: str
    text: str
    id: str
    caption: str
    poor: bool
    suggested: Person | None = None
    probability: str = ""
    reasons: str = ""


@dataclass(frozen=True)
class PersonCard:
    """A person on the page.

    Attributes:
        person: the person.
        best: the best face.
        others: the next best ones, as many as are shown.
        more: number of faces that are not shown.
        alike: another person who may be this one.
        alike_probability: that they are one, in percent.
        commands: examples that correct the group.
    """

    person: Person
    best: Thumbnail
    others: list[Thumbnail]
    more: int
    alike: Person | None
    alike_probability: str
    commands: list[str]


def write_people_page(people: People) -> Path:
    """Write the page of a folder of people.

    Returns:
        The file, ``index.html`` in the folder.

    Raises:
        MissingExtraError: Jinja is not installed.
    """
    template = open_template("people.html.j2")
    folder = shlex.quote(os.fspath(people.folder))
    shown = [person for person in people.persons if not person.ignored]
    several = [person for person in shown if person.photos > 1 or person.name]
    once = [person for person in shown if person.photos == 1 and not person.name]
    ignored = [person for person in people.persons if person.ignored]
    alike: dict[int, tuple[Person, float]] = {}
    for one, other, probability in people.alike:
        alike.setdefault(one.number, (other, probability))
        alike.setdefault(other.number, (one, probability))
    unclear = people.unclear()
    non_faces = _with_status(people, FaceStatus.NON_FACE)
    cards = [_card(people, person, alike, folder) for person in several[:MAX_PEOPLE]]
    hidden = [_card(people, person, {}, folder) for person in ignored[:MAX_PEOPLE]]
    faces = {
        "once": [_thumbnail(people, int(person.rows[0])) for person in once[:MAX_ONCE]],
        "unclear": [_thumbnail(people, row) for row in unclear[:MAX_UNCLEAR].tolist()],
        "non_faces": [_thumbnail(people, row) for row in non_faces[:MAX_UNCLEAR]],
    }
    text = template.render(
        version=__version__,
        style=resource("page.css") + resource("people.css"),
        folder=folder,
        table=ROWS,
        summary=people.summary(),
        images=sum(map(len, faces.values())) + sum(1 + len(card.others) for card in cards + hidden),
        people=cards,
        linked={person.number for person in [*several[:MAX_PEOPLE], *once[:MAX_ONCE], *ignored[:MAX_PEOPLE]]},
        more_people=len(several) - len(cards),
        once_people=once,
        unclear_total=len(unclear),
        non_faces_total=len(non_faces),
        ignored=hidden,
        ignored_total=len(ignored),
        removed=len(_with_status(people, FaceStatus.REMOVED)),
        errors=[error for error in people.found.error.tolist() if error][:MAX_UNCLEAR],
        errors_total=int((people.found.image < 0).sum()),
        **faces,
    )
    path = people.folder / PAGE
    with atomic_write(path, "w") as file:
        file.write(text)
    return path


def _with_status(people: People, status: FaceStatus) -> list[int]:
    return [row for row, each in enumerate(people.status) if each is status]


def _card(people: People, person: Person, alike: dict[int, tuple[Person, float]], folder: str) -> PersonCard:
    best, *others = (_thumbnail(people, row) for row in person.rows[: MAX_FACES + 1].tolist())
    other, probability = alike.get(person.number, (None, 0.0))
    return PersonCard(
        person,
        best,
        others,
        len(person.rows) - 1 - len(others),
        other,
        _percent(probability),
        _commands(people, person, other, folder),
    )


def _commands(people: People, person: Person, alike: Person | None, folder: str) -> list[str]:
    """Commands for a person that can be pasted, with faces and names to change."""
    number = person.number
    if person.ignored:
        return [f"facerts people ignore {folder} {number} --restore"]
    last = " ".join(people.face_id(row) for row in person.rows[-EXAMPLE_FACES:].tolist())
    one = people.face_id(int(person.rows[-1]))
    commands = [f'facerts people name {folder} {number} "A name"']
    if alike is not None:
        commands.append(f"facerts people merge {folder} {number} {alike.number}")
    if len(person.rows) > EXAMPLE_FACES:
        commands.append(f"facerts people split {folder} {number} {last}")
    if alike is not None:
        commands.append(f"facerts people move {folder} {one} --to {alike.number}")
    return [
        *commands,
        f"facerts people remove {folder} {one}",
        f"facerts people ignore {folder} {number}",
    ]


def _thumbnail(people: People, row: int) -> Thumbnail:
    found = people.found
    photos = found.photos_of(row)
    name = Path(str(found.path[photos[0]])).name if len(photos) else ""
    sha256, number = str(found.sha256[found.face_image[row]]), int(found.number[row])
    percentile, probability = float(found.percentile[row]), float(people.groups.probability[row])
    status = people.status[row]
    reasons = in_words(found.reasons_of(row))
    likely = status is FaceStatus.UNCLEAR and probability >= MIN_PROBABILITY
    suggested = people.by_number.get(int(people.groups.suggested[row])) if likely else None
    of = people.by_number.get(int(people.groups.group[row]))
    what = "An object" if status is FaceStatus.NON_FACE else of.title if of else "An unclear face"
    return Thumbnail(
        f"{CROPS}/{crop_name(sha256, number)}",
        f"{what}, in {name}",
        people.face_id(row),
        "–" if np.isnan(percentile) else str(int(percentile)),
        status is FaceStatus.ATTACHED,
        suggested,
        "" if np.isnan(probability) else _percent(probability),
        reasons,
    )


def _percent(probability: float) -> str:
    """A share in percent, which no line ends within."""
    return f"{100 * probability:.0f}%"
