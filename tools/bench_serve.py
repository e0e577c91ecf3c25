"""The service under load: requests a second and how long they take, with requests joined in batches and without.

Services take turns under the same load, round by round, so that what else the machine does meets all alike. The load
comes from this process, over the loopback; each of so many clients asks again as soon as it is answered.

    python tools/bench_serve.py --model facerts-small --services "--set batch_size=1" "--set batch_size=8"
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

from measuring import alternate, machine, parser_of, with_quartiles

from facerts.datasets.synthetic import draw_face
from facerts.images import encode_jpeg


def main():
    options = parser_of(
        __doc__,
        {
            "--model": ("facerts-small", "model of every service"),
            "--services": (["--set batch_size=1", "--set batch_size=8"], "the services, by their options"),
            "--clients": ([1, 8, 32], "clients at the same time"),
            "--seconds": (4.0, "of a round"),
            "--rounds": (5, "rounds to measure"),
        },
    ).parse_args()
    requests = [score_request(encode_jpeg(draw_face(number, 0))) for number in range(64)]
    common = ["--model", options.model, "--set", "detector=none"]
    with ExitStack() as running:
        ports = {name: running.enter_context(service([*common, *name.split()])) for name in options.services}
        print(f"{machine()}, {len(requests)} images")
        print("| clients | service | requests/s (quartiles) | p50 ms | p99 ms |\n|---|---|---|---|---|")
        for clients in options.clients:
            candidates = {
                name: lambda port=port, clients=clients: asyncio.run(load(port, requests, clients, options.seconds))
                for name, port in ports.items()
            }
            for name, rounds in alternate(candidates, options.rounds).items():
                rates = with_quartiles([len(times) / options.seconds for times in rounds], ".1f")
                ms = sorted(1000 * seconds for times in rounds for seconds in times)
                print(f"| {clients} | `{name}` | {rates} | {ms[len(ms) // 2]:.1f} | {ms[int(len(ms) * 0.99)]:.1f} |")
        print(machine())


@contextmanager
def service(options):
    """The port of a service that runs in a process of its own."""
    command = [sys.executable, "-m", "facerts", "serve", "--port", "0", *options]
    environment = {key: value for key, value in os.environ.items() if key != "FACERTS_TOKEN"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        line = ""
        for line in process.stderr:
            if listening := re.search(r"listening on http://\S+:(\d+)/", line):
                break
        else:
            raise SystemExit(f"{' '.join(command)} ended without listening: {line}")
        # Nobody reads its log, so it must not fill the pipe.
        subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        yield int(listening[1])
    finally:
        process.terminate()
        process.wait()


def score_request(body):
    kind = "application/octet-stream"
    lines = "POST /v1/score HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", f"Content-Length: {len(body)}"
    return "\r\n".join([*lines, "", ""]).encode() + body


async def load(port, requests, clients, seconds):
    """Seconds that each request took, of those that ended in time."""
    end = time.perf_counter() + seconds
    taken = []

    async def ask(number):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (began := time.perf_counter()) < end:
            writer.write(requests[number % len(requests)])
            number += clients
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))
            if b" 200 " not in head.splitlines()[0]:
                raise SystemExit(f"the service answered {head.decode()}")
            if (now := time.perf_counter()) < end:
                taken.append(now - began)
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*[ask(number) for number in range(clients)])
    return taken


if __name__ == "__main__":
    main()
