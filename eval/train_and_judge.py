"""Trains recipes with several seeds and settings, exports and evaluates each: comparisons and sweeps in one command.

python eval/train_and_judge.py rts=faces_small_rts arcface=faces_small_arcface --seeds 1 2 3 --out out/methods \\
    --data lfw/ --in lfw/ --out-of pets/ --corruptions val.tar
python eval/train_and_judge.py rts=casia_rts --sweep method.kl_weight=0.1,1,10,30 --data lfw.bin --out out/table4

A run has the folder OUT/LABEL_seedN with recipe, log, checkpoint, model and results; `facerts compare`,
`facerts report` and the scripts beside this one take it. `commands.log` there has what every command said.

The same command again goes on where it was interrupted: finished steps are not done again as long as their command and
the file that they read are the same, a training that was cut goes on from its checkpoint. A run that fails is told of
and the others go on; the status is 1 then.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from common import parser_of, run

from facerts.cli.output import EXIT_INTERRUPTED, EXIT_SOME_FAILED, print_error
from facerts.errors import Error
from facerts.io.files import atomic_write, sha256_file
from facerts.io.json_file import read_json
from facerts.io.progress import stderr
from facerts.training.plain_yaml import parse_yaml
from facerts.training.recipe import load_recipe

CHECKPOINT, RECIPE, RESULT, ARRAYS = "checkpoint.pt", "wanted.yaml", "result.json", "arrays.npz"
RECORD, LOG = "steps.json", "commands.log"


class StepError(Error):
    """A step of a run ended with another status than 0."""


class Step(NamedTuple):
    """A `facerts` command of a run.

    Attributes:
        name: for people and for the record.
        command: arguments of `facerts`.
        reads: the file whose content decides, with the command, whether it must be done again.
        writes: the file without which it was not done.
    """

    name: str
    command: list[str]
    reads: Path
    writes: Path


@dataclass(frozen=True)
class Run:
    """A recipe with one seed.

    Attributes:
        folder: OUT/LABEL_seedN.
        recipe: the complete recipe, as YAML.
    """

    folder: Path
    recipe: str

    @property
    def model(self) -> Path:
        return self.folder / f"{self.folder.name}.onnx"

    def steps(self, options: argparse.Namespace) -> list[Step]:
        """What is to be done, in this order."""
        folder, wanted = self.folder, self.folder / RECIPE
        training = ["train", str(wanted), "--out", str(folder), "--resume"]
        export = ["export", str(folder), "--out", str(self.model)]
        return [
            Step("train", training, wanted, folder / CHECKPOINT),
            Step("export", export, folder / CHECKPOINT, self.model),
            *(
                Step(
                    name,
                    ["evaluate", name, "--model", str(self.model), *given, "--out", str(folder)],
                    self.model,
                    folder / RESULT,
                )
                for name, given in evaluations(options).items()
            ),
        ]


def main() -> None:
    options = arguments()
    runs = planned(options)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # What nohup has made it deaf to, it stays deaf to.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        failed = carry_out_all(runs, options)
    except KeyboardInterrupt:
        print_error("interrupted; the same command goes on from here")
        sys.exit(EXIT_INTERRUPTED)
    for one in runs:
        if one not in failed:
            print(one.folder)
    for one, error in failed.items():
        print_error(f"{one.folder.name}: {error}")
    sys.exit(EXIT_SOME_FAILED if failed else 0)


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument(
        "recipes",
        nargs="+",
        metavar="[LABEL=]RECIPE",
        help="recipe files, or names of those that ship; BASE_METHOD is short for BASE with method=METHOD",
    )
    parser.add_argument("--out", type=Path, required=True, help="gets a folder for each run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="of the runs; default: 1")
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="recipe fields of all runs; {seed} in a value stands for the run's",
    )
    parser.add_argument(
        "--set-for",
        nargs="+",
        action="append",
        default=[],
        metavar=("LABEL", "KEY=VALUE"),
        help="recipe fields of one label's runs",
    )
    parser.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="KEY=VALUE,VALUE",
        help="a run for each value; with several --sweep, for each combination",
    )
    parser.add_argument("--data", nargs="+", default=[], help="benchmarks: verification and reject")
    parser.add_argument("--fmr", type=float, help="of reject; default: 0.001")
    parser.add_argument("--all-pairs", action="store_true", help="measure every pair of the benchmarks too")
    parser.add_argument("--in", dest="faces", nargs="+", default=[], help="ood: faces")
    parser.add_argument("--out-of", dest="others", nargs="+", default=[], help="ood: other things")
    parser.add_argument("--exclude-in", help="ood: file names to leave out of the faces")
    parser.add_argument("--exclude-out-of", help="ood: file names to leave out of the others")
    parser.add_argument(
        "--corruptions", "--ladder", nargs="+", default=[], help="held-out faces for the corruption benchmark"
    )
    parser.add_argument(
        "--corrupted-images", "--ladder-pictures", type=int, help="how many of them; default: 500"
    )
    parser.add_argument("--threads", type=int, help="CPU threads of evaluations")
    return parser.parse_args()


def evaluations(options: argparse.Namespace) -> dict[str, list[str]]:
    """Arguments of each `facerts evaluate` command that was asked for."""
    threads = _option("--threads", options.threads)
    every = ["--all-pairs"] if options.all_pairs else []
    found = {}
    if options.data:
        found["verification"] = [*_each("--data", options.data), *every, *threads]
        found["reject"] = [*found["verification"], *_option("--fmr", options.fmr)]
    if options.faces:
        found["ood"] = [
            *_each("--in", options.faces),
            *_each("--out-of", options.others),
            *_option("--exclude-in", options.exclude_in),
            *_option("--exclude-out-of", options.exclude_out_of),
            *threads,
        ]
    if options.corruptions:
        images = _option("--images", options.corrupted_images)
        found["corruptions"] = [*_each("--data", options.corruptions), *images, *threads]
    return found


def planned(options: argparse.Namespace) -> list[Run]:
    """Every run, all labels of a seed before the next seed, so that what is done early can be compared.

    Raises:
        Error: a recipe, a field or an option is wrong; nothing was started.
    """
    if bool(options.faces) != bool(options.others):
        raise Error("--in and --out-of need each other: faces are measured against other things")
    recipes = dict(map(_labeled, options.recipes))
    if len(recipes) < len(options.recipes):
        raise Error("two recipes have one label; give each its own, LABEL=RECIPE")
    own: dict[str, list[str]] = {label: [] for label in recipes}
    for label, *fields in options.set_for:
        if label not in own or not fields:
            raise Error(f"--set-for {label}: reads LABEL KEY=VALUE, with a label of {', '.join(own)}")
        own[label] += fields
    sweeps = [_swept(text) for text in options.sweep]
    runs = []
    for seed, (label, recipe) in itertools.product(options.seeds, recipes.items()):
        for chosen in itertools.product(*sweeps):
            name = _file_name("_".join([label, *(part for part, _ in chosen), f"seed{seed}"]))
            fields = [*options.set, *own[label], *(field for _, field in chosen)]
            fields = [field.replace("{seed}", str(seed)) for field in fields]
            loaded = load_recipe(recipe, [*fields, f"seed={seed}", f"name={name}"])
            runs.append(Run(options.out / name, loaded.to_yaml()))
    name, times = Counter(one.folder.name for one in runs).most_common(1)[0]
    if times > 1:
        raise Error(f"{times} runs would be called {name}; change labels, seeds or values")
    return runs


def carry_out_all(runs: Sequence[Run], options: argparse.Namespace) -> dict[Run, StepError]:
    """Do every run in turn, tell how far it is, and give those that failed."""
    failed: dict[Run, StepError] = {}
    seconds: list[float] = []
    for number, one in enumerate(runs, 1):
        told = f"[{number}/{len(runs)}] {one.folder.name}"
        began = time.monotonic()
        try:
            anything = carry_out(one, options, told)
        except StepError as error:
            failed[one] = error
            _say(f"{told}: {error}")
            continue
        if not anything:
            _say(f"{told}: is there already")
            continue
        seconds.append(time.monotonic() - began)
        left = len(runs) - number
        mean = sum(seconds) / len(seconds)
        _say(f"{told}: done in {_clock(seconds[-1])}; {left} left, about {_clock(left * mean)}")
    return failed


def carry_out(one: Run, options: argparse.Namespace, told: str) -> bool:
    """Do the steps of a run that are not done yet; whether there were any.

    Raises:
        StepError: a step did not end well; the steps after it were not begun.
    """
    one.folder.mkdir(parents=True, exist_ok=True)
    record, done = one.folder / RECORD, {}
    if record.exists():
        done = read_json(record)
        if not isinstance(done, dict):
            raise Error(f"{record}: not what this script wrote; remove it to begin anew")
    with atomic_write(one.folder / RECIPE, "w") as file:
        file.write(one.recipe)
    anything = False
    for step in one.steps(options):
        key: dict[str, Any] = {"command": step.command, "reads": sha256_file(step.reads)}
        if done.get(step.name) == key and step.writes.exists():
            continue
        anything = True
        _say(f"{told}: {step.name}")
        if step.name == "export":
            # Results of the model before are not those of this one.
            done = {name: kept for name, kept in done.items() if name == "train"}
            for stale in (RESULT, ARRAYS):
                (one.folder / stale).unlink(missing_ok=True)
        _execute(step, one.folder / LOG)
        done[step.name] = key
        with atomic_write(record, "w") as file:
            json.dump(done, file, indent=1)
    return anything


def _execute(step: Step, log: Path) -> None:
    """Run a command in a process of its own, whose end takes nothing else with it and gives its memory back."""
    with log.open("a", encoding="utf-8") as file:
        began = file.tell()
        file.write(f"$ facerts {' '.join(step.command)}\n")
        file.flush()
        # In a session of its own, so that an interrupt from the terminal reaches it once, from here.
        process = subprocess.Popen(
            [sys.executable, "-m", "facerts", *step.command],
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait()
        except KeyboardInterrupt:
            # Training saves the step that it has reached.
            process.terminate()
            process.wait()
            raise
    if status:
        with log.open(encoding="utf-8", errors="replace") as file:
            file.seek(began)
            said = file.read().strip().splitlines()
        raise StepError(f"{step.name} ended with status {status}: {said[-1]} (all of it in {log})")


def _labeled(text: str) -> tuple[str, str]:
    """Label and recipe; without a label, the recipe's name is it."""
    label, _, recipe = text.rpartition("=")
    return label or re.sub(r"\.ya?ml$", "", Path(recipe).name), recipe


def _swept(text: str) -> list[tuple[str, str]]:
    """Every value of a sweep as a part of the run's name and as a recipe's field."""
    key, equals, values = text.partition("=")
    listed = parse_yaml(f"[{values}]", f"--sweep {text}")
    if not equals or not listed:
        raise Error(f"--sweep {text}: reads KEY=VALUE,VALUE, e.g. method.kl_weight=1,10")
    last = key.rpartition(".")[2]
    return [(f"{last}_{value}", f"{key}={json.dumps(value)}") for value in listed]


def _file_name(text: str) -> str:
    """A name that recipes and folders may have."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text).strip("_")


def _each(option: str, values: Sequence[str]) -> list[str]:
    return [text for value in values for text in (option, value)]


def _option(option: str, value: object) -> list[str]:
    return [] if value is None else [option, str(value)]


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _say(text: str) -> None:
    stderr.print(text, highlight=False, markup=False, soft_wrap=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """A polite end from outside is an interrupt like that of the keyboard."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    run(main)
