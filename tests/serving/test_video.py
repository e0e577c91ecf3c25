"""Clips over HTTP."""

import base64
import threading
import time

import cv2
import numpy as np
import pytest

from facerts.errors import Error, ModelError
from facerts.galleries import Gallery
from facerts.images import encode_png
from facerts.scoring import Scorer
from facerts.serving import Settings, build
from tests.color_people import color_gallery, color_scorer, draw, walk, write_clip
from tests.hostile.videos import gif
from tests.serving.conftest import problem, refused, started


@pytest.fixture(scope="module")
def gallery_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("gallery") / "people.npz"
    Gallery(path).replace(color_gallery())
    return path


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("clip") / "clip.mkv", walk(4)).read_bytes()


@pytest.fixture(scope="module")
def client(gallery_file):
    settings = Settings(video=True, gallery=gallery_file, max_seconds=5, min_quality=0.2, fmr=None)
    with started(color_scorer(), settings) as (_, client):
        yield client


def test_a_clip_gives_its_tracks(client, clip):
    form = {"fps": "2", "crops": "true", "embeddings": "true", "best": "1"}
    response = client.post("/v1/video", files={"video": ("clip.mkv", clip)}, data=form)
    assert response.status_code == 200, response.text
    result = response.json()
    assert (result["name"], result["frames"], result["error"]) == ("clip.mkv", 8, None)
    assert result["seconds"] == pytest.approx(4, abs=0.1)
    red, green = result["tracks"]
    assert red["spans"] == [[0, pytest.approx(3.52, abs=0.05)]]
    assert (red["faces"], red["too_poor"]) == (8, False)
    assert (red["decision"], red["candidates"][0]["person"]) == ("match", "Rosa")
    assert green["decision"] == "unknown"
    assert np.argmax(red["template"]) == 0
    (shot,) = red["best"]
    crop = cv2.imdecode(np.frombuffer(base64.b64decode(shot["crop"]), np.uint8), cv2.IMREAD_COLOR)
    assert crop.shape == (112, 112, 3)


def test_a_clip_that_is_cut_off_gives_what_could_be_read(client, clip):
    result = client.post("/v1/video", files={"video": clip[: len(clip) // 2]}).json()
    assert "cut off; it could be read until" in result["error"]
    assert len(result["tracks"]) == 2
    assert 1 < result["read_until"] < 3


def test_what_cannot_be_used_is_an_error(client, clip, tmp_path):
    long = write_clip(tmp_path / "long.mkv", walk(8, fps=5)).read_bytes()
    playlist = b"#EXTM3U\n#EXTINF:9,\nfile:///etc/hostname\n#EXT-X-ENDLIST\n"
    for data, message in (
        (b"nothing", "not a video of a known format"),
        (playlist, "not a video of a known format"),
        (long, "longer than 5 seconds, the maximum"),
        (gif(3000, 10), "3000 x 3000 pixels of 32 bits are more than 8,294,400, the maximum"),
    ):
        refused(client.post("/v1/video", files={"video": data}), (422, "unusable_video"), message)
    for files, options, message in (
        ([("video", clip), ("video", clip)], "", "more than 1 videos"),
        ({"video": clip}, "?fps=1000", "fps"),
        ({"video": clip}, "?keep=0.5&min_quality=1", "give only one"),
        ({"video": clip}, "?colour=red", "colour"),
    ):
        response = client.post(f"/v1/video{options}", files=files)
        assert response.status_code == 422
        assert message in response.json()["error"]
    expected = client.post("/v1/video", files={"video": clip}).json()
    for request in (
        {"files": {"any": clip}},
        {"content": clip},
        {"json": {"video": base64.b64encode(clip).decode()}},
    ):
        answer = client.post("/v1/video", **request).json()
        assert answer["tracks"] == expected["tracks"]
    response = client.post("/v1/video", json={"image": "AAAA"})
    assert response.json()["error"].endswith('expected {"video": "BASE64"}, with options as more keys')


def scorer_waiting(wait):
    """A scorer that waits before it looks at a frame of a clip, other than at an image."""
    scorer = color_scorer()
    real = scorer.detector

    class Slow:
        identity = "slow for videos"

        def __call__(self, image):
            if image.shape[:2] == (120, 240):
                wait()
            return real(image)

    scorer.detector = Slow()
    return scorer


def test_images_are_scored_while_a_clip_is_looked_at(gallery_file, clip):
    busy, free = threading.Event(), threading.Event()
    scorer = scorer_waiting(lambda: (busy.set(), free.wait(20)))
    image = encode_png(draw([((1, 0, 0), 20, 20)], 100, 200))
    with started(scorer, Settings(video=True)) as (_, client):
        answers = []
        thread = threading.Thread(target=lambda: answers.append(client.post("/v1/video", files={"video": clip})))
        thread.start()
        assert busy.wait(20)
        response = client.post("/v1/score", files={"images": image})
        assert response.status_code == 200
        assert answers == []
        free.set()
        thread.join()
    assert answers[0].status_code == 200


def test_a_clip_that_takes_too_long_is_given_up(clip):
    looked = []
    scorer = scorer_waiting(lambda: (looked.append(1), time.sleep(0.3)))
    with started(scorer, Settings(video=True, timeout=0.5)) as (_, client):
        response = client.post("/v1/video", files={"video": clip})
        assert problem(response) == (504, "timeout")
    # The service has stopped, and so has its thread, long before the twentieth frame.
    assert len(looked) < 20


def test_a_service_takes_videos_only_if_it_is_told_to(clip):
    with started(color_scorer(), Settings()) as (_, client):
        assert client.post("/v1/video", files={"video": clip}).status_code == 404
        assert "/v1/video" not in client.get("/openapi.json").json()["paths"]
    with pytest.raises(ModelError, match="faces in videos have to be found"):
        build(Scorer.of(color_scorer().recognizer.opened), Settings(video=True))
    with pytest.raises(Error, match="max_seconds must be"):
        Settings(max_seconds=0)
