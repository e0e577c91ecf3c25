"""How fast the faces in a video are followed: times real time, CPU time, and peak memory.

python tools/bench_video.py crowd.mp4 --minutes 10 --threads 2

The clip is played again and again until the video is long enough; then a process of its own looks at it, as ``facerts
video`` does. A video of a fifth of the length comes first: memory that grows with the length would show.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import av
import cv2
from bench import in_process, parser_of, peak_mib

import facerts
from facerts.io.progress import duration
from facerts.video import ReadReport


def main() -> None:
    parser = parser_of(
        __doc__,
        {
            "--minutes": (10.0, "length of the video"),
            "--threads": (2, "cores to use"),
            "--fps": (5.0, "frames per second to look at"),
            "--model": (str, "model; the default one otherwise"),
            "--detector": ("yunet", "detector"),
        },
    )
    parser.add_argument("clip", type=Path, help="clip to make the video of")
    options = parser.parse_args()
    print(
        "| video | frames looked at | faces | tracks | seconds | times real time | CPU seconds | peak memory |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|"
    )
    with tempfile.TemporaryDirectory() as folder:
        for minutes in (options.minutes / 5, options.minutes):
            video = Path(folder) / "long.mkv"
            size = make_video(video, options.clip, 60 * minutes)
            arguments = options.threads, options.fps, options.model, options.detector
            found = in_process(measure, str(video), *arguments)
            print(
                f"| {duration(60 * minutes)}, {size} | {found['frames']:,} | {found['faces']:,} | "
                f"{found['tracks']:,} | {found['seconds']:.0f} | {found['times']:.1f} | {found['cpu']:.0f} | "
                f"{found['mib']:.0f} MiB |",
                flush=True,
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


def measure(video: str, threads: int, fps: float, model: str | None, detector: str) -> dict[str, float]:
    """Look at a video with so many cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    cv2.setNumThreads(1)
    scorer = facerts.load(model, detector=detector, threads=1)
    report = ReadReport()
    begun, cpu = time.perf_counter(), time.process_time()
    tracks = list(scorer.video(video, fps=fps, report=report))
    seconds = time.perf_counter() - begun
    return {
        "frames": round((report.until or 0) * fps),
        "faces": sum(track.faces for track in tracks),
        "tracks": len(tracks),
        "seconds": seconds,
        "times": (report.until or 0) / seconds,
        "cpu": time.process_time() - cpu,
        "mib": peak_mib(),
    }


if __name__ == "__main__":
    main()
