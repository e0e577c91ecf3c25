"""Frames to tracks: who, when, the best shots, the template, and how little is kept in memory."""

import weakref
from time import sleep

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from facerts.errors import Error, ModelError
from facerts.galleries import Decision, Gallery
from facerts.metrics.pooling import face_weights, pool
from facerts.scoring import Face, Row, Scorer, Shot
from facerts.scoring.track import TrackBuilder, add_shot, joined_best
from facerts.scoring.video_tracks import TrackOptions
from facerts.video import ReadReport, open_frames
from facerts.video.frames import Frame
from tests.color_people import (
    BLUE,
    GREEN,
    RED,
    ColorDetector,
    color_gallery,
    color_scorer,
    draw,
    walk,
    write_clip,
)

DARK_RED = (0.31, 0, 0)
Frames = list[tuple[float, NDArray[np.uint8]]]


def at(*scenes, start=0.0, fps=5.0):
    return [(start + number / fps, draw(scene)) for number, scene in enumerate(scenes)]


def who(track):
    return "rgb"[int(track.template.argmax())]


def test_two_people_who_pass_each_other(tmp_path):
    report = ReadReport()
    clip = write_clip(tmp_path / "clip.mp4", walk(4))
    red, green = color_scorer().video(clip, report=report)
    assert (who(red), who(green)) == ("r", "g")
    for track in (red, green):
        assert track.spans == ((0.0, pytest.approx(3.8)),)
        assert track.faces == 20
        assert track.poor_faces == 0
        assert track.path == str(clip)
        assert track.template.dtype == np.float32
        assert np.linalg.norm(track.template) == pytest.approx(1)
    assert (report.frames, report.problem) == (100, None)
    assert red.best[0].crop.shape == (112, 112, 3)
    assert red.best[0].crop[56, 56].argmax() == 0


def test_someone_who_leaves_and_returns_is_one_track_and_so_is_one_before_and_after_a_cut():
    here, away = [(RED, 20, 20)], [(BLUE, 150, 20)]
    frames = at(*[here] * 5, *[[]] * 15, *[[(RED, 150, 60)]] * 5, *[away] * 5, *[here] * 5)
    red, blue = color_scorer().video(frames)
    assert (who(red), who(blue)) == ("r", "b")
    assert np.array(red.spans) == pytest.approx(np.array([[0, 0.8], [4, 4.8], [6, 6.8]]))
    assert red.faces == 15
    assert len(red.parts) == 3
    assert red.seconds == pytest.approx(2.4)
    assert [who(track) for track in color_scorer().video(frames, join_seconds=0)] == ["r", "r", "b", "r"]
    assert [who(track) for track in color_scorer().video(frames, join_seconds=2)] == ["r", "r", "b"]


def test_two_who_look_alike_and_are_seen_together_are_never_joined():
    pair = [(RED, 10, 20), (RED, 180, 20)]
    tracks = list(color_scorer().video(at(*[pair] * 6, *[[]] * 10, *[[(RED, 100, 20)]] * 6)))
    assert [len(track.parts) for track in tracks] in ([1, 2], [2, 1])
    first, second = tracks
    assert first.spans[0] == second.spans[0] == (0.0, 1.0)


def test_poor_faces_are_no_best_shots_and_weigh_nothing_beside_good_ones():
    frames = at(*[[(RED, 20, 20)]] * 3, *[[(DARK_RED, 20, 20)]] * 5)
    (track,) = color_scorer().video(frames)
    assert (track.faces, track.poor_faces) == (8, 5)
    assert not track.too_poor
    assert all(shot.quality == 1 for shot in track.best)
    assert (track.percentile, track.reasons) == (100, track.best[0].reasons)


def test_a_track_of_poor_faces_says_so_and_is_too_poor_to_search_for():
    frames = at(*[[(DARK_RED, 20, 20), (RED, 150, 20)]] * 4)
    poor, good = color_scorer().video(frames, join_seconds=0)
    if who(poor) == who(good) and not poor.too_poor:
        poor, good = good, poor
    assert poor.too_poor
    assert poor.best == ()
    assert set(poor.reasons) >= {"below_threshold"}
    assert poor.quality == pytest.approx(0.31, abs=0.01)
    assert "below the threshold" in repr(poor) or "under exposed" in repr(poor)
    matches = Gallery(color_gallery()).match([poor.as_face(), good.as_face()], fpir=0.5)
    assert [match.decision for match in matches] == [Decision.TOO_POOR, Decision.MATCH]
    assert matches[1].person == "Rosa"


def test_templates_weight_faces_by_their_percentile():
    # Two colors that are alike enough to be followed; the brighter counts for more.
    scenes = [[((1, 0, 0), 20, 20)], [((0.2, 0.1, 0), 20, 20)], [((0.8, 0.1, 0), 20, 20)]]
    scorer = color_scorer()
    frames = at(*scenes)
    (track,) = scorer.video(frames, min_quality=0.1)
    faces = [next(iter(scorer.score_each(pixels))) for _, pixels in frames]
    weights = [min(max((face.row.percentile or 0) / 30, 0.01), 1) for face in faces]
    expected = pool([face.embedding for face in faces], [0, 0, 0], weights=weights)[0]
    assert track.template == pytest.approx(expected, abs=1e-6)
    plain = pool([face.embedding for face in faces], [0, 0, 0])[0]
    assert np.abs(track.template - plain).max() > 0.03


@pytest.mark.parametrize(
    ("percentile", "weight"), [(15.0, 0.5), (30.0, 1.0), (80.0, 1.0), (0.0, 0.01), (float("nan"), 1.0)]
)
def test_the_weight_of_a_face(percentile, weight):
    assert face_weights(percentile) == pytest.approx(weight)


@given(
    st.lists(
        st.tuples(st.floats(0, 30), st.floats(0, 1), st.sampled_from([0.0, 30.0, -30.0])),
        min_size=1,
        max_size=25,
    ),
    st.integers(1, 4),
)
def test_best_shots_differ_and_include_the_best(seen, most):
    shots = []
    for time, quality, yaw in sorted(seen):
        points = [30.0 + yaw / 10, 40, 70 + yaw / 10, 40, 50 + yaw / 2, 60, 35, 80, 65, 80]
        row = Row("clip", face=0, quality=quality, points=points)
        add_shot(shots, Shot(row, time=time), most)
    assert 1 <= len(shots) <= most
    assert shots[0].rank[0] == max(quality for _, quality, _ in seen)
    assert shots == sorted(shots, key=lambda shot: shot.rank, reverse=True)
    assert not any(one.resembles(other) for at, one in enumerate(shots) for other in shots[:at])


def test_best_shots_are_the_brightest_of_every_two_seconds():
    brightness = [0.5 + 0.4 * np.sin(step / 3) for step in range(60)]
    frames = at(*[[((value, 0, 0), 20, 20)] for value in brightness])
    (track,) = color_scorer().video(frames, best=3)
    tops = [step for step in range(1, 59) if brightness[step - 1] < brightness[step] > brightness[step + 1]]
    assert sorted(shot.time for shot in track.best) == pytest.approx([step / 5 for step in tops][:3])


def test_a_camera_gives_tracks_as_they_end_and_forgets_them():
    drawn = []

    def camera():
        for step in range(400):
            drawn.append(step)
            scene = [(BLUE, 150, 60)] + ([(RED, 20, 20)] if step % 100 < 10 else [])
            yield draw(scene)

    tracks = color_scorer().video(camera(), join_seconds=4)
    first = next(tracks)
    # It ended after ten frames, and was awaited for four seconds; frames are read a little ahead.
    assert who(first) == "r"
    assert len(drawn) < 60
    rest = list(tracks)
    assert [who(track) for track in [first, *rest]] == ["r", "r", "r", "r", "b"]
    assert [track.number for track in [first, *rest]] == [1, 2, 3, 4, 5]


def test_memory_does_not_grow_with_the_length_of_a_video():
    scorer = color_scorer()
    people = RED, GREEN, BLUE
    source = open_frames(draw([(people[step // 20 % 3], 20, 20)]) for step in range(600))
    sizes = []
    tracks = scorer.track(source, options := TrackOptions(), scorer.track_row_builder())
    for frame in tracks.frames():
        held = [shot for builder in tracks.followed.values() for shot in builder.shots]
        held += [shot for builder in tracks.ended for shot in builder.shots]
        sizes.append(sum(shot.crop is not None for shot in held))
        assert len(frame.faces) == 1
    assert max(sizes) <= 2 * options.best
    assert len(tracks.ended) + len(tracks.followed) <= 4
    ended = list(tracks.finish())
    assert {who(track) for track in ended} == {"r", "g", "b"}
    for track in ended:
        assert {"rgb"[shot.crop[56, 56].argmax()] for shot in track.best} == {who(track)}


def test_few_large_frames_are_in_memory():
    alive = weakref.WeakSet()
    most = []

    class Large:
        """Frames of 26 MB, which have the memory of a pixel."""

        name, live, duration, report = "large", False, None, ReadReport()

        def frames(self, fps):
            for number in range(20):
                most.append(len(alive))
                frame = Frame(number / fps, np.broadcast_to(np.uint8(90), (2160, 4096, 3)))
                alive.add(frame)
                yield frame
                del frame

    scorer = color_scorer()
    scorer.detector = lambda image: sleep(0.01) or []
    assert list(scorer.video(Large())) == []
    assert max(most) <= 2


def test_faces_seen_once_are_left_out_unless_they_are_wanted():
    frames = at([(RED, 20, 20)], *[[]] * 10, *[[(GREEN, 20, 20)]] * 3)
    assert [who(track) for track in color_scorer().video(frames)] == ["g"]
    assert [who(track) for track in color_scorer().video(frames, min_faces=1)] == ["r", "g"]


def test_no_face_is_no_track():
    assert list(color_scorer().video(at(*[[]] * 10))) == []
    assert list(color_scorer().video([])) == []


def test_small_faces_and_channels_of_opencv():
    frames = at(*[[(RED, 20, 20)]] * 4)
    assert list(color_scorer(min_face_size=60).video(frames)) == []
    (track,) = color_scorer().video([(time, pixels[..., ::-1]) for time, pixels in frames], color="BGR")
    assert who(track) == "r"


def test_options_that_make_no_sense_are_errors():
    scorer = color_scorer()
    for options, message in (
        ({"fps": 0}, "fps must be above 0"),
        ({"best": 0}, "best must be at least 1"),
        ({"min_faces": 0}, "min_faces must be at least 1"),
        ({"join_seconds": -1}, "join_seconds must be 0 or more"),
    ):
        with pytest.raises(Error, match=message):
            list(scorer.video([], **options))
    with pytest.raises(ModelError, match="faces in videos have to be found"):
        list(Scorer(scorer.quality, scorer.recognizer).video([]))


def test_unsure_detections_continue_tracks():
    # A detector that is unsure on the right side of the image.
    detector = ColorDetector(lambda left: 0.9 if left < 100 else 0.4)
    frames = at(*[[(RED, 20 + 8 * step, 20)] for step in range(20)], *[[]] * 10, *[[(GREEN, 150, 20)]] * 4)
    (track,) = color_scorer(detector).video(frames)
    assert (who(track), track.faces) == ("r", 20)


def track(embeddings, start, percentiles):
    builder = TrackBuilder()
    for at, (embedding, percentile) in enumerate(zip(embeddings, percentiles, strict=True)):
        row = Row("clip.mp4", face=0, percentile=percentile, quality=percentile)
        builder.add(int(start), start + at / 10, Face(row, None, embedding.astype(np.float32)), most=1)
    return builder


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_tracks_are_joined_by_the_mean_cosine_of_their_faces():
    random = np.random.default_rng(0)
    center = random.normal(size=32)
    faces = unit(center + 1.2 * random.normal(size=(8, 32)))
    percentiles = [80.0, 3.0, 15.0, 60.0]
    one, other = track(faces[:4], 0, percentiles), track(faces[4:], 5, percentiles)
    weights = face_weights(percentiles)
    cosine = float(np.average(faces[:4] @ faces[4:].T, weights=np.outer(weights, weights)))
    assert cosine < 0.6 * float(unit(weights @ faces[:4][None])[0] @ unit(weights @ faces[4:][None])[0])
    assert joined_best([one], other, cosine - 1e-6) is one
    assert joined_best([one], other, cosine + 1e-6) is None


def test_a_joined_track_has_the_mean_of_all_faces():
    faces = unit(np.random.default_rng(1).normal(size=(4, 32)))
    whole = track(faces, 0, [80.0, 3.0, 15.0, 60.0])
    first, second = track(faces[:2], 0, [80.0, 3.0]), track(faces[2:], 0.2, [15.0, 60.0])
    first.join(second, 1)
    assert first.mean == pytest.approx(whole.mean, abs=1e-6)
