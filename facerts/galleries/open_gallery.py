"""Galleries by where they are kept."""

from __future__ import annotations

from pathlib import Path

from facerts.errors import MissingExtraError
from facerts.galleries.npz_gallery import NpzGallery
from facerts.galleries.stored_gallery import StoredGallery

SCHEMES = ("postgresql:", "postgres:")


def open_gallery(place: str | Path) -> StoredGallery:
    """The gallery in a file, or in a database; it need not exist before it is built.

    Args:
        place: an ``.npz`` file, or the address of a database such as ``postgresql://user@host/database?gallery=people``.

    Raises:
        MissingExtraError: the packages for databases are not installed.

    Examples:
        >>> from facerts.datasets.synthetic import write_synthetic_faces
        >>> write_synthetic_faces(Path("people"), identities=4, images=4)
        >>> import facerts
        >>> gallery = open_gallery("people.npz")
        >>> gallery.build(facerts.load(), "people", min_quality=-9).images
        16
    """
    if not str(place).startswith(SCHEMES):
        return NpzGallery(place)
    try:
        from facerts.galleries.postgres_gallery import PostgresGallery
    except ImportError as error:
        raise MissingExtraError(
            "a gallery in a database needs psycopg and pgvector: pip install 'facerts[postgres]'"
        ) from error
    return PostgresGallery(place)
