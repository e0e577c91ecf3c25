"""A service under attack while honest clients ask, too: what all are answered, and the memory that it takes.

The service runs in a process of its own, which is all that is attacked. Each attack comes over so many connections at a
time for so many seconds; two honest clients, in processes of their own, ask for a score and for /healthz again shortly
after each answer. Memory is what the service's process has in use, read from /proc, so this needs Linux.

With --requests, so many requests of all kinds are sent instead, whose clients hang up after two seconds, and what the
service holds is printed after every thousand.

    python tools/attack_serve.py
    python tools/attack_serve.py --only clips --connections 8 --options "--video --set detector=FILE"
    python tools/attack_serve.py --only "slow headers" bombs --connections 2000 --options "--set serve.timeout=30"
    python tools/attack_serve.py --requests 5000 --connections 50 --options "--gallery people.npz"
"""

from __future__ import annotations

import argparse
import asyncio
import math
import re
import resource
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
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
from tests.hostile.videos import gif

FACE = encode_jpeg(draw_face(0, 0))
PAUSE = 0.25
# Of the honest clients.
HONEST_PAUSE = 0.03
# Bytes of a body that the service takes at most.
LARGEST = 32 << 20
# Seconds that an answer is waited for; without one the connection counts as hanging.
PATIENCE = 60.0
# Of the clients with --requests.
HANG_UP = 2.0
THOUSAND = 1000
CLOSED, HANGING, OPEN = "closed unanswered", "HANGING", "still open"


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
            "--requests": (0, "of all kinds instead of one attack after the other"),
            "--options": ("--set serve.timeout=10 --set serve.header_timeout=3", "of the service"),
        },
    )
    parser.add_argument("--only", nargs="+", choices=ATTACKS, default=list(ATTACKS), metavar="ATTACK")
    options = parser.parse_args()
    # As many connections as the system allows, for the service too.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(f"{options.connections} connections; the service: {options.options}")
    with service(["--model", options.model, *options.options.split()]) as (process, port):
        if options.requests:
            asyncio.run(_send_all_kinds(process, port, options))
        else:
            print(
                f"| attack, {options.seconds:g} s | what it got | honest requests: p50/p95/p99/max ms "
                "| /healthz | MiB before/most/after |\n|---|---|---|---|---|"
            )
            for name in ("nobody", *options.only):
                print(asyncio.run(_measure(name, process, port, options)), flush=True)
        print(f"\nThe service is alive: {asyncio.run(_honest_request(port, score_request(FACE)))}.")


async def _measure(name: str, process: int, port: int, options: argparse.Namespace) -> str:
    """A row of the table."""
    loop = asyncio.get_running_loop()
    target = Target(port, loop.time() + options.seconds)
    before = _memory(process)
    most = [before]
    watching = asyncio.create_task(_watch(process, most))
    attackers = options.connections if name != "nobody" else 0
    with ProcessPoolExecutor(2) as beside:
        honest = [
            loop.run_in_executor(beside, _ask_honestly, port, options.seconds, request)
            for request in (score_request(FACE), _get("/healthz"))
        ]
        await asyncio.gather(*[_attack(ATTACKS[name], target, number) for number in range(attackers)])
        taken = await asyncio.gather(*honest)
    watching.cancel()
    # What is given back when all have gone.
    await asyncio.sleep(2)
    answers = " | ".join(map(_honest_answers, taken))
    memory = f"{before:.0f}/{max(most):.0f}/{_memory(process):.0f}"
    return f"| {name} | {_counts(target.answers)} | {answers} | {memory} |"


async def _send_all_kinds(process: int, port: int, options: argparse.Namespace) -> None:
    """Send so many requests, a thousand at a time, and print what the service holds after each."""
    target = Target(port, math.inf)
    kinds = [*ATTACKS.values(), *[routes] * 4]

    async def send(numbers: Iterator[int]) -> None:
        for number in numbers:
            try:
                # Their numbers also choose among the variants of a kind.
                attack = kinds[number % len(kinds)](target, number // len(kinds))
                await asyncio.wait_for(attack, HANG_UP)
            except TimeoutError:
                target.answers["hung up on"] += 1
            except (ConnectionError, asyncio.IncompleteReadError):
                target.answers[CLOSED] += 1

    print("| requests | MiB | open files | threads |\n|---|---|---|---|")
    for start in range(0, options.requests + THOUSAND, THOUSAND):
        files = len(list(Path(f"/proc/{process}/fd").iterdir()))
        threads = len(list(Path(f"/proc/{process}/task").iterdir()))
        print(f"| {min(start, options.requests)} | {_memory(process):.0f} | {files} | {threads} |", flush=True)
        numbers = iter(range(start, min(start + THOUSAND, options.requests)))
        await asyncio.gather(*[send(numbers) for _ in range(options.connections)])
        await asyncio.sleep(2)
    print(f"\n{_counts(target.answers)}")


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


def _ask_honestly(port: int, seconds: float, request: bytes) -> list[tuple[str, float]]:
    """Statuses, and seconds that they took."""
    end = time.monotonic() + seconds
    taken = []
    while not taken or time.monotonic() < end:
        began = time.monotonic()
        taken.append((asyncio.run(_honest_request(port, request)), time.monotonic() - began))
        time.sleep(HONEST_PAUSE)
    return taken


def _honest_answers(taken: list[tuple[str, float]]) -> str:
    """Statuses, and percentiles of the times."""
    ms = sorted(1000 * seconds for _, seconds in taken)
    percentiles = [f"{ms[math.ceil(share * len(ms)) - 1]:.0f}" for share in (0.5, 0.95, 0.99, 1)]
    return f"{_counts(Counter(status for status, _ in taken))}: {'/'.join(percentiles)}"


async def _honest_request(port: int, request: bytes) -> str:
    try:
        return await asyncio.wait_for(_ask(port, request), PATIENCE)
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
        try:
            while not answer.done():
                if target.over:
                    target.answers[OPEN] += 1
                    return
                if drop:
                    writer.write(drop)
                await asyncio.wait([answer], timeout=PAUSE)
            target.answers[await answer] += 1
        finally:
            answer.cancel()


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
        request = _form([bomb] * 16)
    target.answers[await _ask(target.port, request)] += 1


async def clips(target: Target, number: int) -> None:
    """Animations of a few bytes, with a canvas beyond the limit and one of the largest that are read."""
    request = score_request(CLIPS[number % len(CLIPS)], kind="video/mp4").replace(b"/score", b"/video", 1)
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


async def broken_json(target: Target, number: int) -> None:
    """What would take many times its size in memory, or is nested deep."""
    kinds = (b"[" * 1_000_000, b'{"images": [' + b'"a",' * 1_000_000, b'{"image": "' + b"\\u0041" * 1_000_000)
    body = kinds[number % len(kinds)]
    target.answers[await _ask(target.port, score_request(body, kind="application/json"))] += 1


async def noise(target: Target, number: int) -> None:
    """Bytes that are no HTTP."""
    random = np.random.default_rng(number).bytes(20_000)
    target.answers[await _ask(target.port, random + b"\r\n\r\n")] += 1


async def foreign_pages(target: Target, number: int) -> None:
    """Pages of other sites, by names that resolve here (DNS rebinding) and by posts across origins."""
    more = ".evil.example" if number % 2 else "\r\nOrigin: http://evil.example"
    target.answers[await _ask(target.port, score_request(FACE, more=more))] += 1


async def hostile_headers(target: Target, number: int) -> None:
    """Such as parsers take quadratic time for, and such as servers read differently."""
    target.answers[await _ask(target.port, HEADERS[number % len(HEADERS)])] += 1


async def routes(target: Target, number: int) -> None:
    """Of all routes, also those that are not there."""
    target.answers[await _ask(target.port, ROUTES[number % len(ROUTES)])] += 1


ATTACKS: dict[str, Attack] = {
    "hostile headers": hostile_headers,
    "requests": requests,
    "slow headers": slow_headers,
    "slow bodies": slow_bodies,
    "large bodies": large_bodies,
    "unread answers": unread_answers,
    "bombs": bombs,
    "clips": clips,
    "broken forms": broken_forms,
    "broken JSON": broken_json,
    "noise": noise,
    "foreign pages": foreign_pages,
}


# The hostile images of the tests: those that cost the most, and those that are refused.
BOMBS = [*hostile_images.costly().values(), *(content for content, _ in hostile_images.refused().values())]
CLIPS = [gif(5000, 40), gif(5000, 280), gif(2800, 280)]


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def _form(images: Sequence[bytes], *, name: bytes = b"a", to: bytes = b"score") -> bytes:
    """A request with images as files of a form."""
    start = b'--X\r\nContent-Disposition: form-data; name="images"; filename="%b"\r\n\r\n' % name
    form = b"".join(start + image + b"\r\n" for image in images) + b"--X--\r\n"
    request = score_request(form, kind="multipart/form-data; boundary=X")
    return request.replace(b"/score", b"/" + to, 1)


CHUNKED = score_request(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
HEADERS = [
    score_request(b"x", kind='multipart/form-data; boundary="x' + 60_000 * ";"),
    score_request(b"x", kind=f"multipart/form-data; boundary*{5000 * '9'}=x"),
    score_request(FACE, more="\r\nX:" + 30_000 * " " + "\0"),
    score_request(FACE, more='\r\nCookie: a="' + 30_000 * "\\1" + '"'),
    score_request(FACE, more="\r\nX: y" * 10_000),
    score_request(FACE, more="\r\nTransfer-Encoding: chunked"),
    score_request(FACE, more="\r\nContent-Encoding: gzip"),
    score_request(FACE).replace(b"/score", b"/score?" + b"".join(b"&a%d=1" % each for each in range(8000)), 1),
    CHUNKED + b"5;" + 30_000 * b" " + b"\n\r\n",
    CHUNKED + b"0\r\nX:" + 30_000 * b" " + b"\0\r\n\r\n",
    CHUNKED + 200_000 * b"1\r\n\0\r\n" + b"0\r\n\r\n",
    _form([b"x"] * 16, name=b"a" + 3900 * b";"),
]
ROUTES = [
    *(
        score_request(FACE),
        _form([FACE]),
        _form([FACE] * 4),
        _form([FACE] * 17),
        _form([FACE] * 2, to=b"verify"),
        _form([FACE], to=b"search"),
    ),
    *map(_get, ("/", "/docs", "/openapi.json", "/healthz", "/metrics", "/v1/model", "/v1/score", "/nowhere")),
]


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
    return ", ".join(f"{count}×{what}" for what, count in sorted(counted.items())) or "–"


if __name__ == "__main__":
    main()
