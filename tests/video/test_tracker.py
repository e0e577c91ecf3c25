"""Boxes to tracks: association, and the motion that it predicts."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from facerts.video.tracker import BoxMotion, SeenBox, Tracker, best_pairs, enlarged_iou
from tests.detectors import iou

ANNA, BEN = np.eye(2, dtype=np.float32)


def box(left, top=0.0, side=40.0):
    return np.array([left, top, left + side, top + side])


def seen(left, top=0.0, score=0.9, who=None):
    return SeenBox(box(left, top), score, who)


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=st.floats(0, 1)))
def test_pairs_have_the_greatest_sum(shared):
    minimum = 0.2
    pairs = best_pairs(shared, minimum)
    assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs)
    assert all(shared[pair] >= minimum for pair in pairs)
    worth = np.where(shared >= minimum, shared, 0)
    wide = worth if worth.shape[0] <= worth.shape[1] else worth.T
    rows = range(wide.shape[0])
    greatest = max(
        sum(wide[row, column] for row, column in zip(rows, columns, strict=True))
        for columns in permutations(range(wide.shape[1]), len(rows))
    )
    assert sum(shared[pair] for pair in pairs) == pytest.approx(greatest)


def test_boxes_are_compared_as_if_they_were_larger():
    first, second = np.array([box(0), box(10)]), np.array([box(0), box(45, 5), box(500)])
    grown = [
        [[left - 12, top - 12, right + 12, bottom + 12] for left, top, right, bottom in some]
        for some in (first, second)
    ]
    expected = [[iou(one, other) for other in grown[1]] for one in grown[0]]
    assert enlarged_iou(first, second) == pytest.approx(np.array(expected))
    assert enlarged_iou(first, second)[0, 1] > 0
    assert iou(first[0], second[1]) == 0


def test_steady_motion_is_predicted_whatever_the_times_between_frames():
    times = np.cumsum(np.random.default_rng(0).uniform(0.02, 0.3, 60))
    motion, before = BoxMotion.of(box(100 * times[0])), times[0]
    for time in times[1:]:
        motion.predict(time - before)
        motion.update(box(100 * time))
        before = time
    motion.predict(0.5)
    assert motion.box == pytest.approx(box(100 * (before + 0.5)), abs=2)


def test_two_short_predictions_are_one_long_one():
    long, short = (BoxMotion.of(box(0)) for _ in range(2))
    for motion in (long, short):
        motion.predict(0.1)
        motion.update(box(10))
    long.predict(0.4)
    short.predict(0.2)
    short.predict(0.2)
    assert short.mean == pytest.approx(long.mean)


def test_an_update_is_the_textbooks():
    motion = BoxMotion.of(box(0, 0, 50))
    motion.predict(0.2)
    mean, covariance = motion.mean.copy(), motion.covariance.copy()
    motion.update(box(6, 2, 48))
    # Information form: precisions add, and means are weighted by them.
    measured = np.array([30.0, 26.0, 1.0, 48.0])
    noise = np.diag(np.square([mean[3] / 20, mean[3] / 20, 0.1, mean[3] / 20]))
    observe = np.eye(4, 8)
    precision = np.linalg.inv(covariance) + observe.T @ np.linalg.inv(noise) @ observe
    expected = np.linalg.solve(
        precision, np.linalg.inv(covariance) @ mean + observe.T @ np.linalg.inv(noise) @ measured
    )
    assert motion.mean == pytest.approx(expected, rel=1e-6)
    assert motion.covariance == pytest.approx(np.linalg.inv(precision), rel=1e-6, abs=1e-9)


def test_two_people_who_pass_each_other_keep_their_tracks():
    tracker, numbers = Tracker(), []
    for step in range(21):
        numbers.append(tracker.update(step / 5, [seen(10 * step, 0), seen(200 - 10 * step, 30)])[0])
    assert numbers == [[0, 1]] * 21


def test_those_who_cross_on_one_line_are_told_apart_by_their_faces():
    tracker, numbers = Tracker(min_cosine=0.5), []
    for step in range(21):
        faces = [seen(10 * step, 0, who=ANNA), seen(200 - 10 * step, 0, who=BEN)]
        order = [1, 0] if step % 2 else [0, 1]
        found, _ = tracker.update(step / 5, [faces[at] for at in order])
        numbers.append([found[order.index(at)] for at in (0, 1)])
    assert numbers == [[0, 1]] * 21


def test_after_a_cut_another_face_at_the_same_place_is_another_track():
    tracker = Tracker(min_cosine=0.5)
    assert tracker.update(0.0, [seen(0, who=ANNA)])[0] == [0]
    assert tracker.update(0.2, [seen(0, who=BEN)])[0] == [1]
    # A face too poor to compare goes by its place, and the face before it is remembered.
    assert tracker.update(0.4, [seen(2)])[0] in ([0], [1])
    assert tracker.update(0.6, [seen(2, who=ANNA), seen(4, who=BEN)])[0] == [0, 1]
    assert Tracker().update(0.0, [seen(0, who=ANNA)])[0] == [0]


def test_unsure_faces_continue_tracks_but_begin_none():
    tracker = Tracker()
    assert tracker.update(0.0, [seen(0, score=0.4), seen(200, score=0.9)])[0] == [None, 0]
    assert tracker.update(0.2, [seen(200, score=0.4), seen(0, score=0.59)])[0] == [0, None]
    # It must be near: a sure one here would continue the track.
    assert tracker.update(0.4, [seen(232, score=0.4)])[0] == [None]
    assert tracker.update(0.6, [seen(226, score=0.6)])[0] == [0]


def test_an_unsure_face_continues_only_what_was_seen_in_the_frame_before():
    tracker = Tracker()
    assert tracker.update(0.0, [seen(0)])[0] == [0]
    assert tracker.update(0.2, [])[0] == []
    assert tracker.update(0.4, [seen(0, score=0.5)])[0] == [None]
    assert tracker.update(0.6, [seen(0)])[0] == [0]


def test_a_face_that_is_hidden_for_a_moment_keeps_its_track_and_one_that_is_gone_ends():
    tracker = Tracker(max_gap=1.0)
    assert tracker.update(0.0, [seen(0)]) == ([0], [])
    assert tracker.update(0.2, []) == ([], [])
    assert tracker.update(0.8, [seen(4)]) == ([0], [])
    assert tracker.update(1.9, [seen(4)]) == ([1], [0])
