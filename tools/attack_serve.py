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
import os
import re
import resource
import socket
import statistics
import struct
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from facerts.datasets.synthetic import draw_face
from facerts.images import encode_jpeg

FACE = encode_jpeg(draw_face(0, 0))
PAUSE = 0.25
# Bytes of a body that the service takes at most.
LARGEST = 32 << 20
# Seconds that an answer is waited for; without one the connection counts as hanging.
PATIENCE = 60.0
CLOSED, HANGING, OPEN = "closed unanswered", "HANGING", "still open at the end"


@dataclass
class Target:
    """The service, and what an attack is told.

    Attributes:
        port: of the service on the loopback.
        end: when the attack is over, in the loop's time.
        answers: what the attackers got, counted.
    """

    port: int
    end: float
    answers: Counter[str] = field(default_factory=Counter)

    @property
    def over(self) -> bool:
        return asyncio.get_running_loop().time() >= self.end


Attack = Callable[[Target, int], Awaitable[None]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="facerts-small")
    parser.add_argument("--connections", type=int, default=500, help="of each attack; default: 500")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each attack; default: 15")
    parser.add_argument("--only", nargs="+", choices=ATTACKS, default=list(ATTACKS), metavar="ATTACK")
    parser.add_argument(
        "--options", default="--timeout 10 --header-timeout 3", help="of the service; default: %(default)s"
    )
    options = parser.parse_args()
    _allow_many_files()
    print(f"{options.connections} connections, {options.seconds:g} s each; the service: {options.options}")
    print(
        "| attack | what it got | honest requests: answered, median s, slowest s | MiB before, at most, after |"
    )
    print("|---|---|---|---|")
    with _service(["--model", options.model, *options.options.split()]) as (process, port):
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
    told = Counter(status for status, _ in taken)
    times = [seconds for _, seconds in taken]
    return (
        f"| {name} | {_told(target.answers)} | {_told(told)}, {statistics.median(times):.2f}, {max(times):.2f} "
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
        return await asyncio.wait_for(_ask(port, _request(FACE)), PATIENCE)
    except TimeoutError:
        return HANGING
    except (ConnectionError, asyncio.IncompleteReadError):
        return CLOSED


def _request(
    body: bytes, *, kind: str = "application/octet-stream", more: str = "", size: int | None = None
) -> bytes:
    length = len(body) if size is None else size
    lines = (
        "POST /v1/score HTTP/1.1",
        f"Host: localhost{more}",
        f"Content-Type: {kind}",
        f"Content-Length: {length}",
    )
    return "\r\n".join([*lines, "", ""]).encode() + body


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
        return await _status(reader)


async def _status(reader: asyncio.StreamReader) -> str:
    head = await reader.readuntil(b"\r\n\r\n")
    if length := re.search(rb"content-length: (\d+)", head):
        await reader.readexactly(int(length[1]))
    return head.split(b" ", 2)[1].decode()


async def _drip(target: Target, begin: bytes, drop: bytes) -> None:
    """Send a few bytes now and then until the service has had enough."""
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    with _closing(writer):
        writer.write(begin)
        answer = asyncio.ensure_future(_status(reader))
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
    target.answers[await _ask(target.port, _request(FACE))] += 1


async def slow_headers(target: Target, number: int) -> None:
    begin = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" if number % 2 else b""
    await _drip(target, begin, b"X" if number % 3 else b"")


async def slow_bodies(target: Target, number: int) -> None:
    if number % 2:
        await _drip(target, _request(b"", size=10_000_000), b"\0")
    else:
        chunked = b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
        await _drip(target, chunked + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n\0\r\n")


async def large_bodies(target: Target, number: int) -> None:
    """As much as is taken, as fast as it is taken; the last byte never comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    with _closing(writer):
        writer.write(_request(b"", size=LARGEST))
        answer = asyncio.ensure_future(_status(reader))
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
    request = _request(bomb)
    if number % 5 == 0:
        part = b'--X\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n' + bomb + b"\r\n"
        request = _request(part * 16 + b"--X--\r\n", kind="multipart/form-data; boundary=X")
    target.answers[await _ask(target.port, request)] += 1


async def broken_forms(target: Target, number: int) -> None:
    forms = (
        b"--X\r\n" * 100_000,
        b"--X\r\n\r\n\r\n" * 50_000 + b"--X--",
        b"\r\n--X" * 300_000,
        b"--X" + b"-" * 500_000,
    )
    body = forms[number % len(forms)]
    target.answers[await _ask(target.port, _request(body, kind="multipart/form-data; boundary=X"))] += 1


async def noise(target: Target, number: int) -> None:
    """Bytes that are no HTTP."""
    random = np.random.default_rng(number).bytes(20_000)
    target.answers[await _ask(target.port, random + b"\r\n\r\n")] += 1


async def foreign_pages(target: Target, number: int) -> None:
    """Pages of other sites, by names that resolve here (DNS rebinding) and by posts across origins."""
    more = ".evil.example" if number % 2 else "\r\nOrigin: http://evil.example"
    target.answers[await _ask(target.port, _request(FACE, more=more))] += 1


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


def _png(width: int, height: int, data: bytes, claimed: int | None = None) -> bytes:
    """A PNG of one bit for each pixel, whose pixels' chunk may claim another length than it has."""

    def chunk(kind: bytes, content: bytes, length: int | None = None) -> bytes:
        size = struct.pack(">I", len(content) if length is None else length)
        return size + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    end = chunk(b"IDAT", data, claimed) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + end


def _bombs() -> list[bytes]:
    side = 5600
    rows = zlib.compress(bytes((1 + side // 8) * side), 9)
    jpeg = bytearray(FACE)
    frame = jpeg.index(b"\xff\xc0") + 5
    jpeg[frame : frame + 4] = b"\xff\xff\xff\xff"
    huge = bytes(jpeg)
    jpeg[frame : frame + 4] = struct.pack(">HH", side, side)
    return [
        _png(side, side, rows),
        _png(112, 112, b"", claimed=0x7FFF_FFFF),
        _png(side, side, b"", claimed=0x7FFF_FFF0),
        _png(60_000, 60_000, rows),
        _png(112, 112, zlib.compress(bytes(100_000_000), 9)),
        huge,
        bytes(jpeg),
        b"BM" + struct.pack("<IIIIiiHHIIiiII", 54, 0, 54, 40, side, side, 1, 24, 0, 0, 0, 0, 0, 0),
        b"RIFF"
        + struct.pack("<I", 22)
        + b"WEBPVP8X"
        + struct.pack("<I", 10)
        + b"\0\0\0\0"
        + b"\xff\xff\x00" * 2,
    ]


BOMBS = _bombs()


def _memory(process: int) -> float:
    """MiB of it that are in use."""
    told = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", told)
    assert found is not None
    return int(found[1]) / 1024


async def _watch(process: int, most: list[float]) -> None:
    while True:
        most.append(_memory(process))
        await asyncio.sleep(0.05)


def _told(counted: Counter[str]) -> str:
    return ", ".join(f"{count} x {what}" for what, count in sorted(counted.items())) or "–"


def _allow_many_files() -> None:
    """As many connections as the system allows, for the service too."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def _service(options: list[str]) -> Iterator[tuple[int, int]]:
    """Process and port of a service."""
    command = [sys.executable, "-m", "facerts", "serve", "--port", "0", *options]
    environment = {key: value for key, value in os.environ.items() if key != "FACERTS_TOKEN"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"listening on http://\S+:(\d+)/", line):
                break
        else:
            raise SystemExit(f"{' '.join(command)} ended without listening")
        # Nobody reads its log, so it must not fill the pipe.
        subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        yield process.pid, int(found[1])
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
