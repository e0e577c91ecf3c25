"""Videos take the memory of a few frames, whatever they say."""

from contextlib import nullcontext
from fractions import Fraction
from io import BytesIO
from types import SimpleNamespace

import av
import numpy as np
import PIL.Image
import pytest

from facerts.errors import VideoLimitError
from facerts.scoring import annotated_video
from facerts.video import VideoLimits, open_frames, video_file
from facerts.video.frames import Frame
from facerts.video.video_file import CONTAINERS, FILE_PROTOCOLS, open_container, video_stream
from tests.color_people import walk, write_clip
from tests.hostile.sandbox import read_bounded
from tests.hostile.videos import gif
from tests.video.test_frames import corners, quarters


def write_jpegs(path, images, **options):
    """A video of JPEGs, which the container says to be as large as the first."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mjpeg", rate=5)
        stream.width, stream.height, stream.pix_fmt = *images[0].size, "yuvj420p"
        for number, image in enumerate(images):
            image.save(file := BytesIO(), "JPEG", **options)
            packet = av.Packet(file.getvalue())
            packet.stream, packet.time_base, packet.pts, packet.dts = stream, Fraction(1, 5), number, number
            container.mux(packet)


def test_no_video_takes_more_than_a_few_frames(tmp_path):
    (tmp_path / "canvas.gif").write_bytes(gif(5000, 40))
    (tmp_path / "many.gif").write_bytes(gif(1000, 150))
    canvas, many = read_bounded("video", sorted(tmp_path.iterdir()), memory=400 << 20).values()
    assert "canvas.gif: frames of 5000 x 5000 pixels are more than 16,000,000, the maximum" in canvas
    assert many == ""


@pytest.mark.parametrize("name", ["clip.flv", "clip.ts"])
def test_no_decoder_runs_before_it_has_limits(tmp_path, name):
    path = write_clip(tmp_path / name, walk(1))
    with open_container(str(path), name, protocols=FILE_PROTOCOLS, containers=CONTAINERS) as opened:
        # The container does not say it.
        assert video_stream(opened, name).codec_context.pix_fmt is None


def test_larger_frames_after_small_ones_are_not_decoded(tmp_path):
    small, large = PIL.Image.new("RGB", (64, 64)), PIL.Image.new("RGB", (256, 256))
    write_jpegs(tmp_path / "clip.mkv", [small, small, large, small])
    source = open_frames(tmp_path / "clip.mkv", limits=VideoLimits(max_pixels=64 * 64))
    assert [frame.time for frame in source.frames(5)] == [0, 0.2, 0.6]
    assert source.report.damaged == 1
    assert len(list(open_frames(tmp_path / "clip.mkv").frames(5))) == 4


@pytest.mark.parametrize(
    ("pixel_format", "sentence"),
    [("yuv420p", ""), ("yuv444p10le", "64 x 64 pixels of 48 bits are more than 2,363, the maximum")],
)
def test_frames_of_more_bits_count_more(tmp_path, monkeypatch, pixel_format, sentence):
    monkeypatch.setattr(video_file, "MAX_FRAME_BITS", 64 * 64 * 30)
    # The second half is of another format, of which a decoder would hold many frames before the first comes out.
    data = b""
    for format in ("yuv420p", pixel_format):
        with av.open(file := BytesIO(), "w", format="h264") as container:
            stream = container.add_stream("libx264", rate=5, options={"bf": "8", "refs": "8"})
            stream.width, stream.height, stream.pix_fmt = 64, 64, format
            for number in range(20):
                image = np.full((64, 64, 3), 10 * number, np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            container.mux(stream.encode())
        data += file.getvalue()
    (tmp_path / "clip.h264").write_bytes(data)
    source = open_frames(tmp_path / "clip.h264", limits=VideoLimits(max_pixels=64 * 64))
    with pytest.raises(VideoLimitError, match=sentence) if sentence else nullcontext():
        for _ in source.frames(1000):
            pass
    # Of the second half, no frame comes out.
    assert source.report.frames <= 20 if sentence else source.report.frames == 40


def test_the_limit_is_one_of_stretched_frames(tmp_path):
    path = write_clip(tmp_path / "clip.mp4", walk(1), aspect=Fraction(4, 1))
    with pytest.raises(VideoLimitError, match=r"frames of 960 x 120 pixels are more than 100,000, the maximum"):
        list(open_frames(path, limits=VideoLimits(max_pixels=100_000)).frames(5))


def test_frames_with_data_that_is_unknown_are_turned_all_the_same(tmp_path):
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    turned = np.ascontiguousarray(np.rot90(quarters()))
    write_jpegs(tmp_path / "clip.mkv", [PIL.Image.fromarray(turned)], exif=exif)
    (frame,) = open_frames(tmp_path / "clip.mkv").frames(5)
    assert corners(frame.pixels) == ["r", "g", "b", "-"]


def test_no_written_frame_waits_for_a_later_one(tmp_path, monkeypatch):
    packets = []

    class Counted:
        """A container whose packets are counted, frame by frame."""

        def __init__(self, *values, **options):
            self.real = av.open(*values, **options)
            self.add_stream = self.real.add_stream

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.real.close()

        def mux(self, written):
            packets.append(len(written))
            self.real.mux(written)

    known = SimpleNamespace(open=Counted, codecs_available=av.codecs_available, VideoFrame=av.VideoFrame)
    monkeypatch.setattr(annotated_video, "import_av", lambda: known)
    annotated_video.write_video(tmp_path / "clip.mp4", (Frame(time, pixels) for time, pixels in walk(1)))
    assert packets == [1] * 25 + [0]
    assert len(list(open_frames(tmp_path / "clip.mp4").frames(1000))) == 25
