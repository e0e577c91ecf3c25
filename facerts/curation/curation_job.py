"""The frame of a command that makes data sets: it drops images, writes the rest, and reports both."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from facerts.curation.output_spec import OutputSpec
from facerts.curation.staging import Staging, staged
from facerts.datasets.encoded_images import EncodedImage, count_identities, encoded_images, order_by_identity
from facerts.datasets.source import Source
from facerts.errors import Error
from facerts.io.files import atomic_write, writing
from facerts.io.redact import redacted_command, redacted_path
from facerts.version import __version__

SCHEMA = "facerts.data/2"
# Lists beside the report, one line of JSON per entry.
DROPPED, PAIRS = "dropped", "pairs"


@dataclass(frozen=True)
class JobOptions:
    """Options of every command that makes data sets.

    Attributes:
        dry_run: write only the report and its lists.
        report: the .json file for the report; None for a file beside the data set.
    """

    dry_run: bool = False
    report: Path | None = None

    def report_file(self, out: Path) -> Path:
        """The file for the report."""
        if self.report is None:
            name = out.stem if out.suffix.lower() == ".tar" else out.name
            return out.with_name(f"{name}.{'dry-run' if self.dry_run else 'report'}.json")
        if self.report.suffix.lower() != ".json":
            raise Error(f"{self.report}: a report is a .json file; choose a file with that suffix")
        return self.report


class CurationJob:
    """A command at work; ``open_job`` opens one.

    Attributes:
        kept: ``(N,) bool``, False for images that are dropped.
    """

    def __init__(
        self,
        source: Source,
        staging: Staging,
        lists: Mapping[str, Path],
        dry_run: bool,
        report: dict[str, Any],
    ) -> None:
        self.source = source
        self.kept: NDArray[np.bool_] = np.ones(len(source), dtype=bool)
        self.report = report
        self.scratch = staging.scratch
        self._staging = staging
        self._lists = lists
        self._dry_run = dry_run
        self._reasons: Counter[str] = Counter()
        self._open = ExitStack()
        self._files: dict[str, IO[str]] = {}

    def drop(self, index: int, reason: str, **details: Any) -> None:
        """Drop an image and list it with the reason; an image that is already dropped keeps its first reason.

        Args:
            reason: a few words; images are counted by reason.
            details: more entries for its line in the list, such as the image that it resembles.
        """
        if not self.kept[index]:
            return
        self.kept[index] = False
        self._reasons[reason] += 1
        location, identity = self.source.location(index), identity_of(self.source, index)
        self.add_line(DROPPED, {"image": location, "identity": identity, "reason": reason, **details})

    def add_line(self, kind: str, row: Mapping[str, Any]) -> None:
        """Add a line to one of the lists beside the report."""
        with writing(self._lists[kind]):
            if kind not in self._files:
                file = self._staging.temporary(self._lists[kind])
                self._files[kind] = self._open.enter_context(file.open("w", encoding="utf-8"))
                self.report["lists"][kind] = str(self._lists[kind])
            # ASCII, because file names may not be valid text.
            self._files[kind].write(json.dumps(row) + "\n")

    def write(
        self,
        output: OutputSpec,
        source: Source,
        kept: NDArray[np.bool_] | None = None,
        *,
        shuffled: Iterator[EncodedImage] | None = None,
    ) -> None:
        """Add a data set to the report, and write it unless this is a dry run."""
        count = len(source) if kept is None else int(kept.sum())
        identities = count_identities(source, kept)
        if count or not self._dry_run:
            output.check(source.name, count, identities)
        self.report["written"].append(
            {"path": str(output.path), "form": output.form, "images": count, "identities": identities}
        )
        if not self._dry_run:
            images = shuffled
            if images is None:
                images = encoded_images(
                    source, order_by_identity(source, kept), f"writing {output.path.name}"
                )
            output.write(self._staging.temporary(output.path), images, count, shuffled=shuffled is not None)

    def finish(self, report_file: Path) -> None:
        """Close the lists and write the report."""
        self._open.close()
        dropped_identities = len(self.source.identities) - count_identities(self.source, self.kept)
        self.report["dropped"] = {
            "images": len(self.kept) - int(self.kept.sum()),
            "identities": dropped_identities,
            "by_reason": dict(self._reasons.most_common()),
        }
        with atomic_write(self._staging.temporary(report_file), "w") as file:
            json.dump(_shown(self.report), file, allow_nan=False, indent=1)


@contextmanager
def open_job(
    source: Source,
    outputs: Sequence[OutputSpec],
    options: JobOptions,
    settings: Mapping[str, Any],
    versions: Mapping[str, str] | None = None,
) -> Iterator[CurationJob]:
    """Open a job; its data sets, its lists and last its report appear when the block ends without an error."""
    start = time.monotonic()
    report_file = options.report_file(outputs[0].path)
    stem = report_file.stem.removesuffix(".report")
    lists = {kind: report_file.with_name(f"{stem}.{kind}.jsonl") for kind in (DROPPED, PAIRS)}
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "command": redacted_command(),
        "versions": dict(versions or {"facerts": __version__, "numpy": np.__version__}),
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "dry_run": options.dry_run,
        "settings": dict(settings),
        "in": {
            "name": source.name,
            "images": len(source),
            "identities": None if source.labels is None else len(source.identities),
        },
        "written": [],
        "dropped": {},
        "lists": {},
    }
    data_sets = [] if options.dry_run else [output.path for output in outputs]
    with staged([*data_sets, *lists.values(), report_file]) as staging:
        job = CurationJob(source, staging, lists, options.dry_run, report)
        with job._open:
            yield job
        report["report"] = str(report_file)
        report["seconds"] = round(time.monotonic() - start, 1)
        job.finish(report_file)


def _shown(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report without absolute paths; the files are beside it."""
    return {
        **report,
        "written": [{**data_set, "path": redacted_path(data_set["path"])} for data_set in report["written"]],
        "lists": {kind: redacted_path(path) for kind, path in report["lists"].items()},
        "report": redacted_path(report["report"]),
    }


def identity_of(source: Source, index: int) -> str | None:
    """The name of the identity of an image; None if unknown."""
    return None if source.labels is None else source.identities[source.labels[index]]
