"""The service under load: requests a second and how long they take, with requests joined in runs and without.

Two services, one that joins up to --batch-size crops and one that never joins any, take turns under the same load,
round by round, so that what else the machine does meets both alike. The load comes from this process, over the
loopback; each of so many clients asks again as soon as it is answered.

    python tools/bench_serve.py --model facerts-small
    python tools/bench_serve.py --photos photos/ --detector yunet.onnx
"""

from __future__ import annotations

import asyncio
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from bench import alternate, machine, parser_of
from numpy.typing import NDArray

from facerts.datasets.synthetic import draw_face
from facerts.images import encode_jpeg

COUNTED = (
    "process_cpu_seconds_total",
    'facerts_requests_total{route="/v1/score",status="200"}',
    "facerts_batch_crops_sum",
    "facerts_batch_crops_count",
)
SUFFIXES = {".jpg", ".jpeg", ".png"}


def main() -> None:
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument("--model", default="facerts-small")
    parser.add_argument("--photos", type=Path, help="a folder of photos in place of drawn crops")
    parser.add_argument("--detector", default="none")
    parser.add_argument("--batch-size", type=int, default=8, help="of the service that joins requests")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=4.0, help="of a round")
    parser.add_argument(
        "--vary", nargs="+", default=["--batch-size 1"], help="services to compare, by their options"
    )
    parser.add_argument("--options", default="", help="of every service")
    options = parser.parse_args()
    bodies = _photos(options.photos) if options.photos else [_crop(number) for number in range(64)]
    common = ["--model", options.model, "--detector", options.detector, *options.options.split()]
    kinds = [*options.vary, f"--batch-size {options.batch_size}"]
    with ExitStack() as running:
        ports = {kind: running.enter_context(_service([*common, *kind.split()])) for kind in kinds}
        print(f"{machine()}, {len(bodies)} images")
        print(
            "| clients | service | requests/s (quartiles) | p50 ms | p99 ms | CPU ms a request | crops a run |"
        )
        print("|---|---|---|---|---|---|---|")
        for clients in options.clients:

            def load(kind: str, clients: int = clients) -> tuple[list[float], NDArray[np.float64]]:
                before = _spent(ports[kind])
                times = asyncio.run(_load(ports[kind], bodies, clients, options.seconds))
                return times, _spent(ports[kind]) - before

            taken = alternate({kind: partial(load, kind) for kind in kinds}, options.rounds)
            for kind, measured in taken.items():
                times, spent = zip(*measured, strict=True)
                print(_row(clients, kind, times, options.seconds, np.sum(spent, axis=0)))
        print(machine())


def _row(
    clients: int, kind: str, rounds: Sequence[Sequence[float]], seconds: float, spent: NDArray[np.float64]
) -> str:
    rates = [len(times) / seconds for times in rounds]
    low, middle, high = statistics.quantiles(rates, n=4) if len(rates) > 1 else rates * 3
    every = sorted(1000 * value for times in rounds for value in times)
    p50, p99 = every[len(every) // 2], every[int(len(every) * 0.99)]
    cpu, requests, crops, runs = spent
    return (
        f"| {clients} | `{kind}` | {middle:.1f} ({low:.1f} to {high:.1f}) | {p50:.1f} | {p99:.1f} "
        f"| {1000 * cpu / requests:.1f} | {crops / runs:.2f} |"
    )


def _spent(port: int) -> NDArray[np.float64]:
    """What a service did so far, by its own count; see ``COUNTED``."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        counted = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
    return np.array([float(counted.get(name, 0)) for name in COUNTED])


def _crop(number: int) -> bytes:
    return encode_jpeg(draw_face(number, 0))


def _photos(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix.lower() in SUFFIXES]


@contextmanager
def _service(options: Sequence[str]) -> Iterator[int]:
    """The port of a service that runs in a process of its own."""
    command = [sys.executable, "-m", "facerts", "serve", "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"listening on http://\S+:(\d+)/", line):
                break
        else:
            raise SystemExit(f"{' '.join(command)} ended without listening")
        # Nobody reads its log, so it must not fill the pipe.
        subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        yield int(found[1])
    finally:
        process.terminate()
        process.wait()


async def _load(port: int, bodies: Sequence[bytes], clients: int, seconds: float) -> list[float]:
    """Seconds that each request took, of those that ended in time."""
    end = time.perf_counter() + seconds
    taken: list[float] = []

    async def ask(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (began := time.perf_counter()) < end:
            body = bodies[number % len(bodies)]
            number += clients
            writer.write(
                b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body) + body
            )
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200 "):
                raise SystemExit(f"the service answered {head.decode()}")
            length = re.search(rb"content-length: (\d+)", head)
            assert length is not None
            await reader.readexactly(int(length[1]))
            if (now := time.perf_counter()) < end:
                taken.append(now - began)
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*[ask(number) for number in range(clients)])
    return taken


if __name__ == "__main__":
    main()
