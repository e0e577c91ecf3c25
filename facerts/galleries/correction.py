"""Remove what a check found, but no person's last face."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from facerts.galleries.findings import Finding, Listed, Reason

if TYPE_CHECKING:
    from facerts.galleries.gallery import Gallery

# What a person's last image may be: something is better than nothing, and where each image is unlike the others, check
# cannot say which is wrong.
KEPT_IF_LAST = (Reason.POOR, Reason.ANOTHER_PERSON)


def correct_gallery(
    gallery: Gallery, findings: Sequence[Finding | Listed]
) -> tuple[Gallery, list[tuple[str, str]]]:
    """See ``Gallery.correct``."""
    people = {found.person for found in findings if not found.path}
    images = {(found.person, found.path) for found in findings if found.path}
    final = {(found.person, found.path) for found in findings if found.reason not in KEPT_IF_LAST}
    left = {person for person, path in gallery.entries if (person, path) not in images} | people
    kept: dict[str, str] = {}
    for image in gallery.best(len(gallery.enrollments)):
        if image.person not in left and (image.person, image.path) not in final:
            kept.setdefault(image.person, image.path)
    return gallery.remove(people=people, images=images - set(kept.items())), sorted(kept.items())
