"""Copies training faces for a machine that a few megabytes reach at a time: as WebP, in tar files of a limited size.

The files together are read as the original is: images keep their identities. A GPU for fifteen minutes then needs the
pieces, the teachers, and the training's own command, which two cores rehearse with a shorter budget:

    python tools/small_pieces.py $FACERTS_DATA/faces/train-*.tar $FACERTS_DATA/faces/more-*.tar \
        $FACERTS_DATA/faces/fiw-*.tar --out kit/faces
    python tools/small_pieces.py $FACERTS_DATA/faces_unlabeled/*.tar --out kit/unlabeled
    facerts train ours/facerts_small 'data.train=[kit/faces/*.tar]' 'data.unlabeled=kit/unlabeled/*.tar' \
        data.name=NAMES data.terms=TERMS optim.epochs=200 --budget 8m --out runs/kit   # --resume goes on
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import cv2
from bench import parser_of

from facerts.curation.output_spec import shard_name, write_shard
from facerts.datasets import Source, open_source
from facerts.datasets.encoded_images import EncodedImage, encoded_image
from facerts.io.progress import track


def main() -> None:
    parser = parser_of(
        __doc__,
        {
            "--out": (Path("kit"), "folder of the pieces"),
            "--megabytes": (40.0, "of a piece at most"),
            "--quality": (60, "of WebP"),
        },
    )
    parser.add_argument("sources", nargs="+", help="folders, record directories or tar shards")
    options = parser.parse_args()
    images = (image for path in options.sources for image in as_webp(open_source(path), options.quality))
    number = 0
    for number, piece in enumerate(pieces(images, int(1e6 * options.megabytes)), 1):
        write_shard(options.out / shard_name(number - 1), piece)
    print(f"{number} pieces of at most {options.megabytes:g} MB in {options.out}")


def as_webp(source: Source, quality: int) -> Iterator[EncodedImage]:
    """The images of a source, encoded again."""
    for index in track(range(len(source)), f"encoding {source.name}"):
        crop = cv2.cvtColor(source.crop(index), cv2.COLOR_RGB2BGR)
        _, data = cv2.imencode(".webp", crop, [cv2.IMWRITE_WEBP_QUALITY, quality])
        image = encoded_image(source, index, bytes(data))
        yield image._replace(name=str(Path(image.name).with_suffix(".webp")))


def pieces(images: Iterator[EncodedImage], most: int) -> Iterator[list[EncodedImage]]:
    """Runs of images whose tar files have at most so many bytes."""
    piece: list[EncodedImage] = []
    size = 0
    for image in images:
        # A header, and the data up to the end of a block; the file ends with two blocks, at the end of a record.
        taken = tarfile.BLOCKSIZE * (2 + len(image.data) // tarfile.BLOCKSIZE)
        if piece and size + taken > most - 2 * tarfile.RECORDSIZE:
            yield piece
            piece, size = [], 0
        piece.append(image)
        size += taken
    if piece:
        yield piece


if __name__ == "__main__":
    main()
