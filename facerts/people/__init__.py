"""Faces without names, grouped by person, and what people decide about the groups."""

from facerts.people.grouping import FaceGroups, group_faces, same_person_of

__all__ = ["FaceGroups", "group_faces", "same_person_of"]
