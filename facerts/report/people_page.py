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


def write_people_page(people: People) -> Path:
    """Write the page of a folder of people.

    Returns:
        The file, ``index.html`` in the folder.

    Raises:
        MissingExtraError: Jinja is not installed.
    """
    template = open_template("people.html.j2")
    shown = [person for person in people.persons if not person.hidden]
    several = [person for person in shown if person.photos > 1 or person.name]
    once = [person for person in shown if person.photos == 1 and not person.name]
    hidden = [person for person in people.persons if person.hidden]
    alike: dict[int, tuple[Person, str]] = {}
    for one, other, probability in people.alike:
        alike.setdefault(one.number, (other, _percent(probability)))
        alike.setdefault(other.number, (one, _percent(probability)))
    unclear, non_faces = people.unclear(), _with_status(people, FaceStatus.NON_FACE)
    loose = {
        "once": [_thumbnail(people, int(person.rows[0])) for person in once[:MAX_ONCE]],
        "unclear": [_thumbnail(people, row) for row in unclear[:MAX_UNCLEAR].tolist()],
        "non_faces": [_thumbnail(people, row) for row in non_faces[:MAX_UNCLEAR]],
    }
    cards = {
        person.number: [_thumbnail(people, row) for row in person.rows[: MAX_FACES + 1].tolist()]
        for person in several[:MAX_PEOPLE] + hidden[:MAX_PEOPLE]
    }
    text = template.render(
        version=__version__,
        style=resource("page.css") + resource("people.css"),
        folder=shlex.quote(os.fspath(people.folder)),
        table=ROWS,
        summary=people.summary(),
        images=sum(map(len, [*loose.values(), *cards.values()])),
        cards=cards,
        linked={*cards, *(person.number for person in once[:MAX_ONCE])},
        alike=alike,
        face_id=people.face_id,
        people=several[:MAX_PEOPLE],
        people_total=len(several),
        once_people=once,
        hidden=hidden[:MAX_PEOPLE],
        hidden_total=len(hidden),
        unclear_total=len(unclear),
        non_faces_total=len(non_faces),
        removed=len(_with_status(people, FaceStatus.REMOVED)),
        errors=[error for error in people.found.error.tolist() if error][:MAX_UNCLEAR],
        errors_total=int((people.found.image < 0).sum()),
        **loose,
    )
    path = people.folder / PAGE
    with atomic_write(path, "w") as file:
        file.write(text)
    return path


def _with_status(people: People, status: FaceStatus) -> list[int]:
    return [row for row, each in enumerate(people.status) if each is status]


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
