"""Frames of files: their times, their orientation, and what is said of broken and hostile ones."""

import os
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from facerts.errors import VideoError, WriteError
from facerts.scoring.annotated_video import write_video
from facerts.video import VideoLimits, open_frames
from facerts.video.frames import Frame, FrameSampler, clock
from facerts.video.video_file import FrameClock, upright
from tests.color_people import GREEN, RED, draw, turn, walk, write_clip
from tests.command import no_larger_files


def corners(pixels):
    """The strongest color of each quarter of an image: top left, top right, bottom left, bottom right."""
    height, width = pixels.shape[0] // 2, pixels.shape[1] // 2
    quarters = [
        pixels[:height, :width],
        pixels[:height, width:],
        pixels[height:, :width],
        pixels[height:, width:],
    ]
    return ["rgb-"[int(np.argmax([*quarter.mean(axis=(0, 1)), 60]))] for quarter in quarters]


def quarters():
    """Red at the top left, green at the top right, blue at the bottom left."""
    frame = np.zeros((64, 96, 3), np.uint8)
    frame[:32, :48, 0] = frame[:32, 48:, 1] = frame[32:, :48, 2] = 250
    return frame


@given(st.lists(st.floats(0, 50), min_size=1, max_size=60), st.sampled_from([0.5, 1, 5, 24, 29.97]))
def test_the_first_frame_of_each_period_is_looked_at(times, fps):
    ordered = np.sort(np.array(times))
    sampler = FrameSampler(fps)
    chosen = [number for number, time in enumerate(ordered) if sampler.wants(float(time))]
    # Independently: the first of each group of frames in the same period.
    _, first = np.unique(np.floor(ordered * fps + 1e-6), return_index=True)
    assert chosen == first.tolist()


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv", "clip.avi", "clip.mov", "clip.webm"])
def test_frames_of_every_container_have_the_times_they_were_written_with(tmp_path, name):
    codec = {".webm": "libvpx", ".avi": "mpeg4"}.get(Path(name).suffix, "libx264")
    rate = 25
    frames = [(number / rate, draw([(RED, 4 * number, 10)])) for number in range(20)]
    if name == "clip.avi":
        with av.open(str(tmp_path / name), "w") as container:
            stream = container.add_stream(codec, rate=rate)
            stream.height, stream.width, stream.pix_fmt = *frames[0][1].shape[:2], "yuv420p"
            for _, pixels in frames:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
            container.mux(stream.encode())
    else:
        write_clip(tmp_path / name, frames, codec=codec)
    source = open_frames(tmp_path / name)
    read = list(source.frames(1000))
    assert [frame.time for frame in read] == pytest.approx([time for time, _ in frames], abs=2e-3)
    assert source.report.problem is None
    assert source.duration == pytest.approx(20 / rate, abs=0.05)
    assert all(
        np.abs(frame.pixels.astype(int) - pixels).mean() < 6 for frame, (_, pixels) in zip(read, frames, strict=True)
    )


def test_frame_rates_that_vary_keep_their_times(tmp_path):
    times = [0, 0.04, 0.5, 0.52, 0.54, 1.9, 2.0, 2.01, 2.3, 5.0]
    write_clip(tmp_path / "clip.mp4", [(time, draw([(RED, 20 * n, 10)])) for n, time in enumerate(times)])
    read = list(open_frames(tmp_path / "clip.mp4").frames(2))
    assert [frame.time for frame in read] == pytest.approx([0, 0.5, 1.9, 2.0, 5.0], abs=2e-3)


def test_a_clip_that_is_cut_out_of_another_begins_at_zero(tmp_path):
    write_clip(tmp_path / "clip.mkv", walk(1, start=100))
    assert [frame.time for frame in open_frames(tmp_path / "clip.mkv").frames(2)] == pytest.approx([0, 0.52], abs=0.03)


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_a_rotated_clip_is_turned_upright(tmp_path, rotation):
    # The camera stores a turned image, and how to turn it back, counterclockwise.
    stored = np.ascontiguousarray(np.rot90(quarters(), -rotation // 90))
    clip = turn(write_clip(tmp_path / "clip.mp4", [(n / 10, stored) for n in range(5)]), rotation)
    (frame, *_) = open_frames(clip).frames(10)
    assert frame.pixels.shape == (64, 96, 3)
    assert corners(frame.pixels) == ["r", "g", "b", "-"]


@pytest.mark.parametrize("across", [-1, 1])
@pytest.mark.parametrize("down", [-1, 1])
@pytest.mark.parametrize("transposed", [False, True])
def test_every_display_matrix_moves_pixels_where_it_says(across, down, transposed):
    matrix = np.zeros((3, 3), np.int32)
    if transposed:
        matrix[0, 1], matrix[1, 0] = 65536 * down, 65536 * across
    else:
        matrix[0, 0], matrix[1, 1] = 65536 * across, 65536 * down
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    shown = upright(pixels, matrix)
    # Independently: each pixel goes to (x, y) times the matrix, moved so that the smallest coordinates are 0.
    places = {}
    for y in range(2):
        for x in range(3):
            to = np.array([x, y]) @ (matrix[:2, :2] // 65536)
            places[tuple(to.tolist())] = pixels[y, x]
    least = np.min(list(places), axis=0)
    for (x, y), value in places.items():
        assert (shown[y - least[1], x - least[0]] == value).all()
    assert shown.shape == ((3, 2, 3) if transposed else (2, 3, 3))


def test_pixels_that_are_not_square_are_stretched(tmp_path):
    write_clip(tmp_path / "clip.mp4", [(n / 10, quarters()) for n in range(5)], aspect=Fraction(3, 2))
    (frame, *_) = open_frames(tmp_path / "clip.mp4").frames(10)
    assert frame.pixels.shape == (64, 144, 3)
    assert corners(frame.pixels) == ["r", "g", "b", "-"]


def test_a_file_in_memory_is_read_like_one_on_disk(tmp_path):
    write_clip(tmp_path / "clip.mp4", walk(1))
    data = (tmp_path / "clip.mp4").read_bytes()
    on_disk = [frame.time for frame in open_frames(tmp_path / "clip.mp4").frames(5)]
    assert [frame.time for frame in open_frames(data).frames(5)] == on_disk
    assert [frame.time for frame in open_frames(BytesIO(data)).frames(5)] == on_disk


@pytest.mark.parametrize(("name", "options"), [("clip.mkv", {}), ("clip.mp4", {"movflags": "faststart"})])
def test_a_file_that_is_cut_off_says_until_when_it_could_be_read(tmp_path, name, options):
    path = write_clip(tmp_path / name, walk(8), container_options=options)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    source = open_frames(path)
    times = [frame.time for frame in source.frames(5)]
    assert 2 < times[-1] < 6
    assert source.report.until is not None
    assert source.report.until >= times[-1]
    said = f"could be read until {clock(source.report.until)} of 0:00:08.0"
    assert said in str(source.report.problem)
    assert name != "clip.mkv" or source.report.problem == f"cut off; it {said}"


def test_damaged_packets_are_passed_over(tmp_path):
    data = bytearray(write_clip(tmp_path / "clip.mkv", walk(8)).read_bytes())
    middle = len(data) // 2
    data[middle : middle + 600] = bytes(600)
    (tmp_path / "damaged.mkv").write_bytes(data)
    source = open_frames(tmp_path / "damaged.mkv")
    times = [frame.time for frame in source.frames(5)]
    assert times[-1] == pytest.approx(7.8, abs=0.1)
    assert source.report.damaged > 0
    assert source.report.problem is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"this is not a video" * 100,
        b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:///SECRET\n#EXT-X-ENDLIST\n",
        b"ffconcat version 1.0\nfile SECRET\n",
        b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n",
        b'<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"></MPD>',
    ],
)
@pytest.mark.parametrize("suffix", [".mp4", ".m3u8", ".txt"])
def test_what_is_no_video_is_an_error_and_opens_nothing_else(tmp_path, content, suffix):
    secret = write_clip(tmp_path / "secret.mkv", walk(1))
    path = tmp_path / f"clip{suffix}"
    path.write_bytes(content.replace(b"SECRET", os.fsencode(secret)))
    for video in (path, path.read_bytes()):
        with pytest.raises(VideoError, match="cannot be opened: not a video"):
            list(open_frames(video).frames(5))


def test_other_paths_than_files_are_errors(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("", "not a file"),
        ("pipe", "not a file"),
        ("missing.mp4", "No such file"),
        ("a\0b", "null"),
    ):
        with pytest.raises(VideoError, match=message):
            list(open_frames(f"{tmp_path}/{name}").frames(5))


def test_names_that_ffmpeg_takes_for_something_else_are_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_clip(tmp_path / "clip.mkv", walk(1))
    for name in (*("concat:clip.mkv|clip.mkv", "subfile,,start,0,end,0,,:clip.mkv", "pipe:0", "cache:clip.mkv", "-"),):
        with pytest.raises(VideoError, match="No such file"):
            list(open_frames(name).frames(5))
        (tmp_path / name).write_bytes((tmp_path / "clip.mkv").read_bytes())
        assert len(list(open_frames(name).frames(5))) == 5


def test_sound_alone_is_no_video(tmp_path):
    with av.open(str(tmp_path / "song.mp4"), "w") as container:
        stream = container.add_stream("aac", rate=48000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 48000), np.float32), format="flt", layout="mono")
        frame.sample_rate = 48000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    with pytest.raises(VideoError, match="there is no video in this file"):
        list(open_frames(tmp_path / "song.mp4").frames(5))


def test_limits_are_errors(tmp_path):
    write_clip(tmp_path / "clip.mp4", walk(2))
    for limits, message in (
        (VideoLimits(max_pixels=120 * 240 - 1), "240 x 120 pixels are more than 28,799|not a video"),
        (VideoLimits(max_seconds=1), "longer than 1 seconds"),
        (VideoLimits(max_frames=10), "more than 10 frames"),
    ):
        with pytest.raises(VideoError, match=message):
            list(open_frames(tmp_path / "clip.mp4", limits=limits).frames(5))
    assert len(list(open_frames(tmp_path / "clip.mp4", limits=VideoLimits(120 * 240, 2, 50)).frames(5))) == 10


def test_times_never_go_back():
    container = SimpleNamespace(start_time=2_000_000)
    stream = SimpleNamespace(average_rate=Fraction(10), guessed_rate=None, time_base=Fraction(1, 1000))
    times = FrameClock(container, stream)
    stamps = [2000, 2100, 2200, 2000, 2100, None, 2500]
    read = [times.time_of(SimpleNamespace(pts=stamp)) for stamp in stamps]
    assert read == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.8])
    assert read == [round(time, 6) for time in read]


def test_images_in_memory_have_the_times_that_they_are_given():
    images = [draw([(GREEN, 10 * n, 5)]) for n in range(6)]
    assert [frame.time for frame in open_frames(images).frames(2)] == [0, 0.5, 1, 1.5, 2, 2.5]
    timed = list(zip([0, 0.1, 0.6, 0.7, 1.2, 9], images, strict=True))
    assert [frame.time for frame in open_frames(timed).frames(2)] == [0, 0.6, 1.2, 9]
    (first, *_) = open_frames(images, color="BGR").frames(2)
    assert (first.pixels[..., ::-1] == images[0]).all()
    assert not open_frames(images).live
    assert open_frames(iter(images)).live


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (
            [np.zeros((4, 4), np.uint8)],
            r"frame 0: must be an array \(H, W, 3\) uint8 RGB, not \(4, 4\) uint8",
        ),
        ([None], "frame 0: must be an array .* not NoneType"),
        ([(1.0, draw([])), (0.5, draw([]))], "frame 1: its time, 0.5 seconds, is before"),
        ([(float("nan"), draw([]))], "no number of seconds"),
    ],
)
def test_images_that_are_none_are_errors(frames, message):
    with pytest.raises(VideoError, match=message):
        list(open_frames(frames).frames(2))


@pytest.mark.parametrize(
    ("video", "message"),
    [
        ("ftp://somewhere/clip.mp4", "streams come by http"),
        ("file:///etc/passwd", "streams come by http"),
        ("device:first", "give the number of a camera"),
        (3.5, "not float"),
        (True, "not bool"),
    ],
)
def test_what_is_not_a_video_is_an_error(video, message):
    with pytest.raises(VideoError, match=message):
        open_frames(video)


def test_a_camera_that_is_not_there_is_an_error():
    with pytest.raises(VideoError, match="device:63: there is no such camera"):
        next(iter(open_frames("device:63").frames(5)))


@pytest.mark.parametrize("size", [0, 100_000])
def test_a_video_on_a_full_disk_gives_one_error(tmp_path, size):
    noise = np.random.default_rng(0).integers(0, 256, (60, 120, 160, 3), dtype=np.uint8)
    full = pytest.raises(WriteError, match=r"a\.mp4: cannot be written \(File too large\)")
    with no_larger_files(size), full:
        write_video(tmp_path / "a.mp4", (Frame(number / 30, pixels) for number, pixels in enumerate(noise)))
    assert not list(tmp_path.iterdir())
