"""Times of models, detectors, data, evaluations, videos and the browser module, beside what each is compared with.

    python tools/bench.py embed mobilefacenet.onnx facerts-small --rounds 1000

Candidates take turns, round by round, so that what else the machine does meets all of them alike.
"""

from __future__ import annotations

import gzip
import os
import shutil
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path

import cv2
import numpy as np
from measuring import (
    alternate,
    in_process,
    machine,
    peak_mib,
    ratios,
    run_benchmark,
    seconds_of,
    spread,
    with_quartiles,
)

import facerts
from facerts.datasets import open_benchmark, open_images, open_source, pairs_from_identities
from facerts.datasets.pair_layouts import save_bin
from facerts.datasets.synthetic import draw_face, write_synthetic_faces
from facerts.detection import Detection, open_detector
from facerts.embedding import load_embedder
from facerts.embedding.onnx_embedder import load_model, to_input
from facerts.hub.find import find_model
from facerts.images import decode, encode_jpeg, encode_png
from facerts.metrics.intervals import percentile_interval

BATCH = 64  # of evaluations


def embed(models, threads, batch, rounds):
    """Models beside each other on one core, or more: crops in, embedding and quality out, or either.

    Preparing the input is included; decoding is not. In brackets: the 95% interval of the median ratio to the first
    model, from a bootstrap that takes the rounds as independent.
    """
    loaded = [load_model(find_model(model), threads=threads, batch_size=batch) for model in models]
    names = [each.name for each in loaded]
    crops = np.stack([draw_face(number, 0) for number in range(batch)])
    candidates = {
        model if names.count(each.name) > 1 else each.name: partial(seconds_of, partial(each, crops))
        for model, each in zip(models, loaded, strict=True)
    }
    taken = alternate(candidates, rounds)
    print(machine())
    first = next(iter(taken))
    for name, seconds in taken.items():
        ms = [1000 * value / batch for value in seconds]
        compared = ratios(seconds, taken[first])
        drawn = np.random.default_rng(0).choice(compared, (2000, rounds))
        low, high = percentile_interval(np.median(drawn, axis=1))
        print(
            f"{name}: {with_quartiles(ms)} ms a crop, {1000 / statistics.median(ms):.0f} crops/s, "
            f"{statistics.median(compared):.3f} of {first} [{low:.3f}, {high:.3f}]"
        )


# Detectors.

MIRRORED = [1, 0, 2, 4, 3]  # left and right change places in a mirror


def detect(photos, detector, side):
    """Detectors beside each other on the same photos: faces found, time, and how exact their points are.

    They take turns, photo by photo, with one thread each. Times include reading the JPEG of the photo, with --side
    enlarged or reduced to that longer side. Distances of points are the mean of the five, as a share of the distance of
    the eyes: from the points that the first detector has for the same face (boxes that overlap by half), and from those
    that the detector itself has for it in the photo's mirror. After a name follows how photos are searched: auto, full,
    a number of pixels, or once, one pass at the size of the network's whole photos.
    """
    cv2.setNumThreads(1)
    searches = {Path(given).name: _search(given) for given in detector}
    found, mirrored, ms = ({name: [] for name in searches} for _ in range(3))
    source = open_images(photos)
    for index in range(len(source)):
        data = source.read(index)
        photo = decode(data, where=source.location(index))
        if side:
            scale = side / max(photo.shape[:2])
            photo = cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
            data = encode_jpeg(photo, 90)
        mirror = np.ascontiguousarray(photo[:, ::-1])
        for name, search in searches.items():
            mirrored[name].append([_mirrored(face, photo.shape[1]) for face in search(mirror)])
            began = time.perf_counter()
            found[name].append(search(decode(data, where="the photo")))
            ms[name].append((time.perf_counter() - began) * 1000)
    print(machine())
    first = next(iter(searches))
    for name, faces in found.items():
        print(
            f"{name}: {sum(map(len, faces))} faces, at least one in {sum(map(bool, faces))} of {len(source)} photos; "
            f"{with_quartiles(ms[name], '.1f')} ms a photo, {with_quartiles(ratios(ms[name], ms[first]))} of {first}'s"
        )
        print(f"  points {_distances(faces, mirrored[name])} of its own in the mirror")
        if name != first:
            print(f"  points {_distances(faces, found[first])} of {first}")


def _search(given):
    name, _, size = given.partition(":")
    if size != "once":
        return open_detector(name, size=int(size) if size.isdigit() else size or "auto", threads=1)
    network = open_detector(name, rotate=False, threads=1).network

    def once(photo):
        scale = network.size / max(photo.shape[:2])
        if scale > 1 and not network.enlarges:
            return network(photo)
        small = cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        pixel = np.array(photo.shape[1::-1]) / small.shape[1::-1]
        return [face.moved(pixel, np.zeros(2)) for face in network(small)]

    return once


def _mirrored(face, width):
    left, top, right, bottom = face.box
    points = np.stack([width - face.points[MIRRORED, 0], face.points[MIRRORED, 1]], axis=1)
    return Detection(np.array([width - right, top, width - left, bottom]), points, face.score)


def _distances(found, others):
    """How far the points of the faces that both found are apart."""
    apart = []
    for faces, beside in zip(found, others, strict=True):
        for face in faces:
            same = max(beside, key=lambda other: _overlap(face.box, other.box), default=None)
            if same is not None and _overlap(face.box, same.box) >= 0.5:
                eyes = np.linalg.norm(same.points[1] - same.points[0])
                apart.append(np.linalg.norm(face.points - same.points, axis=1).mean() / eyes)
    shares = ", ".join(f"{np.quantile(apart, q):.3f} ({q:.0%})" for q in (0.5, 0.9))
    return f"of {len(apart)} faces apart by {shares} from those"


def _overlap(box, other):
    shared = np.prod(np.maximum(np.minimum(box[2:], other[2:]) - np.maximum(box[:2], other[:2]), 0))
    return float(shared / (np.prod(box[2:] - box[:2]) + np.prod(other[2:] - other[:2]) - shared))


# Reading images and training batches.


def reading(data, images, processes, workers, rounds):
    """The rates of reading images and of loading training batches beside that of pure decoding.

    The upper limit is decoding the same images from memory with the same number of processes.
    """
    from facerts.curation.output_spec import OutputSpec
    from facerts.curation.rearrange import pack

    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        if not data:
            write_synthetic_faces(scratch / "faces", identities=100, images=20)
        pack([open_source(data or scratch / "faces")], OutputSpec(scratch / "rec"))
        records = open_source(scratch / "rec")
        count = min(images, len(records))
        orders = {
            "sequential": np.arange(count),
            "random": np.random.default_rng(0).permutation(len(records))[:count],
        }
        limit = f"decode, {processes} processes"
        candidates = {limit: partial(_decode_rate, records, count, processes)}
        for name, order in orders.items():
            candidates[f"read and decode, {name}, {processes} processes"] = partial(
                _rate, partial(_read, records), [order[start::processes] for start in range(processes)]
            )
        for each in workers:
            candidates[f"training batches, {each} workers"] = partial(_batch_rate, scratch / "rec", count, each)
        rates = alternate(candidates, rounds, warm_up=0)
    print(f"{count:,} images, median of {rounds} rounds, images/s; {machine()}")
    for name, values in rates.items():
        print(f"  {name:42} {spread(values, ',.0f')}")
    for name in list(rates)[1:]:
        print(f"{name} / {limit}: {spread(ratios(rates[name], rates[limit]), '.3f')}")
    return {"images": count, "images_per_s": {name: statistics.median(values) for name, values in rates.items()}}


def _batch_rate(folder, count, workers):
    """Images/s of the training loader without augmentation: random reads, decoding, transfer to this process."""
    from facerts.training.loader import TrainingData
    from facerts.training.recipe import load_recipe

    recipe = load_recipe(
        "faces_small_rts",
        [
            *(f"data.train={folder}", "data.holdout_identities=0", f"data.workers={workers}"),
            "data.augmentation={flip: false}",
        ],
    )
    loaded, size = TrainingData(recipe), recipe.optim.batch_size
    # Starting the workers is not measured; a run of hours does it once.
    warm_up = 2 * workers
    batches = loaded.batches(0, count // size + warm_up)
    for _ in range(warm_up):
        next(batches)
    start = time.perf_counter()
    read = sum(len(labels) for _, labels, *_ in batches)
    return read / (time.perf_counter() - start)


def _decode_rate(records, count, processes):
    """Images/s that OpenCV decodes from memory."""
    return _rate(_decode, [[records.read(i) for i in range(start, count, processes)] for start in range(processes)])


def _rate(work, shares):
    """Items/s with one process per share, from the first start to the last end."""
    context = get_context("fork")
    barrier, results = context.Barrier(len(shares)), context.Queue()
    processes = [context.Process(target=_timed, args=(work, share, barrier, results)) for share in shares]
    for process in processes:
        process.start()
    spans = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return sum(map(len, shares)) / (max(end for _, end in spans) - min(start for start, _ in spans))


def _timed(work, share, barrier, results):
    cv2.setNumThreads(0)
    barrier.wait()
    start = time.perf_counter()
    work(share)
    results.put((start, time.perf_counter()))


def _decode(share):
    for content in share:
        cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)


def _read(source, order):
    for index in order:
        source.crop(int(index))


# Evaluations.


def evaluate(model, data, no_flip, rounds):
    """A whole evaluation of a verification set beside the bare network over the same crops.

    The evaluation opens the set, decodes, embeds, measures verification and error versus reject with intervals, on the
    listed pairs and, where people are known, on every pair, and writes the result with the images for a report. The
    bare network gets its input ready made; only its runs are timed. Memory is the peak of processes of their own.
    """
    with tempfile.TemporaryDirectory() as folder:
        if data is None:
            data = str(Path(folder) / "people.bin")
            write_synthetic_faces(Path(folder) / "people", identities=200, images=6)
            people = open_source(Path(folder) / "people")
            save_bin(pairs_from_identities(people, genuine=1000, impostors=1000, seed=0), data)
        candidates = {run.__name__: partial(in_process, run, model, data, not no_flip) for run in (bare, whole)}
        taken = alternate(candidates, rounds, warm_up=0)
    print(machine())
    seconds = {name: [run[0] for run in runs] for name, runs in taken.items()}
    peaks = {name: max(run[1] for run in runs) for name, runs in taken.items()}
    for name in taken:
        print(f"{name}: {spread(seconds[name])} s, peak {peaks[name]:,.0f} MiB")
    print(f"whole / bare: {spread(ratios(seconds['whole'], seconds['bare']), '.3f')}")
    print(f"memory beyond the bare network: {peaks['whole'] - peaks['bare']:,.0f} MiB")


def bare(model, data, flip):
    """Seconds that the session itself runs, without decoding and preparing the input, and peak MiB.

    Images that a benchmark repeats are run once, as in an evaluation.
    """
    embedder = load_embedder(model)
    images = open_benchmark(data).images
    distinct = list({images.read(i): i for i in range(len(images))}.values())
    session, description = embedder.session, embedder.description.input
    size = description.batch or BATCH
    seconds = 0.0
    for start in range(0, len(distinct), size):
        crops = np.stack([images.crop(i) for i in distinct[start : start + size]])
        for view in (crops, np.ascontiguousarray(crops[:, :, ::-1])) if flip else (crops,):
            feed = {description.name: to_input(view, description)}
            seconds += seconds_of(partial(session.run, None, feed))
    return seconds, peak_mib()


def whole(model, data, flip):
    """Seconds of the whole evaluation, and peak MiB."""
    from facerts.evaluation.benchmark_runs import run_pairs
    from facerts.evaluation.evaluation_options import EvaluationOptions

    with tempfile.TemporaryDirectory() as out:
        named = open_benchmark(data).images.labels is not None
        options = EvaluationOptions(flip=flip, batch_size=BATCH, every_pair=named)
        began = time.perf_counter()
        run_pairs(load_embedder(model), ["verification", "reject"], [data], out, options)
        return time.perf_counter() - began, peak_mib()


# Videos.


def video(clip, minutes, threads, fps, model, detector):
    """How fast the faces in a video are followed: times real time, CPU time, and peak memory.

    The clip is played again and again until the video is long enough; then a process of its own looks at it, as
    ``facerts video`` does. A video of a fifth of the length comes first: memory that grows with the length would show.
    """
    print(
        "| minutes | frames looked at | faces | tracks | seconds | times real time | CPU seconds | peak MiB |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|"
    )
    with tempfile.TemporaryDirectory() as folder:
        for length in (minutes / 5, minutes):
            path = Path(folder) / "long.mkv"
            size = _repeat(path, clip, 60 * length)
            found = in_process(follow, str(path), threads, fps, model, detector)
            cells = (f"{value:,.{digits}f}" for value, digits in zip(found, (0, 0, 0, 0, 1, 0, 0), strict=True))
            print(f"| {length:g}, {size} | {' | '.join(cells)} |", flush=True)


def _repeat(path, clip, seconds):
    """Play a clip again and again, without encoding it anew, and return the size of its frames."""
    import av

    with av.open(str(clip)) as source, av.open(str(path), "w") as out:
        stream = source.streams.video[0]
        copied = out.add_stream_from_template(stream)
        period = round(1 / (float(stream.average_rate) * float(stream.time_base)))
        offset = end = 0
        while end * stream.time_base < seconds:
            source.seek(0)
            for packet in source.demux(stream):
                if packet.dts is None:
                    continue
                packet.pts, packet.dts, packet.stream = packet.pts + offset, packet.dts + offset, copied
                end = max(end, packet.pts + period)
                out.mux(packet)
            offset = end
        return f"{stream.codec_context.width} x {stream.codec_context.height}"


def follow(path, threads, fps, model, detector):
    """Look at a video with so many cores; the row of the table."""
    from facerts.video import ReadReport

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    cv2.setNumThreads(1)
    scorer = facerts.load(model, detector=detector, threads=1)
    report = ReadReport()
    begun, cpu = time.perf_counter(), time.process_time()
    tracks = list(scorer.video(path, fps=fps, report=report))
    seconds, cpu, length = time.perf_counter() - begun, time.process_time() - cpu, report.until or 0
    faces = sum(track.faces for track in tracks)
    return [length * fps, faces, len(tracks), seconds, length / seconds, cpu, peak_mib()]


# The browser.

QUALITIES = "facerts-quality", "facerts-quality-int8"
LOAD = "async (options) => { window.facerts = await (await import('/facerts.js')).load(options); }"
TIME = """async (content) => {
  const bytes = Uint8Array.from(content), began = performance.now();
  await window.facerts.score(new Blob([bytes]));
  return (performance.now() - began) / 1000;
}"""


class Isolated(SimpleHTTPRequestHandler):
    """Static files, with the headers that let threads share memory."""

    def end_headers(self):
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *_):
        """Say nothing."""


def web(rounds):
    """The browser module in headless Chromium beside Python: a crop, a photo, and the first load.

    It needs Playwright and Chromium. Ratios are of medians, to Python with one thread.
    """
    import skimage.data
    from playwright.sync_api import sync_playwright

    from facerts.web import write_site

    images = {"crop": encode_png(draw_face(0, 0)), "photo": encode_png(skimage.data.astronaut())}
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        sizes = write_site(folder)
        (folder / "empty.html").write_text("<!doctype html><title>empty</title>", encoding="utf-8")
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Isolated, directory=folder))
        opened.callback(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browsers = opened.enter_context(sync_playwright()).chromium
        browser = browsers.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        opened.callback(browser.close)
        print(machine())
        _first_load(browser, address, folder, sizes, rounds)
        pages = {}
        for name in QUALITIES:
            for threads in (1, 2):
                page = browser.new_context().new_page()
                page.goto(f"{address}/empty.html")
                page.evaluate(LOAD, {"quality": name, "threads": threads})
                pages[f"{name}, Chromium, {threads} thread{'s' * (threads > 1)}"] = page
        scorers = {f"{name}, Python, 1 thread": facerts.load(quality=name, threads=1) for name in QUALITIES}
        for kind, content in images.items():
            work = {name: partial(seconds_of, partial(each.score, content)) for name, each in scorers.items()}
            work |= {name: partial(page.evaluate, TIME, list(content)) for name, page in pages.items()}
            taken = alternate(work, rounds, warm_up=3)
            python = statistics.median(taken["facerts-quality, Python, 1 thread"])
            for name, times in taken.items():
                ms = with_quartiles([1000 * value for value in times], ".1f")
                print(f"{kind}: {name}: {ms} ms, {statistics.median(times) / python:.2f} of Python")


def _first_load(browser, address, folder, sizes, rounds):
    """Seconds until the page can score, and what was loaded for it, as it is and compressed."""
    taken, names = [], set()
    for _ in range(max(3, rounds // 4)):
        context = browser.new_context(service_workers="block")
        page = context.new_page()
        page.on("request", lambda request: names.add(request.url.rpartition("/")[2] or "index.html"))
        began = time.perf_counter()
        page.goto(f"{address}/")
        page.locator("#about").wait_for()
        taken.append(time.perf_counter() - began)
        context.close()
    loaded = sorted(names & set(sizes))
    packed = sum(len(gzip.compress((folder / name).read_bytes())) for name in loaded)
    raw = sum(sizes[name] for name in loaded)
    print(f"first load: {with_quartiles(taken)} s, {raw / 1000:,.0f} KB, {packed / 1000:,.0f} KB compressed")


BENCHMARKS = {
    embed: {
        "models": ([str], "the first is what the others are compared with"),
        "--threads": (1, "of each model"),
        "--batch": (32, "crops in a call"),
        "--rounds": (30, "rounds to measure"),
    },
    detect: {
        "photos": ([str], "whatever facerts score takes"),
        "--detector": ([str], "name, file or pack, then :SIZE if not auto; the others are held against the first"),
        "--side": (int, "longer side of the photos in pixels; by default their own"),
    },
    reading: {
        "--data": ([str], "images with identities; synthetic faces by default"),
        "--images": (12_000, "maximum number of images to read"),
        "--processes": (2, "processes that read and decode"),
        "--workers": ([0, 1, 2, 4], "numbers of worker processes that load training batches"),
        "--rounds": (5, "rounds to measure"),
        "--json": (Path, "file for the numbers"),
    },
    evaluate: {
        "model": (str, "file of an embedder"),
        "--data": (str, "any benchmark of pairs; drawn people by default"),
        "--no-flip": (False, "one view only"),
        "--rounds": (3, "rounds to measure"),
    },
    video: {
        "clip": (Path, "clip to make the video of"),
        "--minutes": (10.0, "length of the video"),
        "--threads": (2, "cores to use"),
        "--fps": (5.0, "frames per second to look at"),
        "--model": (str, "model; the default one otherwise"),
        "--detector": ("yunet", "detector"),
    },
    web: {"--rounds": (20, "rounds to measure")},
}


if __name__ == "__main__":
    run_benchmark(__doc__, BENCHMARKS)
