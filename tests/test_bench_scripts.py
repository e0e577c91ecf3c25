"""Scripts of tools/ that measure, on tiny inputs: each runs and prints its numbers, which mean nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.browser import CHROMIUM, missing
from tests.color_people import walk, write_clip
from tests.detectors import write_yunet
from tests.foreign import write_description, write_embedder
from tests.scripts import run_script

TOOLS = Path(__file__).parents[1] / "tools"
FAST = "facerts-small-noteacher"
# The script's arguments, and what it prints; what is in braces is replaced.
SCRIPTS = {
    "bench_embed": ("{model} facerts-small --batch 1 --rounds 2", r"facerts-small: [\d.]+ .* ms a crop, .* of foreign"),
    "way": ("{photo} --detector none", r"scorer.score: \d+ functions in \d+ files of [\d,]+ lines\nfacerts score: "),
    "bench_scoring": ("--crops 4 --rounds 1", r"facerts score / ONNX Runtime alone: [\d.]+"),
}  # fmt: skip
SLOW = {
    "bench_data": ("--processes 1 --workers 0 --rounds 1 --images 256", r"read and decode, random.* / decode, 1"),
    "bench_evaluate": ("--model {model} --rounds 1", r"whole / bare: [\d.]+ \("),
    "bench_people": ("--faces 500 1000", r"time grows with the power -?[\d.]+"),
    "bench_metrics": ("--quick --rounds 1", r"roc / scikit-learn, pairs/s: [\d.]+ \("),
    "bench_video": ("{clip} --minutes 0.05 --detector {yunet}", r"\| 0:00:03, 240 x 120 \| [\d,]+ \|"),
    "bench_serve": (f"--model {FAST} --clients 1 --rounds 1 --seconds 0.5", r"\| 1 \| `--set batch_size=8` \| [\d.]+"),
    "bench_classes": (
        "--identities 64 --size 16 --batch 4 --device cpu --steps 1 --implementations 'in chunks'",
        r"64 in chunks .* loss [\d.]+",
    ),
    "attack_serve": (
        f"--model {FAST} --options '--set detector=none' --connections 2 --seconds 3 --only bombs 'hostile headers'",
        r"\| bombs \| \d+×[\s\S]*The service is alive: 200",
    ),
    "bench_train": (
        "--identities 16 --steps 2 --images 100 --price 2 compute.device=cpu compute.compile=false "
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
    yunet = write_yunet(tmp_path / "yunet.onnx") if "{yunet}" in arguments else None
    filled = arguments.format(
        model=model, faces=drawn_faces, clip=clip, yunet=yunet, photo=min(drawn_faces.rglob("*.jpg"))
    )
    words = re.findall(r"'[^']*'|\S+", filled)
    done = run_script(TOOLS / f"{name}.py", *(word.strip("'") for word in words))
    assert done.returncode == 0, done.stderr
    assert re.search(printed, done.stdout), done.stdout


def test_galleries_are_measured_in_memory_and_in_a_database(postgres):
    address = postgres.address(gallery="bench")
    arguments = ["--people", "2000", "--size", "32", "--probes", "40", "--ef-search", "200"]
    done = run_script(TOOLS / "bench_gallery.py", address, *arguments)
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
    done = run_script(TOOLS / "bench_web.py", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    assert re.search(r"first load: [\d.]+ .* KB compressed\ncrop: facerts-quality, Python, 1 thread", done.stdout)
    assert len(re.findall(r"ms, [\d.]+ of Python", done.stdout)) == 12


def test_candidates_take_turns_and_ratios_are_round_by_round(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    import bench

    turns: list[str] = []
    taken = bench.alternate({name: lambda name=name: turns.append(name) or len(turns) for name in "ab"}, 2)
    assert turns == ["a", "b", "b", "a", "a", "b"]
    assert taken == {"a": [4, 5], "b": [3, 6]}
    assert bench.ratios(taken["a"], taken["b"]) == [4 / 3, 5 / 6]
    assert bench.spread([3.0, 1.0, 2.5], ".1f") == "2.5 (1.0 to 3.0)"
