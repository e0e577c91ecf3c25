r"""Trains recipes with several seeds and settings, exports and evaluates each: comparisons and sweeps in one command.

python eval/train_and_evaluate.py rts=faces_small_rts arcface=faces_small_arcface --set data.train=people/ \
    --seeds 1 2 3 --out out/methods --evaluate "verification --data lfw/" --evaluate "ood --in lfw/ --out-of pets/"
python eval/train_and_evaluate.py rts=casia_rts --sweep method.kl_weight=0.1,1,10,30 --out out/table4 \
    --evaluate "verification --data lfw.bin"

Each run has a folder OUT/LABEL_seedN with recipe, log, checkpoint, model and results, which `facerts compare`,
`facerts report` and the other scripts of this folder accept. Its `commands.log` has the output of all commands.

To continue after an interruption, run the same command again. Finished steps are skipped as long as their command and
the file that they read are unchanged, and an interrupted training continues from its checkpoint. If a run fails, the
others continue, and the exit status is 1. Several of these commands may share OUT: each leaves the runs of the others
to them.

Arguments can be read from files, @FILE, which have comments, quotes and variables as in a shell; papers/*.args are such
files.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import typer
from common import parser_of, run

from facerts.cli.app import build_app
from facerts.cli.output import EXIT_INTERRUPTED, EXIT_SOME_FAILED, print_error
from facerts.errors import Error, LockedError
from facerts.io.console import stderr
from facerts.io.files import atomic_write, locked, sha256_file
from facerts.io.json_file import read_json
from facerts.training.compose import parse_yaml
from facerts.training.recipe import Recipe, load_recipe, require_values

CHECKPOINT, RECIPE, RESULT, ARRAYS = "checkpoint.pt", "wanted.yaml", "result.json", "arrays.npz"
RECORD, LOG = "steps.json", "commands.log"


class StepError(Error):
    """A step of a run ended with an exit status other than 0."""


class Step(NamedTuple):
    """The arguments of `facerts`, repeated if they, the file it reads or the existence of the one it writes change."""

    name: str
    command: list[str]
    reads: Path
    writes: Path


@dataclass(frozen=True, eq=False)
class Run:
    """A complete recipe with one seed, and its folder OUT/LABEL_seedN."""

    folder: Path
    recipe: Recipe

    @property
    def model(self) -> Path:
        return self.folder / f"{self.folder.name}.onnx"

    def steps(self, options: argparse.Namespace) -> list[Step]:
        """The steps of the run, in order."""
        folder, recipe = self.folder, self.folder / RECIPE
        budget = ["--budget", options.budget] if options.budget else []
        training = ["train", str(recipe), "--out", str(folder), "--resume", *budget]
        export = ["export", str(folder), "--out", str(self.model)]
        return [
            Step("train", training, recipe, folder / CHECKPOINT),
            Step("export", export, folder / CHECKPOINT, self.model),
            *(
                Step(name, ["evaluate", name, *arguments, "--out", str(folder)], self.model, folder / RESULT)
                for name, *arguments in self._evaluations(options)
            ),
        ]

    def _evaluations(self, options: argparse.Namespace) -> Iterator[list[str]]:
        """Name and arguments of each `facerts evaluate` command."""
        for text in options.evaluate:
            text = text if "{model}" in text else f"{text} --model {{model}}"
            words = shlex.split(text)
            yield [word.replace("{model}", str(self.model)).replace("{out}", str(options.out)) for word in words]


def main() -> None:
    options = read_options()
    runs = plan(options)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Signals that are ignored (by nohup) stay ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        failed = execute_all(runs, options)
    except KeyboardInterrupt:
        print_error("interrupted; run the same command again to continue")
        sys.exit(EXIT_INTERRUPTED)
    for planned in runs:
        if planned not in failed:
            print(planned.folder)
    for planned, error in failed.items():
        print_error(f"{planned.folder.name}: {error}")
    sys.exit(EXIT_SOME_FAILED if failed else 0)


def read_options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.fromfile_prefix_chars = "@"
    parser.convert_arg_line_to_args = _arguments_of_line  # type: ignore[method-assign]
    parser.add_argument(
        "recipes",
        nargs="+",
        metavar="[LABEL=]RECIPE",
        help="Recipe files, or names of recipes that ship; BASE_METHOD is short for BASE with method=METHOD.",
    )
    parser.add_argument("--out", type=Path, required=True, help="Folder for the folders of the runs.")
    parser.add_argument("--only", nargs="+", metavar="LABEL", help="Run these labels only.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="Seeds of the runs (default: 1).")
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="Recipe fields to change in all runs; {seed} and {out} in a value are replaced by the seed of the run and "
        "by OUT.",
    )
    parser.add_argument(
        "--set-for",
        nargs="+",
        action="append",
        default=[],
        metavar=("LABEL", "KEY=VALUE"),
        help="Recipe fields to change in the runs of one label; repeatable.",
    )
    parser.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="KEY=VALUE,VALUE",
        help="Run once for each value; with several --sweep, for each combination.",
    )
    parser.add_argument(
        "--budget", metavar="TIME", help="Time of each training, such as 10m; see facerts train --help."
    )
    parser.add_argument(
        "--evaluate",
        action="append",
        default=[],
        metavar="COMMAND",
        help="Arguments of facerts evaluate for each run, such as 'verification --data lfw/'; repeatable. {out} is "
        "replaced by OUT and {model} by the model of the run, which is the one of --model if {model} does not occur.",
    )
    return parser.parse_args()


def check_evaluation(text: str) -> None:
    """Raise an error if `facerts evaluate` would not take these arguments."""
    command: Any = typer.main.get_command(build_app()).commands["evaluate"]
    name, *arguments = shlex.split(text) or [""]
    if name not in command.commands:
        raise Error(f"--evaluate {text}: must start with one of {', '.join(command.commands)}")
    try:
        command.commands[name].make_context(name, [*arguments, "--model", "m", "--out", "o"])
    except typer.BadParameter.__base__ as error:
        raise Error(f"--evaluate {text}: {error}") from error


def plan(options: argparse.Namespace) -> list[Run]:
    """All runs; seed by seed, so that early results of all labels can be compared.

    Raises:
        Error: a recipe, a field or an option is wrong; nothing was started.
    """
    for text in options.evaluate:
        check_evaluation(text)
    recipes = dict(map(_labeled, options.recipes))
    if len(recipes) < len(options.recipes):
        raise Error("two recipes have the same label; give each its own, LABEL=RECIPE")
    if unknown := set(options.only or ()) - recipes.keys():
        raise Error(f"--only {min(unknown)}: must be one of the labels {', '.join(recipes)}")
    overrides: dict[str, list[str]] = {label: [] for label in recipes}
    for label, *fields in options.set_for:
        if label not in overrides or not fields:
            raise Error(f"--set-for {label}: must be LABEL KEY=VALUE, with one of the labels {', '.join(overrides)}")
        overrides[label] += fields
    sweeps = [_parse_sweep(text) for text in options.sweep]
    runs = []
    chosen = [entry for entry in recipes.items() if not options.only or entry[0] in options.only]
    for seed, (label, recipe) in itertools.product(options.seeds, chosen):
        for combination in itertools.product(*sweeps):
            name = _file_name("_".join([label, *(part for part, _ in combination), f"seed{seed}"]))
            fields = [*options.set, *overrides[label], *(field for _, field in combination)]
            fields = [field.replace("{seed}", str(seed)).replace("{out}", str(options.out)) for field in fields]
            loaded = load_recipe(recipe, [*fields, f"seed={seed}", f"name={name}"])
            require_values(loaded)
            runs.append(Run(options.out / name, loaded))
    name, count = Counter(planned.folder.name for planned in runs).most_common(1)[0]
    if count > 1:
        raise Error(f"{count} runs would have the name {name}; change labels, seeds or values")
    return runs


def execute_all(runs: Sequence[Run], options: argparse.Namespace) -> dict[Run, StepError]:
    """Execute all runs with progress messages, and return the errors of those that failed."""
    failed: dict[Run, StepError] = {}
    seconds: list[float] = []
    for number, planned in enumerate(runs, 1):
        prefix = f"[{number}/{len(runs)}] {planned.folder.name}"
        start = time.monotonic()
        try:
            with locked(planned.folder):
                executed = execute(planned, options, prefix)
        except LockedError:
            _print(f"{prefix}: left to another process")
            continue
        except StepError as error:
            failed[planned] = error
            _print(f"{prefix}: {error}")
            continue
        if not executed:
            _print(f"{prefix}: already done")
            continue
        seconds.append(time.monotonic() - start)
        left = len(runs) - number
        mean = sum(seconds) / len(seconds)
        _print(f"{prefix}: done in {_clock(seconds[-1])}; {left} left, about {_clock(left * mean)}")
    return failed


def execute(planned: Run, options: argparse.Namespace, prefix: str) -> bool:
    """Execute the unfinished steps of a run, with progress messages after a prefix, and return whether there were any.

    Raises:
        StepError: a step failed; later steps were not started.
    """
    planned.folder.mkdir(parents=True, exist_ok=True)
    record, done = planned.folder / RECORD, {}
    if record.exists():
        done = read_json(record)
        if not isinstance(done, dict):
            raise Error(f"{record}: was not written by this script; remove it to start again")
    with atomic_write(planned.folder / RECIPE, "w") as file:
        file.write(planned.recipe.to_yaml())
    executed = False
    for step in planned.steps(options):
        key, content = " ".join(step.command), sha256_file(step.reads)
        if done.get(key) == content and step.writes.exists():
            continue
        executed = True
        _print(f"{prefix}: {step.name}")
        if step.name == "export":
            # The results of the previous model are not those of the new one.
            done = {command: entry for command, entry in done.items() if command.startswith("train ")}
            for stale in (RESULT, ARRAYS):
                (planned.folder / stale).unlink(missing_ok=True)
        _run_command(step, planned.folder / LOG)
        done[key] = content
        with atomic_write(record, "w") as file:
            json.dump(done, file, indent=1)
    return executed


def _run_command(step: Step, log: Path) -> None:
    """Run a command in a process of its own, so that a crash does not affect the others and its memory is freed."""
    with log.open("a", encoding="utf-8") as file:
        start = file.tell()
        file.write(f"$ facerts {' '.join(step.command)}\n")
        file.flush()
        # In its own session, so that an interrupt from the terminal reaches it only once, from here.
        process = subprocess.Popen(
            [sys.executable, "-m", "facerts", *step.command],
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait()
        except KeyboardInterrupt:
            # A training saves its current step.
            process.terminate()
            process.wait()
            raise
    if status:
        with log.open(encoding="utf-8", errors="replace") as file:
            file.seek(start)
            output = file.read().strip().splitlines()
        raise StepError(f"{step.name} ended with status {status}: {output[-1]} (full output in {log})")


def _arguments_of_line(line: str) -> list[str]:
    """Arguments of a line of an @FILE."""
    return [os.path.expandvars(argument) for argument in shlex.split(line, comments=True)]


def _labeled(text: str) -> tuple[str, str]:
    """Label and recipe; the label is the recipe's name by default."""
    label, _, recipe = text.rpartition("=")
    return label or re.sub(r"\.ya?ml$", "", Path(recipe).name), recipe


def _parse_sweep(text: str) -> list[tuple[str, str]]:
    """The values of a sweep, each as a part of the run's name and as a recipe override."""
    key, equals, values = text.partition("=")
    parsed = parse_yaml(f"[{values}]", f"--sweep {text}")
    if not equals or not parsed:
        raise Error(f"--sweep {text}: must be KEY=VALUE,VALUE, e.g. method.kl_weight=1,10")
    last = key.rpartition(".")[2]
    return [(f"{last}_{value}", f"{key}={json.dumps(value)}") for value in parsed]


def _file_name(text: str) -> str:
    """The text with everything replaced that names of recipes and folders may not contain."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text).strip("_")


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _print(text: str) -> None:
    stderr.print(text, highlight=False, markup=False, soft_wrap=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Treat a request to terminate like an interrupt from the keyboard."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    run(main)
