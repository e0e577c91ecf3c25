"""Compare the speed of `facerts score` with the bare model and with a loop over single faces, and watch its memory.

The candidates alternate, so that other load on the machine affects all equally; medians over rounds are shown.

    python tools/bench_scoring.py --data $FACERTS_DATA/faces/train-000000.tar
    python tools/bench_scoring.py --photos photos/ --yunet yunet.onnx --scrfd scrfd_500m_kps.onnx
    python tools/bench_scoring.py --memory 20000

Crops: `facerts score` from a tar shard to CSV by the default quality, against bare ONNX Runtime on inputs in memory, a
session of one thread for each core, and against `facerts score --quality facerts-small`.

Photos: `facerts score --detector yunet` against decoding and detection alone in as many threads, and against a loop
like that of insightface's FaceAnalysis: SCRFD at 640 x 640 on one photo at a time, then the same recognizer on one face
at a time, with the defaults of ONNX Runtime. With --insightface PYTHON (an interpreter that has insightface, see
tools/check_integrations.py) it is insightface itself.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from bench import alternate, machine, parser_of, peak_mib, ratios, spread, write_faces

from facerts.datasets import open_images
from facerts.detection import open_detector
from facerts.embedding import OnnxQuality, load_embedder
from facerts.embedding.embedding_only import keep_embedding
from facerts.embedding.onnx_embedder import to_input
from facerts.hub.find import default_quality, find_model
from facerts.images import read
from facerts.images.align import align
from facerts.scoring import ScoreJob, Scorer, Task, load, run_job

BATCH = 64
# Runs in the interpreter with insightface: for each input line it processes all photos, and prints time and faces.
INSIGHTFACE = """
import json, sys
import cv2
from insightface.app import FaceAnalysis
folder, photos = sys.argv[1], json.load(open(sys.argv[2]))
app = FaceAnalysis(name="pack", root=folder, providers=["CPUExecutionProvider"])
app.prepare(ctx_id=-1, det_thresh=0.5, det_size=(640, 640))
print("ready", flush=True)
for _ in sys.stdin:
    print(json.dumps([len(app.get(cv2.imread(photo))) for photo in photos]), flush=True)
"""


def main() -> None:
    parser = parser_of(
        __doc__,
        {
            "--model": ("facerts-small", "name or file of the recognizer of the loop"),
            "--data": (Path, "tar shard of crops; without it, they are drawn"),
            "--crops": (2000, "number of crops that are drawn"),
            "--photos": (str, "photos to score, instead of crops"),
            "--yunet": (Path, "file of the detector, for --photos"),
            "--scrfd": (Path, "file of the detector of the loop, for --photos"),
            "--insightface": (str, "Python interpreter with insightface, to compare with its own loop"),
            "--memory": (int, "number of crops to score while watching memory, instead of measuring speed"),
        },
        rounds=5,
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run = memory if options.memory else photos if options.photos else crops
        run(options, Path(scratch))


def crops(options: argparse.Namespace, scratch: Path) -> None:
    shard = options.data or scratch / "crops.tar"
    if options.data is None:
        write_shard(shard, options.crops)
    source = open_images(shard)
    stacked = np.stack([source.crop(index) for index in range(len(source))])
    path = find_model(default_quality())
    sessions = [OnnxQuality(path, threads=1) for _ in range(os.cpu_count() or 1)]
    spec = sessions[0].description.input
    shares = np.array_split(to_input(stacked, spec), len(sessions))

    def bare(model: OnnxQuality, inputs: np.ndarray) -> None:
        for start in range(0, len(inputs), BATCH):
            model.session.run(None, {spec.name: inputs[start : start + BATCH]})

    def in_memory() -> None:
        with ThreadPoolExecutor(len(sessions)) as pool:
            list(pool.map(bare, sessions, shares))

    ours = "facerts score"
    candidates: dict[str, Callable[[], None]] = {"ONNX Runtime alone": in_memory}
    for quality in ("", "facerts-small"):
        scorer = load(quality=quality or None, threads=1)
        name = f"{ours} --quality {quality}" if quality else ours
        candidates[name] = partial(_timed, scorer, shard, scratch / "rows.csv")
    rates = measure(candidates, len(source), options.rounds, "crops")
    for name in (name for name in candidates if name != ours):
        print(f"{ours} / {name}: {spread(ratios(rates[ours], rates[name]))}")


def photos(options: argparse.Namespace, scratch: Path) -> None:
    source = open_images(options.photos)
    paths = [source.location(index) for index in range(len(source))]
    scorer = load(detector=options.yunet, threads=1)
    face_counts: dict[str, list[int]] = {}

    def run_facerts() -> None:
        rows = score(scorer, options.photos, scratch / "rows.csv")
        counts = dict.fromkeys(paths, 0)
        for path, face in rows:
            counts[path] += face is not None
        face_counts["facerts score"] = list(counts.values())

    detector, alone = open_detector(options.yunet, threads=1), "decoding and detection alone"

    def detect() -> None:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            face_counts[alone] = [len(found) for found in pool.map(lambda path: detector(read(path)), paths)]

    with peer(options, paths, scratch) as (name, loop):

        def run_peer() -> None:
            face_counts[name] = loop()

        candidates = {"facerts score": run_facerts, alone: detect, name: run_peer}
        rates = measure(candidates, len(paths), options.rounds, "photos")
    for other in (alone, name):
        print(f"facerts score / {other}: {spread(ratios(rates['facerts score'], rates[other]))}")
    for candidate, faces in face_counts.items():
        print(f"{candidate}: a face in {sum(count > 0 for count in faces)} of {len(faces)} photos, {sum(faces)} faces")


@contextmanager
def peer(options: argparse.Namespace, paths: list[str], scratch: Path) -> Iterator[tuple[str, Callable[[], list[int]]]]:
    if options.insightface is None:
        detector = open_detector(options.scrfd)
        recognizer = load_embedder(find_model(options.model), batch_size=1)

        def loop() -> list[int]:
            faces = []
            for path in paths:
                image = read(path)
                detections = detector(image)
                for face in detections:
                    recognizer(align(image, face.points)[None])
                faces.append(len(detections))
            return faces

        yield "one at a time, SCRFD at 640", loop
        return
    pack = scratch / "models" / "pack"
    pack.mkdir(parents=True)
    shutil.copy(options.scrfd, pack / "detector.onnx")
    keep_embedding(find_model(options.model), pack / "recognizer.onnx")
    listed = scratch / "photos.json"
    listed.write_text(json.dumps([os.path.abspath(path) for path in paths]))
    with subprocess.Popen(
        [options.insightface, "-c", INSIGHTFACE, str(scratch), str(listed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=scratch,
    ) as process:
        asked, answers = process.stdin, process.stdout
        assert asked is not None
        assert answers is not None
        if not any(line.strip() == "ready" for line in answers):
            raise SystemExit(f"{options.insightface}: ended without insightface")

        def ask() -> list[int]:
            asked.write("go\n")
            asked.flush()
            return list(json.loads(answers.readline()))

        yield "insightface's FaceAnalysis", ask
        asked.close()


def memory(options: argparse.Namespace, scratch: Path) -> None:
    shard = scratch / "crops.tar"
    write_shard(shard, 500, copies=-(-options.memory // 500))
    scorer = load(threads=1)
    source = open_images(shard)
    job = ScoreJob(scratch / "rows.csv", source, scorer.settings(embed=False))
    job.begin(resume=False)
    done = 0

    def watch(images: int) -> None:
        nonlocal done
        done += images
        if done % max(options.memory // 10, 1) == 0:
            print(f"{done:,} crops: {resident():,.0f} MiB now, {peak_mib():,.0f} MiB peak", flush=True)

    run_job(scorer, source, job, Task(), watch)
    for _ in job.finish():
        pass
    print(f"rows joined: {resident():,.0f} MiB now, {peak_mib():,.0f} MiB peak")


def measure(candidates: dict[str, Callable[[], None]], count: int, rounds: int, unit: str) -> dict[str, list[float]]:
    """Items per second of each candidate in each round, after a warm-up round."""
    taken = alternate(candidates, rounds)
    print(machine())
    rates = {name: [count / seconds for seconds in times] for name, times in taken.items()}
    for name, values in rates.items():
        print(f"{name}: {spread(values, ',.1f')} {unit}/s")
    return rates


def _timed(scorer: Scorer, paths: str | Path, out: Path) -> None:
    score(scorer, paths, out)


def score(scorer: Scorer, paths: str | Path, out: Path) -> list[tuple[str, int | None]]:
    """Score like the command; the path and face number of each row."""
    source = open_images(paths)
    job = ScoreJob(out, source, scorer.settings(embed=False))
    job.begin(resume=False)
    run_job(scorer, source, job, Task())
    return [(row.path, row.face) for row in job.finish()]


def write_shard(path: Path, crops: int, copies: int = 1) -> None:
    """Write synthetic faces as JPEG, each ``copies`` times."""
    faces = write_faces(path.with_suffix(""), crops)
    with tarfile.open(path, "w") as archive:
        for copy in range(copies):
            for number in range(crops):
                archive.add(faces / f"{number:07d}.jpg", f"{copy:05d}_{number:05d}.jpg")


def resident() -> float:
    """Current memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


if __name__ == "__main__":
    main()
