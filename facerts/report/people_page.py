"""The page of people: a contact sheet for each, with the commands that correct it.

The page lies in the folder of people and shows the crops beside it, which are loaded as they come into view; it needs
no script and no network.
"""

from __future__ import annotations

import os
import shlex
from functools import partial
from pathlib import Path

from facerts.evaluation.wording import percent
from facerts.io.files import atomic_write
from facerts.people.find_job import crop_name
from facerts.people.people import FaceStatus, People, Person
from facerts.people.people_folder import CROPS, PAGE, ROWS
from facerts.report.page_elements import open_template, resource
from facerts.scoring.reasons import in_words
from facerts.version import __version__

# A browser lays out some ten thousand images; the table has all faces.
MAX_FACES, MAX_PEOPLE, MAX_ONCE, MAX_UNCLEAR = 24, 400, 400, 300
# Less likely people are not suggested.
MIN_PROBABILITY = 0.01


def write_people_page(people: People) -> Path:
    """Write the page of a folder of people, ``index.html`` in it."""
    template = open_template("people.html.j2")
    shown = people.shown()
    several = [person for person in shown if person.photos > 1 or person.name]
    once = [person for person in shown if person.photos == 1 and not person.name]
    hidden = [person for person in people.persons if person.hidden]
    alike: dict[int, tuple[Person, float]] = {}
    for one, other, probability in people.alike:
        alike.setdefault(one.number, (other, probability))
        alike.setdefault(other.number, (one, probability))
    unclear, non_faces = people.unclear(), _with_status(people, FaceStatus.NON_FACE)
    loose = {
        "once": [people.face(int(person.rows[0])) for person in once[:MAX_ONCE]],
        "unclear": [people.face(row) for row in unclear[:MAX_UNCLEAR].tolist()],
        "non_faces": [people.face(row) for row in non_faces[:MAX_UNCLEAR]],
    }
    cards = {
        person.number: [people.face(row) for row in person.rows[: MAX_FACES + 1].tolist()]
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
        persons=people.by_number,
        crop=lambda face: f"{CROPS}/{crop_name(face.image_sha256, face.face)}",
        file_name=lambda path: Path(path).name,
        in_words=in_words,
        percent=partial(percent, digits=0),
        min_probability=MIN_PROBABILITY,
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
