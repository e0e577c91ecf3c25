"""Wrong enrollments are found, by kind, and correct ones are left alone."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from facerts.errors import DataError
from facerts.galleries import Finding, Gallery, Limits, Listed, Reason, check_images, read_findings
from facerts.galleries.check import stranger_spread
from facerts.scoring import open_sink
from tests.command import run
from tests.galleries.test_gallery import SIZE, draw, unit


def test_each_kind_of_fault_is_found_and_nothing_else():
    images = draw(60, 4, spread=0.5)
    assert check_images(images) == []
    random = np.random.default_rng(5)
    strange = unit(random.normal(size=(3, SIZE)))
    images.embedding[[0, 41]] = strange[:2]  # p000/0, p010/1
    images.percentile[20] = 0.4  # p005/0
    images.percentile[30], images.embedding[30] = 0.2, strange[2]  # p007/2
    images.embedding[81] = images.embedding[48]  # p020/1 is p012/0
    names = images.person.copy()
    names[[100, 101]] = "q025"  # half of p025
    found = check_images(replace(images, person=names))
    by_reason = {reason: {(entry.person, entry.path) for entry in found if entry.reason is reason} for reason in Reason}
    assert by_reason == {
        Reason.ANOTHER_PERSON: {("p000", "p000/0.jpg"), ("p010", "p010/1.jpg"), ("p020", "p020/1.jpg")},
        Reason.POOR: {("p005", "p005/0.jpg")},
        Reason.NOT_A_FACE: {("p007", "p007/2.jpg")},
        Reason.SAME_PERSON: {("q025", "")},
        Reason.SAME_IMAGE: {("p020", "p020/1.jpg")},
    }
    (twin,) = (entry for entry in found if entry.reason is Reason.SAME_IMAGE)
    assert (twin.other_person, twin.other_path) == ("p012", "p012/0.jpg")
    (double,) = (entry for entry in found if entry.reason is Reason.SAME_PERSON)
    assert double.other_person == "p025"
    (poor,) = (entry for entry in found if entry.reason is Reason.POOR)
    assert poor.false_alarms == pytest.approx(0.004)
    (wrong,) = (entry for entry in found if entry.path == "p010/1.jpg")
    rest = images.embedding[[40, 42, 43]].T @ np.clip(images.percentile[[40, 42, 43]] / 30, 0.01, 1)
    assert wrong.own_cosine == pytest.approx(float(unit(rest) @ strange[1]), abs=1e-3)
    assert wrong.false_alarms < 0.02


def test_limits_are_those_that_were_given():
    images = draw(60, 4, spread=0.5)
    images.percentile[:] = np.linspace(0, 100, 240)
    images.reasons[::2] = "noisy"
    found = check_images(images, Limits(percentile=5, reason_percentile=20))
    expected = (images.percentile < 5) | ((images.percentile < 20) & (np.arange(240) % 2 == 0))
    assert {entry.path for entry in found} == set(images.path[expected].tolist())


def test_reasons_make_an_image_suspicious_where_its_quality_is_low_or_unknown():
    images = draw(60, 4, spread=0.5)
    images.percentile[:8] = [50, 8, 8, 0.4, 12, np.nan, np.nan, 50]
    images.reasons[:8] = ["blurred", "blurred;noisy", "", "", "noisy", "blurred", "", "not_a_face;blurred"]
    found = {entry.path: entry for entry in check_images(images)}
    assert {path: (entry.reason, entry.reasons) for path, entry in found.items()} == {
        "p000/1.jpg": (Reason.POOR, ("blurred", "noisy")),
        "p000/3.jpg": (Reason.POOR, ()),
        "p001/1.jpg": (Reason.POOR, ("blurred",)),
        "p001/3.jpg": (Reason.NOT_A_FACE, ("not_a_face", "blurred")),
    }
    alarms = {path: entry.false_alarms for path, entry in found.items()}
    # Of clean faces, 2.2% have a reason, 3.7% of those with low quality, and none is taken for no face.
    expected = {"p000/1.jpg": 0.037 * 0.08, "p000/3.jpg": 0.004, "p001/1.jpg": 0.022, "p001/3.jpg": 0.0}
    assert alarms == pytest.approx(expected, abs=1e-4)


def test_a_persons_last_face_is_kept_but_no_other_image():
    images = draw(6, 2)
    images.percentile[:] = [10, 20, 10, 20, 10, 20, 10, 20, 10, 20, 10, 20]
    paths = images.path.tolist()
    reasons = {
        **dict.fromkeys(paths[:2], Reason.POOR),  # the better one stays
        paths[2]: Reason.ANOTHER_PERSON,
        paths[3]: Reason.NOT_A_FACE,  # the other one stays, though it is worse
        **dict.fromkeys(paths[4:6], Reason.NOT_A_FACE),  # nobody is left
        paths[6]: Reason.POOR,  # has another
        **dict.fromkeys(paths[8:10], ""),  # as people listed them
    }
    findings = [Listed(path[:4], path, reason) for path, reason in reasons.items()]
    findings += [
        Listed("p005", "", Reason.SAME_PERSON),
        *(Listed("p005", path, Reason.POOR) for path in paths[10:]),
    ]
    gallery = Gallery(images)
    assert gallery.remove(findings=findings).kept == (("p000", paths[1]), ("p001", paths[2]))
    assert gallery.read().path.tolist() == [paths[1], paths[2], paths[7]]


def test_an_image_that_is_there_twice_is_not_kept_as_the_last_one():
    gallery = Gallery(draw(2, 1))
    findings = [Listed("p000", "p000/0.jpg", reason) for reason in (Reason.SAME_IMAGE, Reason.POOR)]
    assert gallery.remove(findings=findings).kept == ()
    assert [*gallery.image_counts()] == ["p001"]


def test_how_small_a_false_alarm_rate_is_can_be_seen(capsys, tmp_path):
    images = draw(60, 4, spread=0.5)
    images.percentile[20] = 0.00042
    Gallery(tmp_path / "g.npz").replace(images)
    (found,) = check_images(images)
    assert found.false_alarms == pytest.approx(4.2e-6)
    assert run("gallery", "check", tmp_path / "g.npz") == 1
    assert " 4.2e-06 " in capsys.readouterr().out


def test_each_image_and_each_name_is_listed_once_however_often_it_is_there():
    images = draw(30, 4, spread=0.5)
    images.percentile[:] = 100
    images.embedding[[1, 2, 41]] = images.embedding[0]
    names = images.person.copy()
    names[[100, 101]], names[102] = "q025", "r025"
    found = check_images(replace(images, person=names), Limits(missed=0.999))
    assert [(entry.path, entry.other_path) for entry in found if entry.reason is Reason.SAME_IMAGE] == [
        ("p000/1.jpg", "p000/0.jpg"),
        ("p000/2.jpg", "p000/0.jpg"),
        ("p010/1.jpg", "p000/0.jpg"),
    ]
    double = {entry.person: entry.other_person for entry in found if entry.reason is Reason.SAME_PERSON}
    assert list(double) == ["r025", "p025"]  # The less often one would be wrong, the earlier.
    assert set(double.values()) <= {"q025", "p025"}


def test_one_or_two_people_are_checked_too():
    alone = draw(1, 3)
    alone.percentile[0] = 0
    alone.embedding[2] = alone.embedding[1]
    assert [entry.reason for entry in check_images(alone)] == [Reason.POOR, Reason.SAME_IMAGE]
    images = draw(2, 6, spread=0.4)
    images.percentile[:] = 100
    images.embedding[3] *= -1
    assert [entry.path for entry in check_images(images)] == ["p000/3.jpg"]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_report_names_people_and_images_whatever_they_are_called(tmp_path, suffix):
    findings = [
        Finding("=1+1", 'a, "b"/1.jpg', Reason.POOR, 0.1, reasons=("blurred", "noisy")),
        Finding("ünï", "", Reason.SAME_PERSON, 0.0, other_person="x"),
    ]
    with open_sink(tmp_path / f"check{suffix}", Finding) as put:
        for finding in findings:
            put(finding)
    assert read_findings(tmp_path / f"check{suffix}") == [
        ("=1+1", 'a, "b"/1.jpg', "poor image"),
        ("ünï", "", "same person under two names"),
    ]
    assert re.search(r'"blurred;noisy"|"blurred",\s*"noisy"', (tmp_path / f"check{suffix}").read_text())


REPORTS = {
    "a.csv": b"one,two\n1,2\n",
    "b.csv": b"\xff\xfe\x00",
    "c.jsonl": b'{"person": 1}',
    "d.jsonl": b"[1]\n",
    "e.jsonl": b"{\n",
}


@pytest.mark.parametrize("name", REPORTS)
def test_another_file_is_not_taken_for_a_report(tmp_path, name):
    (tmp_path / name).write_bytes(REPORTS[name])
    with pytest.raises(DataError, match=name):
        read_findings(tmp_path / name)


def test_a_wrong_image_hardly_counts_when_the_others_are_checked():
    images = draw(30, 6, spread=0.5)
    images.percentile[:] = 100
    images.embedding[:2] = -images.embedding[2:4]
    found = check_images(images)
    own = {entry.path: entry.own_cosine for entry in found if entry.reason is Reason.ANOTHER_PERSON}
    assert set(own) == {"p000/0.jpg", "p000/1.jpg"}
    rest = images.embedding[1:6].astype(np.float64).T @ [0.05, 1, 1, 1, 1]
    assert own["p000/0.jpg"] == pytest.approx(float(unit(rest) @ images.embedding[0]), abs=1e-4)


def test_a_wrong_image_is_found_under_the_name_of_a_person_who_is_like_everybody():
    images = draw(60, 4, spread=0.5)
    common = unit(np.random.default_rng(8).normal(size=SIZE))
    images.percentile[:] = 100
    images.embedding[:] = unit(images.embedding + 0.5 * common)
    images.embedding[:4] = unit(common + 0.4 * images.embedding[:4])
    stranger = unit(unit(np.random.default_rng(9).normal(size=SIZE)) + 0.5 * common)
    images.embedding[2] = stranger
    (found,) = check_images(images, Limits(same_image=0.999))
    assert (found.path, found.reason) == ("p000/2.jpg", Reason.ANOTHER_PERSON)
    # It is more like this person than most images are like a stranger.
    strangers = images.embedding[4:] @ images.templates.T
    of_others = strangers[np.arange(60)[None] != np.repeat(np.arange(1, 60), 4)[:, None]]
    assert found.own_cosine > np.quantile(of_others, 0.92)


def test_the_cosines_of_strangers_are_those_of_one_person_and_ten_of_all():
    images = draw(4, 3)
    cosines = [
        (images.embedding @ template)[images.person != person].astype(np.float64)
        for person, template in zip(images.people, images.templates, strict=True)
    ]
    pooled = np.concatenate(cosines)
    mean, spread = stranger_spread(images)
    for person, own in enumerate(cosines):
        first = (own.sum() + 10 * pooled.mean()) / (len(own) + 10)
        second = ((own**2).sum() + 10 * (pooled**2).mean()) / (len(own) + 10)
        assert mean[person] == pytest.approx(first, abs=1e-6)
        assert spread[person] == pytest.approx(math.sqrt(second - first**2), abs=1e-6)
