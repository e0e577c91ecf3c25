"""The folder of people: photos to people in it, and the people that it has.

======================  ======================================================
``faces-*.npz``         every photo, image and face, see ``found_faces``
``groups.npz``          the groups of the last run or correction, see ``groups_file``
``decisions.jsonl``     what people decided, see ``decisions``
``people.csv``          a row for each face, see ``PersonFace``
``crops/``              each face as a small image, see ``crop_name``
``parts/``              finished blocks of a run that has not ended
======================  ======================================================
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.open_source import open_images
from facerts.datasets.source import Source, Subset
from facerts.errors import DataError, Error
from facerts.galleries.enroll import ENROLLMENT_KEEP, default_threshold
from facerts.io.files import locked, make_folder, refuse_link, writing
from facerts.io.progress import progress_bar
from facerts.metrics.same_person import SamePerson
from facerts.people.constraints import Constraints, carry_out, keep_numbers, settle
from facerts.people.decisions import PeopleDecision, read_decisions, standing
from facerts.people.find_job import FindJob, crop_name, settings_text
from facerts.people.found_faces import (
    REMEDY,
    TABLE_NAME,
    FoundFaces,
    assemble,
    read_found_faces,
    table_name,
    write_found_faces,
)
from facerts.people.grouping import group_faces, same_person_of
from facerts.people.groups_file import PeopleGroups, read_groups_file, write_groups
from facerts.people.people import People
from facerts.scoring.prepare import stored_file
from facerts.scoring.scorer import Scorer

GROUPS, DECISIONS, ROWS = "groups.npz", "decisions.jsonl", "people.csv"
CROPS, PARTS, PAGE = "crops", "parts", "index.html"


@dataclass(frozen=True)
class FoundPeople:
    """The outcome of a run.

    Attributes:
        scored: number of images that were scored in this run; the others were known.
        vanished: photos of the last run that are not there any more.
        notices: what the user should know, a sentence each.
    """

    people: People
    scored: int
    vanished: tuple[str, ...]
    notices: tuple[str, ...]


def find_people(
    scorer: Scorer,
    images: str | Path | Sequence[str | Path] | Source,
    out: str | Path,
    *,
    add: bool = False,
    min_quality: float | None = None,
    progress: str = "",
) -> FoundPeople:
    """Group the faces of photos by person, into a folder.

    Run again, it scores only images that are new, groups all faces anew under everything that was decided, and gives
    each group the number of the earlier group with which it shares most faces. A run that was interrupted continues.

    Args:
        scorer: the model, calibrated for matching, and the detector for photos.
        images: files, folders, record directories, tar shards or lists; images in ``out`` are left out.
        out: the folder; created if it does not exist.
        add: keep the photos and groups of earlier runs as they are, and only place the faces of new photos, and those
            that were unclear.
        min_quality: faces below this quality join no groups with others; None for the model's threshold that keeps
            0.95 of its calibration faces, if it has one; -inf for none.
        progress: what a progress bar says; empty for none.

    Examples:
        >>> import facerts
        >>> from facerts.datasets.synthetic import write_synthetic_faces
        >>> write_synthetic_faces("album", identities=3, images=2)
        >>> found = find_people(facerts.load(), "album", "album_people", min_quality=-9)
        >>> found.scored, len(found.people.found), len(found.people.persons) > 0
        (6, 6, True)
        >>> find_people(facerts.load(), "album", "album_people", min_quality=-9).scored
        0
    """
    out = Path(out)
    same_person = same_person_of(scorer.recognizer.description)
    notices = []
    if min_quality is None:
        min_quality = default_threshold(scorer, ENROLLMENT_KEEP)
    if min_quality is None:
        min_quality = -np.inf
        name = "the model" if scorer.quality is None else scorer.quality.name
        notices.append(
            f"{name} has no quality threshold that keeps {ENROLLMENT_KEEP:g}, so poor faces may join "
            "groups; calibrate it on your own faces (facerts calibrate), or give min_quality"
        )
    scorer.row_builder(min_quality)  # refuses what is not a number
    check_folder(out)
    source = _outside(images if isinstance(images, Source) else open_images(images), out)
    with locked(out):
        # Tells the folder from others, whenever this run ends.
        with writing(out):
            make_folder(out / PARTS)
        decisions = read_decisions(out / DECISIONS)
        earlier, last = _last_run(out, min_quality)
        same_settings = earlier is None or earlier.settings == settings_text(scorer)
        if add and not same_settings:
            raise Error(
                f"{out}: made with another model, detector or minimum face size, whose faces add cannot keep; give "
                "the same, or run without add"
            )
        if not same_settings:
            notices.append("the model, the detector or the minimum face size has changed: all photos are scored again")
        job = FindJob(scorer, out / PARTS, out / CROPS)
        with progress_bar(shown=bool(progress)) as bar:
            task = bar.add_task(progress, total=len(source), unit="photos")
            scan = job.run(source, earlier, partial(bar.advance, task))
        found, vanished = scan.found, _vanished(earlier, scan.found, on_disk=add)
        if add and earlier is not None:
            found = _joined(earlier, found)
        before, constraints = carry_out(last.carried(earlier, found), found, decisions)
        groups = _group(found, same_person, min_quality, constraints, before, add=add)
        groups = replace(groups, table=table_name(found))
        people = People(out, found, groups, constraints, len(standing(decisions)))
        # The groups name their table, so that who reads sees both of the last run until both are of this one.
        write_found_faces(out / groups.table, found)
        save(people)
        job.remove()
        _remove_old_files(people)
    return FoundPeople(people, scan.scored, tuple(vanished), (*notices, *scan.damaged))


def read_people(folder: str | Path) -> People:
    """The people of a folder."""
    folder = Path(folder)
    if not (folder / GROUPS).is_file():
        raise _missing(folder / GROUPS)
    groups = read_groups_file(folder / GROUPS)
    try:
        found = _faces_of(groups, folder)
    except DataError:
        if read_groups_file(folder / GROUPS).table != groups.table:
            return read_people(folder)  # a run has ended in between
        if not (folder / groups.table).is_file():
            raise _missing(folder / groups.table) from None
        raise
    return people_after(folder, found, groups, read_decisions(folder / DECISIONS))


def _missing(path: Path) -> DataError:
    return DataError(
        f"{path.parent}: there is no {path.name}; facerts people find PHOTOS --out {path.parent} writes it"
    )


def people_after(folder: Path, found: FoundFaces, groups: PeopleGroups, decisions: Sequence[PeopleDecision]) -> People:
    """The people of a folder when all its decisions are carried out."""
    groups, constraints = carry_out(groups, found, decisions)
    return People(folder, found, groups, constraints, len(standing(decisions)))


def save(people: People) -> None:
    """Write the groups and the table of a folder."""
    write_groups(people.folder / GROUPS, people.groups)
    people.write_table(people.folder / ROWS)


def check_folder(folder: Path) -> None:
    """Check that a folder is one of people, or may become one."""
    if folder.is_file():
        raise Error(f"{folder} is a file; give a folder for the people")
    for path in (folder / CROPS, folder / PARTS, folder / DECISIONS):
        refuse_link(path)
    names = [path.name for path in folder.glob("*")]
    there = {name for name in names if not name.startswith(".")}
    if there and not (there & {GROUPS, DECISIONS, PARTS} or any(map(TABLE_NAME.fullmatch, there))):
        raise Error(f"{folder} is not a folder of people: it has {min(there)} in it; choose a new or an empty folder")


def _last_run(folder: Path, min_quality: float) -> tuple[FoundFaces | None, PeopleGroups]:
    """The faces of the last run and their groups; where one of the two was lost, those of the newest table in none."""
    groups = read_groups_file(folder / GROUPS) if (folder / GROUPS).exists() else None
    if groups is not None and (folder / groups.table).exists():
        return _faces_of(groups, folder), groups
    tables = [path for path in folder.iterdir() if TABLE_NAME.fullmatch(path.name)]
    newest = max(tables, key=lambda path: path.stat().st_mtime_ns, default=None)
    found = None if newest is None else read_found_faces(newest)
    highest = 0 if groups is None else groups.highest
    return found, PeopleGroups.none(len(found or ()), min_quality, highest)


def _faces_of(groups: PeopleGroups, folder: Path) -> FoundFaces:
    found = read_found_faces(folder / groups.table)
    if len(found) != len(groups.group):
        raise DataError(
            f"{folder / GROUPS}: groups of {len(groups.group):,} faces, but {groups.table} has {len(found):,}; {REMEDY}"
        )
    return found


def _outside(source: Source, folder: Path) -> Source:
    """A source without the images in a folder, such as the crops of an earlier run."""
    inside = Path(os.path.realpath(folder))
    kept = []
    for index in range(len(source)):
        file = source.file_of(index)
        if file is None or inside not in Path(os.path.realpath(file)).parents:
            kept.append(index)
    if len(kept) == len(source):
        return source
    if not kept:
        raise DataError(f"{source.name}: all images are in {folder}, the folder for the people; choose another")
    return Subset(source, kept)


def _vanished(earlier: FoundFaces | None, found: FoundFaces, *, on_disk: bool) -> list[str]:
    """The photos of the last run that are not in this one, or not on disk, under any name."""
    if earlier is None:
        return []
    paths, images = set(found.path.tolist()), set(found.sha256.tolist())
    gone = [photo.path for photo in earlier.photos if photo.path not in paths and photo.sha256 not in images]
    return sorted(path for path in gone if not on_disk or _is_gone(path))


def _is_gone(path: str) -> bool:
    """Whether neither a file nor the archive that it was in is there."""
    file = stored_file(path)
    return not (os.path.lexists(file) or any(parent.is_file() for parent in file.parents))


def _joined(earlier: FoundFaces, found: FoundFaces) -> FoundFaces:
    """The photos of earlier runs and new ones; one that is gone is left out if it was broken or has a copy."""
    new, images = set(found.path.tolist()), set(found.sha256.tolist())
    kept = [
        photo
        for photo in earlier.photos
        if photo.path not in new and not ((photo.error or photo.sha256 in images) and _is_gone(photo.path))
    ]
    return assemble([*kept, *found.photos], [earlier, found])


def _group(
    found: FoundFaces,
    same_person: SamePerson,
    min_quality: float,
    constraints: Constraints,
    before: PeopleGroups,
    *,
    add: bool,
) -> PeopleGroups:
    usable = found.usable(min_quality)
    rows = np.flatnonzero(~constraints.removed & (usable | found.is_face | _decided(constraints)))
    place = np.full(len(found), -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    groups, earlier, highest = PeopleGroups.none(len(found), min_quality), before.group, before.highest
    grouping = group_faces(
        found.embedding[rows],
        found.percentile[rows],
        usable[rows],
        same_person,
        together=[place[each] for each in constraints.together],
        apart=[(place[one], place[other]) for one, other in constraints.apart],
        group=earlier[rows] if add else None,
        photo=found.face_image[rows].astype(np.int64),
    )
    group, suggested = groups.group.copy(), groups.suggested.copy()
    group[rows], suggested[rows] = grouping.group, grouping.suggested
    groups.probability[rows] = grouping.probability
    unused = max(int(group.max(initial=-1)), int(suggested.max(initial=-1)), highest)
    group, _ = settle(group, usable, constraints, unused)
    if add:
        # A group that is there keeps its number whatever joins it.
        kept = np.isin(group, earlier[earlier >= 0])
        numbers = {number: number for number in np.unique(group[kept]).tolist()}
        numbers |= keep_numbers(np.where(kept, -1, group), groups.group, highest)
    else:
        numbers = keep_numbers(group, earlier, highest)
    renumbered = np.vectorize(lambda number: numbers.get(number, -1), otypes=[np.int64])
    return replace(
        groups,
        group=renumbered(group),
        suggested=renumbered(suggested),
        highest=max([highest, *numbers.values()]),
        alike=renumbered(np.array([pair[:2] for pair in grouping.alike]).reshape(-1, 2)),
        alike_probability=np.array([probability for *_, probability in grouping.alike]),
        decisions=before.decisions,
    )


def _decided(constraints: Constraints) -> NDArray[np.bool_]:
    """Whether somebody said of each face whose it is, or is not."""
    decided = np.zeros(len(constraints.removed), dtype=bool)
    for rows in chain((rows for rows, _ in constraints.known), *constraints.apart):
        decided[rows] = True
    return decided


def _remove_old_files(people: People) -> None:
    """Remove the tables of earlier runs, and the crops of faces that are in the table no more."""
    found = people.found
    kept = {
        crop_name(str(found.sha256[image]), number)
        for image, number in zip(found.face_image.tolist(), found.number.tolist(), strict=True)
    }
    kept.add(people.groups.table)
    with writing(people.folder):
        for path in [*people.folder.glob("faces-*.npz"), *(people.folder / CROPS).glob("*-*.jpg")]:
            if path.name not in kept:
                path.unlink()
