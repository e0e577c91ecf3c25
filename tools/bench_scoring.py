"""The speed of `facerts score` beside the bare model and a loop over single faces, and its memory.

    python tools/bench_scoring.py crops --data $FACERTS_DATA/faces/train-000000.tar
    python tools/bench_scoring.py photos photos/ --yunet yunet.onnx --scrfd scrfd_500m_kps.onnx
    python tools/bench_scoring.py memory 20000

The candidates alternate, so that other load on the machine affects all equally; medians over rounds are shown.
"""

from __future__ import annotations

import os
import resource
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from measuring import alternate, machine, peak_mib, ratios, run_benchmark, seconds_of, spread

from facerts.datasets import open_images
from facerts.datasets.synthetic import draw_face
from facerts.detection import open_detector
from facerts.embedding import OnnxQuality, load_embedder
from facerts.embedding.onnx_embedder import to_input
from facerts.hub.find import default_quality, find_model
from facerts.images import encode_jpeg, read
from facerts.images.align import align
from facerts.scoring import ScoreJob, Task, load, run_job

BATCH = 64


def crops(data, crops, rounds):
    """`facerts score` from a tar shard to CSV by the default quality.

    Beside it: bare ONNX Runtime on inputs in memory, a session of one thread for each core, and
    `facerts score --quality facerts-small`.
    """
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        shard = data or write_shard(scratch / "crops.tar", crops)
        source = open_images(shard)
        stacked = np.stack([source.crop(index) for index in range(len(source))])
        path = find_model(default_quality())
        sessions = [OnnxQuality(path, threads=1) for _ in range(os.cpu_count() or 1)]
        spec = sessions[0].description.input
        shares = np.array_split(to_input(stacked, spec), len(sessions))

        def bare(model, inputs):
            for start in range(0, len(inputs), BATCH):
                model.session.run(None, {spec.name: inputs[start : start + BATCH]})

        def in_memory():
            with ThreadPoolExecutor(len(sessions)) as pool:
                list(pool.map(bare, sessions, shares))

        candidates = {
            name: partial(seconds_of, partial(score, load(quality=quality, threads=1), shard, scratch / "rows.csv"))
            for name, quality in (("facerts score", None), ("facerts score --quality facerts-small", "facerts-small"))
        }
        compare({**candidates, "ONNX Runtime alone": in_memory}, len(source), rounds, "crops")


def photos(photos, yunet, scrfd, model, rounds):
    """`facerts score --detector yunet` beside decoding and detection alone in as many threads, and a plain loop.

    The loop is like that of insightface's FaceAnalysis: SCRFD at 640 x 640 on one photo at a time, then a recognizer on
    one face at a time, with the defaults of ONNX Runtime.
    """
    source = open_images(photos)
    paths = [source.location(index) for index in range(len(source))]
    scorer, yunet = load(detector=yunet, threads=1), open_detector(yunet, threads=1)
    scrfd, recognizer = open_detector(scrfd), load_embedder(find_model(model), batch_size=1)
    ours, alone, loop = "facerts score", "decoding and detection alone", "one at a time, SCRFD at 640"
    face_counts = {}

    def run_facerts():
        with tempfile.TemporaryDirectory() as folder:
            counts = dict.fromkeys(paths, 0)
            for row in score(scorer, photos, Path(folder) / "rows.csv"):
                counts[row.path] += row.face is not None
        face_counts[ours] = list(counts.values())

    def detect():
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            face_counts[alone] = [len(found) for found in pool.map(lambda path: yunet(read(path)), paths)]

    def one_at_a_time():
        face_counts[loop] = []
        for path in paths:
            image = read(path)
            detections = scrfd(image)
            for face in detections:
                recognizer(align(image, face.points)[None])
            face_counts[loop].append(len(detections))

    compare({ours: run_facerts, alone: detect, loop: one_at_a_time}, len(paths), rounds, "photos")
    for name, faces in face_counts.items():
        print(f"{name}: a face in {sum(count > 0 for count in faces)} of {len(faces)} photos, {sum(faces)} faces")


def memory(crops):
    """Memory while so many crops are scored, and while their rows are joined."""
    with tempfile.TemporaryDirectory() as folder:
        shard = write_shard(Path(folder) / "crops.tar", 500, copies=-(-crops // 500))
        done = 0

        def show(what):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            now = pages * resource.getpagesize() / 2**20
            print(f"{what}: {now:,.0f} MiB now, {peak_mib():,.0f} MiB peak", flush=True)

        def watch(images):
            nonlocal done
            done += images
            if done % max(crops // 10, 1) == 0:
                show(f"{done:,} crops")

        score(load(threads=1), shard, Path(folder) / "rows.csv", watch)
        show("rows joined")


def compare(candidates, count, rounds, unit):
    """Print items per second of each candidate, and the first one's beside each other's, after a warm-up round."""
    taken = alternate(candidates, rounds)
    print(machine())
    rates = {name: [count / seconds for seconds in times] for name, times in taken.items()}
    for name, values in rates.items():
        print(f"{name}: {spread(values, ',.1f')} {unit}/s")
    first, *others = rates
    for name in others:
        print(f"{first} / {name}: {spread(ratios(rates[first], rates[name]))}")


def score(scorer, paths, out, watch=lambda images: None):
    """Score like the command, and return the rows."""
    source = open_images(paths)
    job = ScoreJob(out, source, scorer.settings(embed=False))
    job.begin(resume=False)
    run_job(scorer, source, job, Task(), watch)
    return list(job.finish())


def write_shard(path, crops, copies=1):
    """Write synthetic faces as JPEG, each ``copies`` times."""
    faces = path.with_suffix("")
    faces.mkdir()
    with tarfile.open(path, "w") as archive:
        for number in range(crops):
            face = faces / f"{number:05d}.jpg"
            face.write_bytes(encode_jpeg(draw_face(number, 0)))
            for copy in range(copies):
                archive.add(face, f"{copy:05d}_{number:05d}.jpg")
    return path


ROUNDS = {"--rounds": (5, "rounds to measure")}
BENCHMARKS = {
    crops: {
        "--data": (Path, "tar shard of crops; without it, they are drawn"),
        "--crops": (2000, "number of crops that are drawn"),
        **ROUNDS,
    },
    photos: {
        "photos": (str, "photos to score"),
        "--yunet": (Path, "file of the detector"),
        "--scrfd": (Path, "file of the detector of the loop"),
        "--model": ("facerts-small", "name or file of the recognizer of the loop"),
        **ROUNDS,
    },
    memory: {"crops": (int, "number of crops to score")},
}


if __name__ == "__main__":
    run_benchmark(__doc__, BENCHMARKS)
