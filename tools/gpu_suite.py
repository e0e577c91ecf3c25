"""Everything that a GPU can tell about training, in one command that ends in time and goes on where it stopped.

    python tools/gpu_suite.py --budget 25m --out out/gpu

The items run by priority, each in a process of its own: what the machine can do; whether losses, weights and scores
are the same on GPU and CPU; whether a step waits for the host; speed and memory of training steps by network, batch and
number of identities; a run that is resumed; two processes; reading images. Those whose networks are compiled first, the
slowest, come last but for IResNet-100. After each, OUT has suite.json and summary.md. The same command again runs the
items that did not fit, failed, or were measured with other code.

An item that needs a package that is not installed says so, and the others run. With --rehearse all run with tiny sizes
on the CPU, to see that they work; their numbers mean nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

TOOLS = Path(__file__).resolve().parent
# An item with a compiled IResNet-50 took more than 168 s beside an H100 and 16 cores.
COMPILED_S = 200.0
SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}


class Item(NamedTuple):
    """A measurement: a script of this folder and its arguments, in a rehearsal others.

    It is not started with less time than ``minimum_s``.
    """

    name: str
    command: list[str]
    rehearsal: list[str]
    minimum_s: float = 20.0


class Goal(NamedTuple):
    """What a value should be in the results of all items whose names start with a text."""

    text: str
    items: str
    value: Callable[[Any], float]
    reached: Callable[[float], bool]
    form: str


GOALS = [
    Goal(
        "losses as on the CPU to 1e-5 in float32",
        "same as on the CPU",
        lambda result: max(method["loss"] for method in result.values()),
        lambda value: value <= 1e-5,
        "{:.1e}",
    ),
    Goal(
        "gradients as far from the CPU's as rounding makes them there, or ten times as far",
        "same as on the CPU",
        lambda result: max(method["weights"] / method["rounding"] for method in result.values()),
        lambda value: value <= 10,
        "{:.1f} times",
    ),
    Goal(
        "at most one wait for the device in ten steps",
        "waits",
        lambda result: max(result.values()),
        lambda value: value <= 1,
        "{:.1f}",
    ),
    Goal(
        "at least 1.5 times the speed of the plain loop",
        "plain loop",
        lambda result: 1 / result["ratio"]["median"],
        lambda value: value >= 1.5,
        "{:.2f} times",
    ),
    Goal(
        "a step of RTS within 2% of one of ArcFace",
        "ArcFace",
        lambda result: result["ratio"]["median"],
        lambda value: value <= 1.02,
        "{:.3f} of the time",
    ),
    Goal(
        "losses after a resume as far from a run's as those of a second run, or ten times as far or 1e-5",
        "resume",
        lambda result: result["with a resume"] / max(result["two runs"], 1e-6),
        lambda value: value <= 10,
        "{:.1f} times",
    ),
    Goal(
        "scores by ONNX Runtime as on the CPU: 1 - cosine, and quality, to 0.001",
        "ONNX Runtime",
        lambda result: max(result["1 - smallest cosine"], result["largest difference of quality"]),
        lambda value: value <= 1e-3,
        "{:.1e}",
    ),
    Goal(
        "2,000,000 identities, exact, in at most 10.4 GB",
        "classes, 2,000,000",
        lambda result: (result["rows"][0]["mib"] + result["rows"][0]["base_mib"]) * 2**20 / 1e9,
        lambda value: value <= 10.4,
        "{:.2f} GB",
    ),
    Goal(
        "at least 45% of the card's matrix product in bf16 with IResNet-100, compiled",
        "not compiled, iresnet100",
        lambda result: result["learners"][0]["share_of_product"],
        lambda value: value >= 0.45,
        "{:.1%}",
    ),
]


def items() -> Iterator[Item]:
    """The items, the most important first."""

    def own(name: str, minimum_s: float = 20.0) -> Item:
        command = ["gpu_items.py", name]
        return Item(name, command, [*command, "--rehearse"], minimum_s)

    def steps(against: str, network: str, batch: int, identities: int, compiled: bool = True) -> Item:
        other = {"plain loop": "plain", "ArcFace": "casia_arcface", "not compiled": "casia_rts"}[against]
        common = ["bench_train.py", "--recipe", "casia_rts", "--against", other]
        compile_ = ["--change"] * (other == "casia_rts") + [f"compute.compile={str(compiled).lower()}"]
        return Item(
            f"{against}, {network}, batch {batch:,}, {identities:,} identities{'' if compiled else ', not compiled'}",
            [
                *common, "--identities", str(identities), "--steps", "40", *compile_,
                "compute.device=cuda", f"backbone.name={network}", f"optim.batch_size={batch}",
            ],
            [
                *common, "--identities", "64", "--steps", "2", "compute.device=cpu", "compute.threads=1",
                "backbone.name=mobilefacenet", "backbone.width=0.125", "backbone.embedding_size=16",
                "optim.batch_size=4",
            ],
            COMPILED_S if compiled else 30.0,
        )  # fmt: skip

    def classes(identities: int) -> Item:
        ours = ["--momentum", "0.9", "--implementations", "in chunks", "a tenth in chunks"]
        command = ["bench_scale.py", "classes", str(identities), *ours, "B x C", "--device", "cuda", "--steps", "10"]
        tiny = ["bench_scale.py", "classes", "64", *ours, "--size", "16", "--batch", "4", "--steps", "1"]
        return Item(f"classes, {identities:,} identities", command, tiny)

    yield own("machine")
    yield own("same as on the CPU", 60.0)
    yield own("waits")
    yield classes(2_000_000)
    yield steps("ArcFace", "iresnet100", 256, 10_000, compiled=False)
    yield steps("not compiled", "iresnet100", 256, 10_000)
    yield steps("plain loop", "iresnet50", 128, 10_000, compiled=False)
    yield own("resume", 60.0)
    yield own("first steps", 60.0)
    yield own("ONNX Runtime", 30.0)
    for identities in (10_000, 181_000, 1_000_000):
        yield classes(identities)
    yield own("two processes", 60.0)
    cores = os.cpu_count() or 1
    workers = sorted({1, max(1, cores // 4), max(1, cores // 2), cores})
    yield Item(
        "reading images",
        ["bench.py", "reading", "--processes", str(cores), "--workers", *map(str, workers), "--rounds", "3"],
        ["bench.py", "reading", "--processes", "1", "--workers", "0", "--rounds", "1", "--images", "256"],
        60.0,
    )
    yield steps("ArcFace", "iresnet50", 128, 10_000)
    yield steps("plain loop", "iresnet50", 128, 10_000)
    yield steps("plain loop", "iresnet50", 512, 181_000)
    yield steps("ArcFace", "iresnet50", 512, 181_000)
    sizes = ((256, 10_000), (1024, 10_000), (128, 1_000_000), (128, 2_000_000), (1024, 181_000))
    for batch, identities in sizes:
        yield steps("ArcFace", "iresnet50", batch, identities)


def main() -> None:
    options = read_options()
    deadline = time.monotonic() + options.budget
    planned = [item for item in items() if item.name.startswith(tuple(options.only))]
    if options.rehearse:
        # Items that differ in their sizes only are one rehearsal.
        planned = list({tuple(item.rehearsal): item for item in reversed(planned)}.values())[::-1]
    options.out.mkdir(parents=True, exist_ok=True)
    suite = read_suite(options.out / "suite.json", options.rehearse)
    for number, item in enumerate(planned, 1):
        before = suite["items"].get(item.name, {})
        print(f"[{number}/{len(planned)}] {item.name}: ", end="", flush=True)
        if before.get("status") == "done" and before["code"] == suite["code"]:
            print("done before")
            continue
        outcome = measured(item, options.rehearse, deadline - time.monotonic())
        suite["items"][item.name] = {**outcome, "code": suite["code"]}
        print(outcome["status"], f"in {outcome['seconds']:.0f} s" if "seconds" in outcome else "", flush=True)
        write(options.out / "suite.json", json.dumps(suite, indent=1))
        write(options.out / "summary.md", summary(suite))
    print(options.out / "summary.md")
    sys.exit(1 if any(item["status"] == "failed" for item in suite["items"].values()) else 0)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--budget", type=duration, required=True, help="Time for everything, such as 25m or 1h.")
    parser.add_argument("--out", type=Path, required=True, help="Folder for suite.json and summary.md.")
    parser.add_argument("--rehearse", action="store_true", help="Tiny sizes on the CPU.")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="PREFIX", help="Only items whose names start like this."
    )
    options = parser.parse_args()
    names = [item.name for item in items()]
    for prefix in options.only:
        if not any(name.startswith(prefix) for name in names):
            parser.error(f"--only {prefix!r}: no item's name starts like this; there are: {'; '.join(names)}")
    return options


def duration(text: str) -> float:
    """Seconds of "25m", "1.5h" or "90s". Not that of facerts, which this script runs without."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([hms])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90s, 25m or 1.5h")
    return float(match[1]) * SECONDS[match[2]]


def read_suite(path: Path, rehearsal: bool) -> dict[str, Any]:
    """The results so far; none if they are of a rehearsal and this is none, or the reverse."""
    suite = json.loads(path.read_text()) if path.exists() else {}
    if suite.get("rehearsal") != rehearsal:
        suite = {"rehearsal": rehearsal, "items": {}}
    return {**suite, "code": code_version()}


def code_version() -> str:
    """The commit, and whether files differ from it; empty without git."""
    describe = ["git", "-C", str(TOOLS), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(describe, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def measured(item: Item, rehearse: bool, limit_s: float) -> dict[str, Any]:
    """Status, duration, output and result of an item."""
    if limit_s < item.minimum_s:
        return {"status": "did not fit"}
    script, *arguments = item.rehearsal if rehearse else item.command
    path = os.pathsep.join([str(TOOLS.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        command = [sys.executable, str(TOOLS / script), *arguments, "--json", str(file)]
        started = time.monotonic()
        try:
            process = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=limit_s,
                env={**os.environ, "PYTHONPATH": path},
                check=False,
            )
            output, status = process.stdout, process.returncode
        except subprocess.TimeoutExpired as late:
            output, status = late.stdout or b"", None
        text = output.decode(errors="replace")
        outcome = {"seconds": time.monotonic() - started, "output": text}
        if status is None:
            return {"status": "did not fit", **outcome}
        if missing := re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", text):
            return {"status": "missing", "missing": missing[1], **outcome}
        if status or not file.exists():
            return {"status": "failed", "exit_status": status, **outcome}
        result = json.loads(file.read_text())
    needs = {"missing": result["missing"]} if "missing" in result else {}
    return {"status": "missing" if needs else "done", **needs, **outcome, "result": result}


def write(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text)
    part.replace(path)


# The summary.


def summary(suite: dict[str, Any]) -> str:
    """The results as a page of Markdown."""
    results = done(suite)
    steps = {name: result for name, result in results.items() if "ratio" in result}
    rows = [row for result in results.values() for row in result.get("rows", ())]
    sections = {} if suite["rehearsal"] else {"goals": goal_table(results)}
    if steps:
        sections["training steps"] = step_table(steps)
    if rows:
        sections["softmax over all identities"] = class_table(rows)
    for name, result in results.items():
        if "ratio" not in result and "rows" not in result:
            sections[name] = value_table(result)
    sections["items"] = table(["item", "", "seconds"], [item_row(*pair) for pair in suite["items"].items()])
    titled = [[f"## {name[:1].upper()}{name[1:]}", "", *section, ""] for name, section in sections.items()]
    rehearsed = "A rehearsal with tiny sizes on a CPU: the numbers mean nothing. " * suite["rehearsal"]
    origin = f"{rehearsed}Code: {suite['code'] or 'unknown'}."
    return "\n".join(["# GPU suite", "", origin, "", *itertools.chain(*titled)])


def done(suite: dict[str, Any]) -> dict[str, Any]:
    return {name: item["result"] for name, item in suite["items"].items() if item["status"] == "done"}


def goal_table(results: dict[str, Any]) -> list[str]:
    rows = []
    for goal in GOALS:
        names = [name for name in results if name.startswith(goal.items)]
        for name in names:
            value = goal.value(results[name])
            rows.append([goal.text, name, goal.form.format(value), "yes" if goal.reached(value) else "no"])
        if not names:
            rows.append([goal.text, "", "not measured", ""])
    return table(["goal", "measured in", "value", "reached"], rows)


def step_table(steps: dict[str, Any]) -> list[str]:
    rows = []
    for name, result in steps.items():
        ours, other = result["learners"]
        low, high = result["ratio"]["quartiles"]
        rates = [f"{learner['images_per_s']:,.0f}" for learner in (ours, other)]
        memory = [f"{learner['mib']:,.0f}" for learner in (ours, other)]
        ratio = f"{result['ratio']['median']:.3f} ({low:.3f} to {high:.3f})"
        rows.append([name, *rates, ratio, *memory, f"{ours['share_of_product']:.1%}"])
    header = ["RTS against", "images/s", "of the other", "time / the other's (quartiles)"]
    return table([*header, "MiB", "of the other", "of the matrix product"], rows)


def class_table(rows: list[dict[str, Any]]) -> list[str]:
    cells = []
    for row in rows:
        gb = (row["mib"] + row["base_mib"]) * 2**20 / 1e9
        cells.append([f"{row['identities']:,}", row["implementation"], f"{gb:.2f}", f"{row['ms']:,.1f}"])
    return table(["identities", "implementation", "GB in all", "ms per step"], cells)


def value_table(result: dict[str, Any]) -> list[str]:
    def shown(value: Any) -> str:
        if isinstance(value, float):
            return f"{value:.4g}"
        if isinstance(value, dict):
            return ", ".join(f"{name} {shown(entry)}" for name, entry in value.items())
        return ", ".join(map(shown, value)) if isinstance(value, list) else str(value)

    return table(["", ""], [[name, shown(value)] for name, value in result.items()])


def item_row(name: str, item: dict[str, Any]) -> list[str]:
    status = item["status"]
    if status == "missing":
        status = f"needs {item['missing']}"
    elif status == "failed":
        last = item["output"].strip().splitlines()[-1:] or [""]
        status = f"failed: {last[0][:200]}".replace("|", "\\|")
    return [name, status, f"{item['seconds']:.0f}" if "seconds" in item else ""]


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows]]


if __name__ == "__main__":
    main()
