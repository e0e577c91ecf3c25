"""Faces without names, grouped by person, and what people decide about the groups."""

from facerts.people.grouping import Grouping, group_faces
from facerts.people.same_person import SamePerson, same_person_of

__all__ = ["Grouping", "SamePerson", "group_faces", "same_person_of"]
