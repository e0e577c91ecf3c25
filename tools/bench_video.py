"""How fast the faces in a video are followed: times real time, CPU time, and peak memory.

python tools/bench_video.py crowd.mp4 --minutes 10 --threads 2

The clip is played again and again until the video is long enough; then a process of its own looks at it, as ``facerts
video`` does. A video of a fifth of the length comes first: memory that grows with the length would show.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import av
import cv2

import facerts
from facerts.io.progress import duration
from facerts.video import ReadReport


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("clip", type=Path, help="clip to make the video of")
    parser.add_argument("--minutes", type=float, default=10, help="length of the video (default: 10)")
    parser.add_argument("--threads", type=int, default=2, help="cores to use (default: 2)")
    parser.add_argument("--fps", type=float, default=5, help="frames per second to look at (default: 5)")
    parser.add_argument("--model", help="model (default: the one that ships)")
    parser.add_argument("--detector", default="yunet", help="detector (default: yunet)")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for minutes in (options.minutes / 5, options.minutes):
            video = Path(folder) / "long.mkv"
            size = make_video(video, options.clip, 60 * minutes)
            command = [sys.executable, __file__, str(options.clip), "--measure", str(video)]
            for name in ("threads", "fps", "model", "detector"):
                if (value := getattr(options, name)) is not None:
                    command += [f"--{name}", str(value)]
            result = subprocess.run(command, check=True, capture_output=True, text=True)
            found = json.loads(result.stdout)
            rows.append([duration(60 * minutes), size, found])
    print(
        "| video | frames looked at | faces | tracks | seconds | times real time | CPU seconds | peak memory |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for length, size, found in rows:
        print(
            f"| {length}, {size} | {found['frames']:,} | {found['faces']:,} | {found['tracks']:,} | "
            f"{found['seconds']:.0f} | {found['times']:.1f} | {found['cpu']:.0f} | {found['mib']:.0f} MiB |"
        )


def make_video(path: Path, clip: Path, seconds: float) -> str:
    """Play a clip again and again, without encoding it anew, and return the size of its frames."""
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


def measure(video: Path, options: argparse.Namespace) -> dict[str, float]:
    """Look at a video with so many cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    cv2.setNumThreads(1)
    scorer = facerts.load(options.model, detector=options.detector, threads=1)
    report = ReadReport()
    begun, cpu = time.perf_counter(), time.process_time()
    tracks = list(scorer.video(video, fps=options.fps, report=report))
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "frames": round((report.until or 0) * options.fps),
        "faces": sum(track.faces for track in tracks),
        "tracks": len(tracks),
        "seconds": seconds,
        "times": (report.until or 0) / seconds,
        "cpu": time.process_time() - cpu,
        "mib": peak / 1024 if sys.platform != "darwin" else peak / (1 << 20),
    }


if __name__ == "__main__":
    main()
