"""What reads each kind of file, as users' commands do: the whole of it, with all that is asked of what was read.

The tests of hostile files and the fuzzing read by the same functions, which raise the project's own errors and nothing
else, whatever a file holds.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from facerts.datasets.source import Source
from facerts.errors import DataError, ImageError, VideoError


def read_images(source, most=None, read=Source.read):
    """Read every name and every image, or the first ``most``; what is wrong with each that cannot be read."""
    errors = []
    for index in range(len(source) if most is None else min(len(source), most)):
        source.location(index)
        try:
            read(source, index)
        except (DataError, ImageError) as error:
            errors.append(error)
    return errors


def read_source(path):
    from facerts.datasets import open_images

    read_images(open_images(path))


def read_table(path):
    from facerts.embedding import load_table

    load_table(path)


def read_gallery(path):
    from facerts import Gallery

    gallery = Gallery(path)
    gallery.check()
    gallery.best(2)
    gallery.threshold(0.01)


def read_report(path):
    from facerts.galleries import read_findings

    read_findings(path)


def read_pairs(path):
    from facerts.datasets.listed_pairs import load_pair_list

    load_pair_list(path)


def read_adience(path):
    from facerts.datasets.adience import write_adience_groups

    write_adience_groups(path.parent, path.with_suffix(".csv"))


def read_model(path):
    import numpy as np

    from facerts.embedding import OnnxQuality, load_embedder

    crops = np.random.default_rng(0).integers(0, 256, (5, 112, 112, 3), dtype=np.uint8)
    embedder = load_embedder(path, threads=1)
    embedder(crops)
    OnnxQuality(path, threads=1)(crops)


def read_recipe(path):
    from facerts.training.recipe import load_recipe

    load_recipe(path)


def read_checkpoint(path):
    from facerts.training.checkpoint import is_checkpoint, load_checkpoint, read_file
    from facerts.training.init_weights import open_network

    open_network(path)
    if is_checkpoint(read_file(path)):
        load_checkpoint(path)


def read_exported(path):
    from facerts.nn import build_network, exported
    from facerts.nn.twin_heads import HeadSpec

    heads = {"log_scale": HeadSpec(16, batch_norm=True)}
    network = build_network("mobilefacenet", width=0.125, embedding_size=4, heads=heads)
    exported.load_exported(network, exported.read_exported(path), heads=True)


def read_result(folder):
    from facerts.evaluation.comparison import compare
    from facerts.report import write_report

    with TemporaryDirectory() as out:
        write_report([folder], Path(out) / "page.html")
    compare([f"one={folder}", f"other={folder}"])


def read_log(path):
    from facerts.report import write_report

    with TemporaryDirectory() as out:
        write_report([path.parent], Path(out) / "page.html")


def read_video(path):
    import gc

    from facerts.video import open_frames

    # What is in no cycle is gone without it.
    gc.disable()
    source = open_frames(path)
    for _ in source.frames(1000):
        pass
    if source.report.damaged:
        raise VideoError(f"{path}: damaged, or too much for the memory")


READERS = {
    "source": read_source,
    "table": read_table,
    "gallery": read_gallery,
    "report": read_report,
    "pairs": read_pairs,
    "adience": read_adience,
    "model": read_model,
    "recipe": read_recipe,
    "checkpoint": read_checkpoint,
    "exported": read_exported,
    "result": read_result,
    "log": read_log,
    "video": read_video,
}
