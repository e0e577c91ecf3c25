"""Scripts of tools/ that measure, on tiny inputs: each runs and prints its numbers, which mean nothing."""

import re
import shlex

import numpy as np
import pytest

from tests.browser import CHROMIUM, missing
from tests.color_people import walk, write_clip
from tests.detectors import write_yunet
from tests.foreign import write_description, write_embedder
from tests.scripts import TOOLS, load_script, run_script

FAST = "facerts-small-noteacher"
# The script's arguments, and what it prints; what is in braces is replaced.
SCRIPTS = {
    "bench embed": ("{model} facerts-small --batch 1 --rounds 2", r"facerts-small: [\d.]+ .* ms a crop, .* of foreign"),
    "bench_scoring crops": ("--crops 4 --rounds 1", r"facerts score / ONNX Runtime alone: [\d.]+"),
}  # fmt: skip
SLOW = {
    "bench reading": ("--processes 1 --workers 0 --rounds 1 --images 256", r"read and decode, random.* / decode, 1"),
    "bench evaluate": ("{model} --rounds 1", r"whole / bare: [\d.]+ \("),
    "bench detect": (
        "{faces} --detector {yunet} {yunet}:once --side 64",
        r"yunet.onnx:once: \d+ faces, .* of yunet.onnx's\n .* in the mirror\n .* from those of yunet.onnx\n",
    ),
    "bench video": ("{clip} --minutes 0.05 --detector {yunet}", r"\| 0.05, 240 x 120 \| \d+ \|"),
    "bench_scale people": ("500 1000", r"time grows with the power -?[\d.]+"),
    "bench_scale metrics": ("--quick --rounds 1", r"roc / scikit-learn, pairs/s: [\d.]+ \("),
    "bench_scale classes": (
        "64 --size 16 --batch 4 --steps 1 --implementations 'in chunks' 'a tenth of B x C'",
        r"64 in chunks .* loss [\d.]+\n +64 a tenth of B x C .* loss [\d.]+",
    ),
    "bench_scoring photos": (
        "{photo} --yunet {yunet} --scrfd {yunet} --model {model} --rounds 1", r"one at a time.*: a face in"
    ),
    "bench_scoring memory": ("20", r"500 crops: .* peak\nrows joined: "),
    "bench_serve": (f"--model {FAST} --clients 1 --rounds 1 --seconds 0.5", r"\| 1 \| `--set batch_size=8` \| [\d.]+"),
    "bench_train": (
        "--identities 16 --steps 2 --images 100 --price 2 --against plain compute.device=cpu compute.compile=false "
        "optim.batch_size=4 backbone.name=mobilefacenet backbone.width=0.125 backbone.embedding_size=16",
        r"estimate: .* at 2 per hour",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*SCRIPTS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_script_runs_on_tiny_input(name, drawn_faces, tmp_path):
    arguments, printed = (SCRIPTS | SLOW)[name]
    model = write_embedder(tmp_path / "foreign.onnx", quality=True)
    write_description(model, name="foreign", quality="output:bright")
    clip = write_clip(tmp_path / "clip.mp4", walk(2)) if "{clip}" in arguments else None
    yunet = write_yunet(tmp_path / "yunet.onnx")
    photo = min(drawn_faces.rglob("*.jpg"))
    filled = arguments.format(model=model, faces=drawn_faces, clip=clip, yunet=yunet, photo=photo)
    script, *benchmark = name.split()
    done = run_script(TOOLS / f"{script}.py", *benchmark, *shlex.split(filled))
    assert done.returncode == 0, done.stderr
    assert re.search(printed, done.stdout), done.stdout


def test_galleries_are_measured_in_memory_and_in_a_database(postgres):
    address = postgres.address(gallery="bench")
    arguments = ["--people", "2000", "--size", "32", "--probes", "40", "--ef-search", "200"]
    done = run_script(TOOLS / "bench_scale.py", "gallery", address, *arguments)
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")][2:]
    assert [row[0] for row in rows] == [
        "| NumPy, in memory",
        "| PostgreSQL, exact",
        "| PostgreSQL, ef_search 200",
    ]
    assert [float(row[3]) for row in rows[:2]] == [1, 1]
    assert float(rows[2][3]) >= 0.9
    assert re.search(r"rows [\d.]+ s; index [\d.]+ s; threshold [\d.]+ s, then", done.stdout)
    assert re.search(r"people_template_idx [\d,]+ MiB", done.stdout)


@pytest.mark.browser
@pytest.mark.slow
def test_the_browser_is_timed_beside_python():
    if CHROMIUM is None:
        missing("no Chromium is installed (Debian: apt install chromium)")
    done = run_script(TOOLS / "bench.py", "web", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    assert re.search(r"first load: [\d.]+ .* KB compressed\ncrop: facerts-quality, Python, 1 thread", done.stdout)
    assert len(re.findall(r"ms, [\d.]+ of Python", done.stdout)) == 12


def test_bcubed_is_that_of_its_definition():
    random = np.random.default_rng(0)
    person, group = random.integers(0, 9, 60), random.integers(-1, 12, 60)
    own = np.where(group < 0, 100 + np.arange(60), group)
    same_person, same_group = person[:, None] == person, own[:, None] == own
    both = (same_person & same_group).sum(axis=1)
    expected = (both / same_group.sum(axis=1)).mean(), (both / same_person.sum(axis=1)).mean()
    assert load_script("bench_scale", TOOLS).bcubed(person, group) == pytest.approx(expected)


def test_candidates_take_turns_and_ratios_are_round_by_round():
    measuring = load_script("measuring", TOOLS)
    turns: list[str] = []
    taken = measuring.alternate({name: lambda name=name: turns.append(name) or len(turns) for name in "ab"}, 2)
    assert turns == ["a", "b", "b", "a", "a", "b"]
    assert taken == {"a": [4, 5], "b": [3, 6]}
    assert measuring.ratios(taken["a"], taken["b"]) == [4 / 3, 5 / 6]
    assert measuring.spread([3.0, 1.0, 2.5], ".1f") == "2.5 (1.0 to 3.0)"
