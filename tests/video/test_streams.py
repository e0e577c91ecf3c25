"""Streams from a server of this machine, that drop and come back."""

import re
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from facerts.errors import VideoError
from facerts.video import live_sources, open_frames
from facerts.video.live_sources import Reconnection, without_password
from tests.color_people import GREEN, draw, walk, write_clip
from tests.command import free_port


class Server(ThreadingHTTPServer):
    """Serves bytes by path; of each path's first requests only so many bytes, as if the connection had dropped.

    Attributes:
        content: bytes by path.
        drops: how many bytes the next answers of a path have.
        ranges: whether parts of the content can be asked for.
        requests: paths that were asked for.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", free_port()), Handler)
        self.content = {}
        self.drops = {}
        self.ranges = True
        self.requests = []

    def url(self, path):
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self.server.requests.append(self.path)
        content = self.server.content.get(self.path)
        if content is None:
            self.send_error(404)
            return
        asked = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked and self.server.ranges else 0
        drops = self.server.drops.get(self.path) or []
        until = drops.pop(0) if drops else len(content)
        self.send_response(206 if asked and self.server.ranges else 200)
        if self.server.ranges:
            self.send_header("Content-Length", str(len(content) - start))
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        self.wfile.write(content[start : max(start, until)])
        self.close_connection = True

    def log_message(self, format, *values):
        pass


@contextmanager
def serving():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def no_waiting(monkeypatch):
    """Waits between attempts, which are only noted."""
    waits = []
    now = time.monotonic

    clock = SimpleNamespace(monotonic=lambda: now() + sum(waits), sleep=waits.append)
    monkeypatch.setattr(live_sources, "time", clock)
    return waits


def test_a_stream_with_an_end_goes_on_where_it_dropped(tmp_path, no_waiting):
    data = write_clip(tmp_path / "clip.mkv", walk(8)).read_bytes()
    with serving() as server:
        server.content["/clip.mkv"] = data
        server.drops["/clip.mkv"] = [len(data) // 2, len(data) * 3 // 4]
        source = open_frames(server.url("/clip.mkv"))
        times = [frame.time for frame in source.frames(5)]
    assert times == pytest.approx(np.arange(40) / 5, abs=2e-3)
    assert source.report.problem is None
    assert source.report.reconnects >= 1


def test_a_stream_without_an_end_that_stays_away_ends(tmp_path, no_waiting):
    data = write_clip(tmp_path / "clip.ts", walk(4)).read_bytes()
    with serving() as server:
        server.ranges = False
        server.content["/live.ts"] = data
        source = open_frames(server.url("/live.ts"), reconnect=20)
        times = []
        for frame in source.frames(5):
            times.append(frame.time)
            if len(times) == 15:
                del server.content["/live.ts"]
    assert times == sorted(times)
    assert len(times) >= 15
    assert source.live
    assert "did not come back within 20 seconds" in str(source.report.problem)
    assert no_waiting[:4] == [0.5, 1, 2, 4]
    assert sum(no_waiting) == pytest.approx(20, abs=1)


def test_a_stream_that_is_not_there_is_an_error_at_once(no_waiting):
    with serving() as server, pytest.raises(VideoError, match="cannot be opened"):
        list(open_frames(server.url("/nothing.mp4")).frames(5))
    with pytest.raises(VideoError, match="cannot be opened"):
        list(open_frames(f"http://127.0.0.1:{free_port()}/clip.mp4").frames(5))
    assert no_waiting == []


def test_a_playlist_of_a_server_opens_no_file_of_this_machine(tmp_path):
    secret = write_clip(tmp_path / "secret.ts", walk(2))
    with serving() as server:
        head = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:9\n#EXTINF:2,\n"
        server.content["/own.m3u8"] = f"{head}{server.url('/part.ts')}\n#EXT-X-ENDLIST\n".encode()
        server.content["/part.ts"] = secret.read_bytes()
        server.content["/foreign.m3u8"] = f"{head}file://{secret}\n#EXT-X-ENDLIST\n".encode()
        assert len(list(open_frames(server.url("/own.m3u8"), reconnect=0).frames(5))) == 10
        with pytest.raises(VideoError):
            list(open_frames(server.url("/foreign.m3u8"), reconnect=0).frames(5))


def test_addresses_are_printed_without_their_password():
    assert without_password("rtsp://user:secret@camera:554/1?x=2") == "rtsp://…@camera:554/1?x=2"
    assert without_password("http://camera/1") == "http://camera/1"
    assert without_password("rtsp://user:sec@ret@camera/1") == "rtsp://…@camera/1"
    assert without_password("rtsp://user:se/cr?et@camera:554/1") == "rtsp://…@camera:554/1"
    for address in (
        "http://camera:80/a@b",
        "http://camera/a:b@c",
        "http://[::1]:80/a@b",
        "http://camera:80?a@b",
    ):
        assert without_password(address) == address
    assert without_password("rtsp://user:secret@[::1/1") == "rtsp://…@[::1/1"
    assert "secret" not in open_frames("rtsp://user:secret@camera/1").name
    with pytest.raises(VideoError, match=r"rtspx://…@camera/1: streams come by"):
        open_frames("rtspx://user:secret@camera/1")


def test_attempts_end(no_waiting):
    attempts = Reconnection(6)
    assert [attempts.wait() for _ in range(4)] == [True, True, True, True]
    assert no_waiting == pytest.approx([0.5, 1, 2, 2.5], abs=0.01)
    assert not attempts.wait()
    attempts.reset()
    assert attempts.wait()
    assert not Reconnection(0).wait()


def test_a_camera_that_is_unplugged_for_a_moment_goes_on(monkeypatch):
    image = draw([(GREEN, 20, 20)])
    opened, passed = [], [0.0]

    class Capture:
        """Three frames, one each half a second; of the second and the fourth opening none."""

        def __init__(self, number):
            opened.append(number)
            self._left = 3 if len(opened) in (1, 3) else 0

        def isOpened(self):  # noqa: N802
            return True

        def read(self):
            self._left -= 1
            passed.extend([0.5] * (self._left >= 0))
            return self._left >= 0, image[..., ::-1]

        def release(self):
            pass

    clock = SimpleNamespace(monotonic=lambda: sum(passed), sleep=passed.append)
    monkeypatch.setattr(live_sources, "time", clock)
    monkeypatch.setattr(cv2, "VideoCapture", Capture)
    source = open_frames(2, reconnect=3)
    frames = list(source.frames(10))
    assert set(opened) == {2}
    assert source.name == "device:2"
    assert [frame.time for frame in frames] == [0.5, 1, 1.5, 3.5, 4, 4.5]
    assert all((frame.pixels == image).all() for frame in frames)
    assert "gone at 0:00:04.5, and did not come back within 3 seconds" in str(source.report.problem)
