"""Faces without names, grouped by person, and what people decide about the groups."""

from facerts.people.corrections import Corrected, merge_people, move_faces, name_person, undo_decision
from facerts.people.grouping import FaceGroups, group_faces, same_person_of
from facerts.people.people import FaceStatus, People, Person, PersonFace
from facerts.people.people_folder import FoundPeople, find_people, read_people
from facerts.people.sorted_photos import copy_photos

__all__ = [
    "Corrected",
    "FaceGroups",
    "FaceStatus",
    "FoundPeople",
    "People",
    "Person",
    "PersonFace",
    "copy_photos",
    "find_people",
    "group_faces",
    "merge_people",
    "move_faces",
    "name_person",
    "read_people",
    "same_person_of",
    "undo_decision",
]
