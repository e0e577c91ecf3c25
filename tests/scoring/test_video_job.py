"""Clips to folders of results, by the command and in Python."""

import csv
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from facerts.errors import DataError, Error
from facerts.galleries import Gallery, TrackSearch
from facerts.scoring import Face, Row
from facerts.scoring.annotate import ACCEPTED, REJECTED
from facerts.scoring.annotated_video import BoxLog, DrawnTrack, draw_tracks
from facerts.scoring.sinks import from_cell
from facerts.scoring.video_job import VideoJob, VideoTask, run_videos, video_paths
from facerts.scoring.video_tracks import TrackedFrame
from tests.color_people import RED, color_gallery, color_scorer, draw, walk, write_clip
from tests.command import refused, run


@pytest.fixture
def scorer(monkeypatch):
    """What every command loads."""
    scorer = color_scorer()
    monkeypatch.setattr("facerts.scoring.load", lambda *_, **__: scorer)
    return scorer


@pytest.fixture
def clips(tmp_path):
    """A folder of a whole clip, one that is cut off, one without a face, one that is no video, and another file."""
    folder = tmp_path / "clips"
    folder.mkdir()
    write_clip(folder / "a.mp4", walk(4))
    data = write_clip(tmp_path / "whole.mkv", walk(8)).read_bytes()
    (folder / "b.mkv").write_bytes(data[: len(data) // 2])
    write_clip(folder / "c.mp4", [(number / 25, draw([])) for number in range(50)])
    (folder / "d.mp4").write_bytes(b"not a video")
    (folder / "notes.txt").write_text("not a clip")
    return folder


def decoded(path):
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def read_table(path):
    with path.open(newline="") as file:
        return [{name: from_cell(cell) for name, cell in row.items()} for row in csv.DictReader(file)]


def test_the_command_writes_tables_crops_and_templates(scorer, clips, tmp_path, capsys):
    out = tmp_path / "tracks"
    assert run("video", clips, "--out", out) == 1
    told = capsys.readouterr()
    rows = read_table(out / "tracks.csv")
    assert [Path(row["clip"]).name for row in rows] == ["a.mp4", "a.mp4", "b.mkv", "b.mkv"]
    assert [row["track"] for row in rows] == ["1", "2", "1", "2"]
    assert [float(side) for side in rows[0]["spans"].split()] == pytest.approx([0, 3.8], abs=0.01)
    for row in rows:
        for name in row["crops"].split(";"):
            assert cv2.imread(str(out / name)).shape == (112, 112, 3)
    of_clips = read_table(out / "clips.csv")
    assert [Path(row["clip"]).name for row in of_clips] == ["a.mp4", "b.mkv", "c.mp4", "d.mp4"]
    assert [row["tracks"] for row in of_clips] == ["2", "2", "0", "0"]
    assert [row["frames"] for row in of_clips][0::2] == ["20", "10"]
    whole, cut, empty, none = (row["error"] for row in of_clips)
    assert whole == empty == ""
    assert "cut off; it could be read until 0:00:0" in cut
    assert " of 0:00:08.0" in cut
    assert 2 < float(of_clips[1]["read_until"]) < 6
    assert "not a video" in none
    arrays = np.load(out / "templates.npz")
    assert arrays["templates"].shape == (4, 3)
    assert arrays["templates"].argmax(axis=1).tolist() == [0, 1, 0, 1]
    assert sorted(path.name for path in out.iterdir()) == [
        "clips.csv",
        "crops",
        "templates.npz",
        "tracks.csv",
    ]
    assert "people" in told.out
    assert "cut off" in told.err
    assert not list(tmp_path.glob(".*"))


def test_json_and_other_tables(scorer, clips, tmp_path, capsys):
    assert run("video", clips / "a.mp4", "--out", tmp_path / "one", "--json", "--table", "jsonl", "--best", 1) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["people"] == 2
    lines = [json.loads(line) for line in (tmp_path / "one" / "tracks.jsonl").read_text().splitlines()]
    assert lines == told["tracks"]
    assert [len(line["crops"]) for line in lines] == [1, 1]
    assert run("video", clips / "a.mp4", "--out", tmp_path / "two", "--table", "parquet", "--seconds", 1) == 0
    assert (tmp_path / "two" / "tracks.parquet").is_file()


def test_people_are_searched_for_in_a_gallery(scorer, clips, tmp_path, postgres, capsys):
    Gallery(tmp_path / "people.npz").replace(color_gallery())
    options = ["--gallery", tmp_path / "people.npz", "--fpir", 0.01]
    assert run("video", clips / "a.mp4", "--out", tmp_path / "tracks", *options) == 0
    rows = read_table(tmp_path / "tracks" / "tracks.csv")
    assert (rows[0]["decision"], rows[0]["person"]) == ("match", "Rosa")
    assert rows[1]["decision"] == "unknown"
    assert {row["fpir"] for row in rows} == {"0.01"}
    assert "Rosa" in capsys.readouterr().out
    address = postgres.address(gallery="of_clips")
    Gallery(address).replace(color_gallery())
    options = ["--gallery", address, "--fpir", 0.01]
    assert run("video", clips / "a.mp4", "--out", tmp_path / "again", *options) == 0
    assert read_table(tmp_path / "again" / "tracks.csv") == rows
    Gallery(tmp_path / "others.npz").replace(color_gallery("another", "d" * 64))
    assert run("video", clips / "a.mp4", "--out", tmp_path / "more", "--gallery", tmp_path / "others.npz") == 2
    assert "of the model another" in capsys.readouterr().err


def test_annotated_clips_have_every_frame_with_its_boxes(scorer, clips, tmp_path):
    out = tmp_path / "drawn"
    assert run("video", clips / "a.mp4", "--out", tmp_path / "tracks", "--annotate", out) == 0
    with av.open(str(out / "a.mp4.mp4")) as container:
        frames = list(container.decode(video=0))
    assert len(frames) == 100
    assert [float(frame.time or 0) for frame in frames] == pytest.approx(np.arange(100) / 25, abs=2e-3)
    # Small clips are enlarged so that labels can be read.
    pixels = frames[52].to_ndarray(format="rgb24").astype(int)
    assert pixels.shape == (240, 480, 3)
    green = np.abs(pixels - ACCEPTED).sum(axis=2) < 60
    assert green.sum() > 300


def test_boxes_between_two_frames_lie_between_theirs():
    first, moved, other = (
        Face(Row("", face=0, box=box, percentile=percentile))
        for box, percentile in (([0, 0, 10, 10], 50.0), ([40, 0, 50, 10], 60.0), ([5, 5, 9, 9], None))
    )
    log = BoxLog()
    log.add(TrackedFrame(0.0, [first, other], [0, None], []))
    log.add(TrackedFrame(0.4, [moved, other], [0, 1], []))
    assert list(log.at(-0.1)) == []
    ((part, box, percentile),) = log.at(0.1)
    assert (part, percentile) == (0, 50)
    assert box == pytest.approx([10, 0, 20, 10], abs=1e-4)
    assert [part for part, _, _ in log.at(0.6)] == [0, 1]
    assert list(log.at(0.4)) == [(0, [40, 0, 50, 10], 60), (1, [5, 5, 9, 9], None)]
    assert list(log.at(5)) == []


def test_tracks_are_drawn_in_the_color_of_their_quality():
    image = np.full((480, 640, 3), 90, np.uint8)
    boxes = [
        (0, [100.0, 100, 200, 200], 40.0),
        (1, [300.0, 100, 400, 200], 1.0),
        (2, [10.0, 300, 90, 380], 5.0),
    ]
    drawn = draw_tracks(image, boxes, {0: DrawnTrack(1, True, "Anna"), 1: DrawnTrack(2, False)})
    assert (drawn[150, 100] == ACCEPTED).all()
    assert (drawn[150, 300] == REJECTED).all()
    assert (drawn[290:390] == 90).all()
    assert (drawn[60:100, 100:200] != 90).any()


def test_a_killed_run_starts_its_clip_again_and_gives_what_one_without_a_break_gives(
    scorer, clips, tmp_path, monkeypatch, capsys
):
    whole, out = tmp_path / "whole", tmp_path / "tracks"
    # Tracks end, and their crops are saved, long before the last clip does.
    long = [(time, draw([(RED, 20, 20)] if time % 3 < 1 else [])) for time in np.arange(200) / 25]
    write_clip(tmp_path / "long.mkv", long)
    paths = [clips / "a.mp4", clips / "c.mp4", tmp_path / "long.mkv", "--set", "video.join_seconds=0.5"]
    assert run("video", *paths, "--out", whole, "--annotate", tmp_path / "drawn whole") == 0
    seen = []
    real = BoxLog.add

    def killed(log, frame):
        seen.append(frame.time)
        if len(seen) == 20 + 10 + 27:
            raise KeyboardInterrupt
        real(log, frame)

    monkeypatch.setattr(BoxLog, "add", killed)
    options = ["--out", out, "--annotate", tmp_path / "drawn"]
    assert run("video", *paths, *options) == 130
    saved = list((out / "crops" / "long.mkv").iterdir())
    assert saved
    saved[0].with_name("track0009_1.png").write_bytes(b"of another video that had this name")
    assert "--resume continues it" in refused(capsys, "video", *paths, *options)
    assert "continue it with --resume" in refused(capsys, "video", *paths, *options, "--overwrite")
    assert "different settings (fps)" in refused(capsys, "video", *paths, *options, "--fps", 2, "--resume")
    seen.clear()
    assert run("video", *paths, *options, "--resume") == 0
    assert seen == pytest.approx(np.arange(40) / 5)
    for name in ("tracks.csv", "clips.csv"):
        assert (out / name).read_text() == (whole / name).read_text()
    files = sorted(path.relative_to(whole) for path in whole.rglob("*.png"))
    assert files == sorted(path.relative_to(out) for path in out.rglob("*.png"))
    assert all((whole / file).read_bytes() == (out / file).read_bytes() for file in files)
    one, other = np.load(whole / "templates.npz"), np.load(out / "templates.npz")
    assert all((one[name] == other[name]).all() for name in one)
    drawn = [decoded(tmp_path / folder / "long.mkv.mp4") for folder in ("drawn", "drawn whole")]
    assert drawn[0].shape == drawn[1].shape == (200, 240, 480, 3)
    # Encoders of several threads are not exact.
    assert np.abs(drawn[0].astype(int) - drawn[1]).mean() < 1


def test_a_clip_that_has_changed_is_looked_at_again(scorer, clips, tmp_path):
    paths = [str(clips / "a.mp4"), str(clips / "c.mp4")]
    with VideoJob(tmp_path / "tracks", paths, {}) as job:
        job.begin(resume=False)
        assert len(next(iter(run_videos(scorer, job, VideoTask()))).tracks) == 2
    shutil.copy(clips / "c.mp4", clips / "a.mp4")
    with VideoJob(tmp_path / "tracks", paths, {}) as job:
        job.begin(resume=True)
        assert [len(each.tracks) for each in run_videos(scorer, job, VideoTask())] == [0, 0]
        job.finish()


def test_damaged_files_of_an_unfinished_run_are_named(scorer, clips, tmp_path):
    paths = [str(clips / "c.mp4"), str(clips / "a.mp4")]

    def damaged(name):
        (tmp_path / "tracks" / "unfinished" / name).write_text('{"broken": ')
        with VideoJob(tmp_path / "tracks", paths, {}) as job:
            return job.begin(resume=True)

    with VideoJob(tmp_path / "tracks", paths, {}) as job:
        job.begin(resume=False)
        whole = list(run_videos(scorer, job, VideoTask()))
    (problem,) = damaged("000000000.json")
    assert "000000000.json: damaged" in problem
    with VideoJob(tmp_path / "tracks", paths, {}) as job:
        assert job.begin(resume=True) == []
        assert job.finished() == {1}
        assert list(run_videos(scorer, job, VideoTask())) == whole
    with pytest.raises(DataError, match=r"job\.json: .*; delete the folder to start over"):
        damaged("job.json")


def test_a_run_that_was_stopped_in_its_first_clip_begins_anew(tmp_path):
    for fps in (5, 2):
        with VideoJob(tmp_path, ["a.mp4"], {"fps": fps}) as job:
            assert job.begin(resume=False) == []
        assert not (tmp_path / "crops").exists()
        (tmp_path / "crops" / "a.mp4").mkdir(parents=True)


def test_folders_that_are_not_empty_are_refused(scorer, clips, tmp_path, capsys):
    there = "is there already: --overwrite replaces it, --resume continues it"
    assert there in refused(capsys, "video", clips / "a.mp4", "--out", clips)
    assert "has other files" in refused(capsys, "video", clips / "a.mp4", "--out", clips, "--resume")
    assert run("video", clips / "a.mp4", "--out", tmp_path / "x", "--best", 0) == 2
    (tmp_path / "broken.mp4").write_bytes(b"no")
    assert run("video", tmp_path / "broken.mp4", "--out", tmp_path / "y") == 1
    assert "broken.mp4: " in capsys.readouterr().err


def test_finished_results_are_kept_or_replaced(scorer, clips, tmp_path, capsys):
    out = tmp_path / "tracks"
    assert run("video", clips / "a.mp4", "--out", out) == 0
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert run("video", clips / "c.mp4", "--out", out, "--resume") == 0
    assert "tracks is finished; --overwrite looks at" in " ".join(capsys.readouterr().err.split())
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    (out / "notes.txt").write_text("mine")
    assert run("video", clips / "c.mp4", "--out", out, "--overwrite", "--table", "jsonl") == 0
    assert sorted(path.name for path in out.rglob("*")) == ["clips.jsonl", "notes.txt", "tracks.jsonl"]


def test_a_name_that_is_not_valid_text_is_stored_escaped(scorer, tmp_path):
    folder, out = tmp_path / "clips", tmp_path / "out"
    folder.mkdir()
    for name in (b"a\xff.mp4", b"b.mp4"):
        write_clip(tmp_path / "clip.mp4", walk(2)).rename(folder / os.fsdecode(name))
    (folder / os.fsdecode(b"c\xff.mp4")).write_bytes(b"not a video")
    assert run("video", folder, "--out", out) == 1
    assert [Path(row["clip"]).name for row in read_table(out / "clips.csv")] == [
        "a\\udcff.mp4",
        "b.mp4",
        "c\\udcff.mp4",
    ]
    for row in read_table(out / "tracks.csv"):
        assert all((out / crop).is_file() for crop in row["crops"].split(";"))


def test_clips_are_files_folders_streams_and_cameras(clips, tmp_path):
    given = [str(clips), "rtsp://camera/1", "device:0", "missing.mp4"]
    names = [str(clips / name) for name in ("a.mp4", "b.mkv", "c.mp4", "d.mp4")]
    assert video_paths(given) == [*names, *given[1:]]
    with pytest.raises(DataError, match="given twice"):
        video_paths([str(clips), str(clips / "a.mp4")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no videos in"):
        video_paths([str(tmp_path / "empty")])


def test_clips_of_one_name_have_folders_of_their_own(tmp_path):
    job = VideoJob(tmp_path / "out", ["a/clip.mp4", "b/clip.mp4", "rtsp://camera/", ".."], {})
    assert len(set(job.names)) == 4
    assert job.names[:2] == ["clip.mp4", "clip.mp4_2"]
    assert not any("/" in name or name == ".." for name in job.names)


def test_passwords_of_streams_are_stored_and_told_nowhere(scorer, tmp_path, capsys):
    address = "http://user:secret@127.0.0.1:1"
    assert run("video", address, f"{address}/1", "--out", tmp_path / "out", "--json") == 1
    told = capsys.readouterr()
    assert "http://…@127.0.0.1:1/1" in told.out
    written = [path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    with VideoJob(tmp_path / "job", [address], {}) as job:
        job.begin(resume=False)
        written += [(job.folder / "job.json").read_text(), *job.names]
    assert "secret" not in "".join([*written, told.out, told.err])
    with pytest.raises(DataError, match="…@127"):
        video_paths([address, address])


def test_a_camera_is_not_annotated(scorer, tmp_path):
    with (
        VideoJob(tmp_path / "out", ["device:9"], {}) as job,
        pytest.raises(Error, match="cannot be read twice"),
    ):
        list(run_videos(scorer, job, VideoTask(annotate=tmp_path / "drawn")))


def test_settings_tell_galleries_apart():
    images = color_gallery()
    one, other = Gallery(images), Gallery(replace(images, person=images.person[::-1]))
    settings = [VideoTask(search=TrackSearch(each)).settings() for each in (one, other)]
    assert json.dumps(settings[0]) != json.dumps(settings[1])
    settings = [VideoTask(search=TrackSearch(one, fpir)).settings() for fpir in (0.01, 0.02)]
    assert settings[0] != settings[1]
    assert VideoTask(search=TrackSearch(Gallery(color_gallery()))).settings() == settings[0]
    assert json.dumps(VideoTask().settings())
