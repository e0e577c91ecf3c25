"""The frame of a command that makes data sets: it drops images, writes the rest, and reports both."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.curation.output_spec import OutputSpec
from facerts.datasets.encoded_images import count_identities, encoded_images, order_by_identity
from facerts.datasets.source import Source
from facerts.io.files import atomic_write
from facerts.io.job import staged
from facerts.io.redact import redacted_command, redacted_path
from facerts.io.versions import installed_versions

SCHEMA = "facerts.data/3"


class CurationJob:
    """A command at work; ``open_job`` opens one.

    Attributes:
        kept: ``(N,) bool``, False for images that are dropped.
        scratch: a folder for temporary files, on the disk of the data set.
    """

    def __init__(self, source: Source, temporary: Mapping[Path, Path], report: dict[str, Any]) -> None:
        self.source = source
        self.kept: NDArray[np.bool_] = np.ones(len(source), dtype=bool)
        self.report = report
        self.scratch = next(iter(temporary.values())).parent
        self._temporary = temporary
        self._dropped: list[dict[str, Any]] = []

    def drop(self, index: int, reason: str, **details: Any) -> None:
        """Drop an image and list it with the reason; an image that is already dropped keeps its first reason.

        Args:
            reason: a few words; images are counted by reason.
            details: more entries for the list, such as the image that it resembles.
        """
        if not self.kept[index]:
            return
        self.kept[index] = False
        location, identity = self.source.location(index), identity_of(self.source, index)
        self._dropped.append({"image": location, "identity": identity, "reason": reason, **details})

    def write(
        self,
        output: OutputSpec,
        source: Source,
        kept: NDArray[np.bool_] | None = None,
        order: NDArray[np.integer] | None = None,
    ) -> None:
        """Add a data set to the report, and write it unless this is a dry run.

        Args:
            kept: ``(N,)`` which images to write, grouped by identity; None for all.
            order: ``(N,)`` the order in which to write all images instead.
        """
        count = len(source) if kept is None else int(kept.sum())
        identities = count_identities(source, kept)
        dry_run = self.report["dry_run"]
        if count or not dry_run:
            output.check(source.name, count, identities)
        self.report["written"].append(
            {"path": str(output.path), "form": output.form, "images": count, "identities": identities}
        )
        if not dry_run:
            shuffled = order is not None
            order = order_by_identity(source, kept) if order is None else order
            images = encoded_images(source, order, f"writing {output.path.name}")
            output.write(self._temporary[output.path], images, count, shuffled=shuffled)

    def finish(self, report_file: Path) -> None:
        """Write the report."""
        reasons = Counter(row["reason"] for row in self._dropped)
        self.report["dropped"] = {
            "images": len(self._dropped),
            "identities": len(self.source.identities) - count_identities(self.source, self.kept),
            "by_reason": dict(reasons.most_common()),
            "list": self._dropped,
        }
        with atomic_write(self._temporary[report_file], "w") as file:
            json.dump(_shown(self.report), file, allow_nan=False, indent=1)


@contextmanager
def open_job(
    source: Source, outputs: Sequence[OutputSpec], settings: Mapping[str, Any]
) -> Iterator[CurationJob]:
    """Open a job; its data sets and last its report appear when the block ends without an error.

    Args:
        outputs: the data sets; the first says where the report is, and whether this is a dry run.
    """
    start = time.monotonic()
    report_file, dry_run = outputs[0].report_file, outputs[0].dry_run
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "command": redacted_command(),
        "versions": installed_versions(),
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "dry_run": dry_run,
        "settings": dict(settings),
        "in": {
            "name": source.name,
            "images": len(source),
            "identities": None if source.labels is None else len(source.identities),
        },
        "written": [],
        "dropped": {},
    }
    data_sets = [] if dry_run else [output.path for output in outputs]
    with staged([*data_sets, report_file]) as temporary:
        job = CurationJob(source, temporary, report)
        yield job
        report["report"] = str(report_file)
        report["seconds"] = round(time.monotonic() - start, 1)
        job.finish(report_file)


def _shown(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report without absolute paths of its data sets, which are beside it."""
    return {
        **report,
        "written": [{**data_set, "path": redacted_path(data_set["path"])} for data_set in report["written"]],
        "report": redacted_path(report["report"]),
    }


def identity_of(source: Source, index: int) -> str | None:
    """The name of the identity of an image; None if unknown."""
    return None if source.labels is None else source.identities[source.labels[index]]
