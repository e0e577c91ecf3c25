"""The service under load: requests a second and how long they take, with requests joined in batches and without.

Services take turns under the same load, round by round, so that what else the machine does meets all alike. The load
comes from this process, over the loopback; each of so many clients asks again as soon as it is answered.

    python tools/bench_serve.py --model facerts-small --services "--set batch_size=1" "--set batch_size=8"
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack

from bench import alternate, machine, parser_of, read_status, score_request, service, with_quartiles

from facerts.datasets.synthetic import draw_face
from facerts.images import encode_jpeg


def main() -> None:
    parser = parser_of(
        __doc__,
        {
            "--model": ("facerts-small", "model of every service"),
            "--services": (["--set batch_size=1", "--set batch_size=8"], "the services, by their options"),
            "--clients": ([1, 8, 32], "clients at the same time"),
            "--seconds": (4.0, "of a round"),
        },
        rounds=5,
    )
    options = parser.parse_args()
    requests = [score_request(encode_jpeg(draw_face(number, 0))) for number in range(64)]
    common = ["--model", options.model, "--set", "detector=none"]
    with ExitStack() as running:
        ports = {name: running.enter_context(service([*common, *name.split()]))[1] for name in options.services}
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


async def load(port: int, requests: Sequence[bytes], clients: int, seconds: float) -> list[float]:
    """Seconds that each request took, of those that ended in time."""
    end = time.perf_counter() + seconds
    taken: list[float] = []

    async def ask(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (began := time.perf_counter()) < end:
            writer.write(requests[number % len(requests)])
            number += clients
            status = await read_status(reader)
            if status != "200":
                raise SystemExit(f"the service answered {status}")
            if (now := time.perf_counter()) < end:
                taken.append(now - began)
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*[ask(number) for number in range(clients)])
    return taken


if __name__ == "__main__":
    main()
