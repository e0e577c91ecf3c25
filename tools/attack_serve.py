"""A service under attack while an honest client asks, too: what both are answered, and the memory that it takes.

The service runs in a process of its own, which is all that is attacked. Each attack comes over so many connections at a
time for so many seconds; the honest client, in another process, asks again a quarter of a second after each answer.
Memory is what the service's process has in use, read from /proc, so this needs Linux.

    python tools/attack_serve.py
    python tools/attack_serve.py --only "slow headers" bombs --connections 2000 --options "--timeout 30"
"""

from __future__ import annotations

import argparse
import asyncio
import re
import resource
import socket
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from bench import parser_of, read_status, score_request, service

from facerts.datasets.synthetic import draw_face
from facerts.images import encode_jpeg

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.hostile import images as hostile_images

FACE = encode_jpeg(draw_face(0, 0))
PAUSE = 0.25
# Bytes of a body that the service takes at most.
LARGEST = 32 << 20
# Seconds that an answer is waited for; without one the connection counts as hanging.
PATIENCE = 60.0
CLOSED, HANGING, OPEN = "closed unanswered", "HANGING", "still open at the end"


@dataclass
class Target:
    """The service on a port of the loopback, the loop's time when the attack ends, and the answers, counted."""

    port: int
    end: float
    answers: Counter[str] = field(default_factory=Counter)

    @property
    def over(self) -> bool:
        return asyncio.get_running_loop().time() >= self.end


Attack = Callable[[Target, int], Awaitable[None]]


def main() -> None:
    parser = parser_of(
        __doc__,
        {
            "--model": ("facerts-small", "name or file"),
            "--connections": (500, "of each attack"),
            "--seconds": (15.0, "of each attack"),
            "--options": ("--timeout 10 --header-timeout 3", "of the service"),
        },
    )
    parser.add_argument("--only", nargs="+", choices=ATTACKS, default=list(ATTACKS), metavar="ATTACK")
    options = parser.parse_args()
    # As many connections as the system allows, for the service too.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(f"{options.connections} connections, {options.seconds:g} s each; the service: {options.options}")
    print(
        "| attack | what it got | honest requests: answered, median s, slowest s | MiB before, at most, after |"
    )
    print("|---|---|---|---|")
    with service(["--model", options.model, *options.options.split()]) as (process, port):
        for name in ("nobody", *options.only):
            print(asyncio.run(_measure(name, process, port, options)), flush=True)
        print(f"\nThe service is alive: {asyncio.run(_honest_request(port))}.")


async def _measure(name: str, process: int, port: int, options: argparse.Namespace) -> str:
    """A row of the table."""
    loop = asyncio.get_running_loop()
    target = Target(port, loop.time() + options.seconds)
    before = _memory(process)
    most = [before]
    watching = asyncio.create_task(_watch(process, most))
    attackers = options.connections if name != "nobody" else 0
    with ProcessPoolExecutor(1) as beside:
        honest = loop.run_in_executor(beside, _ask_honestly, port, options.seconds)
        await asyncio.gather(*[_attack(ATTACKS[name], target, number) for number in range(attackers)])
        taken = await honest
    watching.cancel()
    # What is given back when all have gone.
    await asyncio.sleep(2)
    statuses = Counter(status for status, _ in taken)
    times = [seconds for _, seconds in taken]
    return (
        f"| {name} | {_counts(target.answers)} | {_counts(statuses)}, {statistics.median(times):.2f}, {max(times):.2f} "
        f"| {before:.0f}, {max(most):.0f}, {_memory(process):.0f} |"
    )


async def _attack(attack: Attack, target: Target, number: int) -> None:
    """One attacker, again and again as long as there is time; the service may hang up on it."""
    while not target.over:
        try:
            await asyncio.wait_for(attack(target, number), PATIENCE)
        except TimeoutError:
            target.answers[HANGING] += 1
        except (ConnectionError, asyncio.IncompleteReadError):
            target.answers[CLOSED] += 1
            await asyncio.sleep(PAUSE)


def _ask_honestly(port: int, seconds: float) -> list[tuple[str, float]]:
    """Statuses, and seconds that they took."""
    end = time.monotonic() + seconds
    taken = []
    while not taken or time.monotonic() < end:
        began = time.monotonic()
        taken.append((asyncio.run(_honest_request(port)), time.monotonic() - began))
        time.sleep(PAUSE)
    return taken


async def _honest_request(port: int) -> str:
    try:
        return await asyncio.wait_for(_ask(port, score_request(FACE)), PATIENCE)
    except TimeoutError:
        return HANGING
    except (ConnectionError, asyncio.IncompleteReadError):
        return CLOSED


@contextmanager
def _closing(writer: asyncio.StreamWriter) -> Iterator[None]:
    try:
        yield
    finally:
        writer.transport.abort()


async def _ask(port: int, request: bytes) -> str:
    """The status of the answer to a request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with _closing(writer):
        writer.write(request)
        return await read_status(reader)


async def _drip(target: Target, begin: bytes, drop: bytes) -> None:
    """Send a few bytes now and then until the service has had enough."""
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    with _closing(writer):
        writer.write(begin)
        answer = asyncio.ensure_future(read_status(reader))
        while not answer.done():
            if target.over:
                answer.cancel()
                target.answers[OPEN] += 1
                return
            if drop:
                writer.write(drop)
            await asyncio.wait([answer], timeout=PAUSE)
        target.answers[await answer] += 1


async def requests(target: Target, number: int) -> None:
    """Honest ones, but from everybody at once."""
    target.answers[await _ask(target.port, score_request(FACE))] += 1


async def slow_headers(target: Target, number: int) -> None:
    begin = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" if number % 2 else b""
    await _drip(target, begin, b"X" if number % 3 else b"")


async def slow_bodies(target: Target, number: int) -> None:
    if number % 2:
        await _drip(target, score_request(b"", size=10_000_000), b"\0")
    else:
        chunked = b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
        await _drip(target, chunked + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n\0\r\n")


async def large_bodies(target: Target, number: int) -> None:
    """As much as is taken, as fast as it is taken; the last byte never comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    with _closing(writer):
        writer.write(score_request(b"", size=LARGEST))
        answer = asyncio.ensure_future(read_status(reader))
        piece = bytes(1 << 16)
        try:
            for _ in range(LARGEST // len(piece) - 1):
                writer.write(piece)
                await writer.drain()
            target.answers[await answer] += 1
        finally:
            answer.cancel()


async def unread_answers(target: Target, number: int) -> None:
    """Ask for much and read nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    connection.connect(("127.0.0.1", target.port))
    _, writer = await asyncio.open_connection(sock=connection)
    with _closing(writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300)
        while not target.over and not writer.transport.is_closing():
            await asyncio.sleep(PAUSE)
            # Only who writes learns that nobody is there any more.
            writer.write(b"X")
        target.answers["given up" if writer.transport.is_closing() else OPEN] += 1


async def bombs(target: Target, number: int) -> None:
    """Small files that claim or unpack to much, one by one and sixteen in a form."""
    bomb = BOMBS[number % len(BOMBS)]
    request = score_request(bomb)
    if number % 5 == 0:
        part = b'--X\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n' + bomb + b"\r\n"
        request = score_request(part * 16 + b"--X--\r\n", kind="multipart/form-data; boundary=X")
    target.answers[await _ask(target.port, request)] += 1


async def broken_forms(target: Target, number: int) -> None:
    forms = (
        b"--X\r\n" * 100_000,
        b"--X\r\n\r\n\r\n" * 50_000 + b"--X--",
        b"\r\n--X" * 300_000,
        b"--X" + b"-" * 500_000,
    )
    body = forms[number % len(forms)]
    target.answers[await _ask(target.port, score_request(body, kind="multipart/form-data; boundary=X"))] += 1


async def noise(target: Target, number: int) -> None:
    """Bytes that are no HTTP."""
    random = np.random.default_rng(number).bytes(20_000)
    target.answers[await _ask(target.port, random + b"\r\n\r\n")] += 1


async def foreign_pages(target: Target, number: int) -> None:
    """Pages of other sites, by names that resolve here (DNS rebinding) and by posts across origins."""
    more = ".evil.example" if number % 2 else "\r\nOrigin: http://evil.example"
    target.answers[await _ask(target.port, score_request(FACE, more=more))] += 1


ATTACKS: dict[str, Attack] = {
    "requests": requests,
    "slow headers": slow_headers,
    "slow bodies": slow_bodies,
    "large bodies": large_bodies,
    "unread answers": unread_answers,
    "bombs": bombs,
    "broken forms": broken_forms,
    "noise": noise,
    "foreign pages": foreign_pages,
}


# The hostile images of the tests: those that cost the most, and those that are refused.
BOMBS = [*hostile_images.costly().values(), *(content for content, _ in hostile_images.refused().values())]


def _memory(process: int) -> float:
    """MiB of it that are in use."""
    resident = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert resident is not None
    return int(resident[1]) / 1024


async def _watch(process: int, most: list[float]) -> None:
    while True:
        most.append(_memory(process))
        await asyncio.sleep(0.05)


def _counts(counted: Counter[str]) -> str:
    return ", ".join(f"{count} x {what}" for what, count in sorted(counted.items())) or "–"


if __name__ == "__main__":
    main()
