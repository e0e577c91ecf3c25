"""Data sets made from data sets: what is left out of them, what is written, and the report of both."""

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

from facerts.curation.output_spec import Target
from facerts.curation.staging import Places, new_places
from facerts.datasets.read_ahead import EncodedImage, count_identities, encoded_images, order_by_identity
from facerts.datasets.source import Source
from facerts.errors import Error
from facerts.io.files import atomic_write, writing
from facerts.io.shown import shown_command, shown_path
from facerts.version import __version__

SCHEMA = "facerts.data/1"
# Lists beside the report, a line of JSON for each entry.
DROPPED, PAIRS = "dropped", "pairs"


@dataclass(frozen=True)
class Settings:
    """How a command works that makes data sets.

    Attributes:
        dry_run: write the report and its lists alone.
        report: the .json file of the report; None for one beside the data set.
    """

    dry_run: bool = False
    report: Path | None = None

    def report_file(self, out: Path) -> Path:
        """Where the report goes.

        Raises:
            Error: it is to be no .json file.
        """
        if self.report is None:
            name = out.stem if out.suffix.lower() == ".tar" else out.name
            return out.with_name(f"{name}.{'dry-run' if self.dry_run else 'report'}.json")
        if self.report.suffix.lower() != ".json":
            raise Error(f"{self.report}: a report is a .json file; choose that ending")
        return self.report


class Making:
    """A command at work; ``making`` opens one.

    Attributes:
        source: what comes in.
        kept: ``(N,) bool``, False for its pictures that are left out.
        report: what has been said so far.
        scratch: a folder that goes when all is done.
    """

    def __init__(
        self, source: Source, places: Places, lists: Mapping[str, Path], dry_run: bool, report: dict[str, Any]
    ) -> None:
        self.source = source
        self.kept: NDArray[np.bool_] = np.ones(len(source), dtype=bool)
        self.report = report
        self.scratch = places.scratch
        self._places = places
        self._lists = lists
        self._dry_run = dry_run
        self._reasons: Counter[str] = Counter()
        self._open = ExitStack()
        self._files: dict[str, IO[str]] = {}

    def leave_out(self, index: int, reason: str, **facts: Any) -> None:
        """Leave a picture out, and say why; one that is out already stays so for its first reason.

        Args:
            index: of the picture.
            reason: a few words, the same for all that are left out for it.
            facts: what else its line says, such as the picture that it resembles.
        """
        if not self.kept[index]:
            return
        self.kept[index] = False
        self._reasons[reason] += 1
        where, identity = self.source.location(index), identity_of(self.source, index)
        self.tell(DROPPED, {"picture": where, "identity": identity, "reason": reason, **facts})

    def tell(self, kind: str, row: Mapping[str, Any]) -> None:
        """Add a line to one of the lists beside the report."""
        with writing(self._lists[kind]):
            if kind not in self._files:
                place = self._places.of(self._lists[kind])
                self._files[kind] = self._open.enter_context(place.open("w", encoding="utf-8"))
                self.report["lists"][kind] = str(self._lists[kind])
            # In ASCII, as names of files may be no valid text.
            self._files[kind].write(json.dumps(row) + "\n")

    def write(
        self,
        target: Target,
        source: Source,
        kept: NDArray[np.bool_] | None = None,
        *,
        mixed: Iterator[EncodedImage] | None = None,
    ) -> None:
        """Count what goes into a data set, and write it unless this is a dry run.

        Args:
            target: what to write.
            source: of the pictures.
            kept: ``(M,)`` which of them; None for all.
            mixed: all of them, read already, in any order.

        Raises:
            Error: the target cannot hold them, or one cannot be read.
        """
        images = len(source) if kept is None else int(kept.sum())
        identities = count_identities(source, kept)
        if images or not self._dry_run:
            target.check(source.name, images, identities)
        counted = {"images": images, "identities": identities}
        self.report["written"].append({"path": str(target.path), "form": target.form, **counted})
        if not self._dry_run:
            text = f"writing {target.path.name}"
            pictures = (
                encoded_images(source, order_by_identity(source, kept), text) if mixed is None else mixed
            )
            target.write(self._places.of(target.path), pictures, images, mixed=mixed is not None)

    def finish(self, report_file: Path) -> None:
        """Close the lists and write the report."""
        self._open.close()
        gone = len(self.source.identities) - count_identities(self.source, self.kept)
        self.report["dropped"] = {
            "images": len(self.kept) - int(self.kept.sum()),
            "identities": gone,
            "by_reason": dict(self._reasons.most_common()),
        }
        with atomic_write(self._places.of(report_file), "w") as file:
            json.dump(_shown(self.report), file, allow_nan=False, indent=1)


@contextmanager
def making(
    source: Source,
    targets: Sequence[Target],
    settings: Settings,
    told: Mapping[str, Any],
    versions: Mapping[str, str] | None = None,
) -> Iterator[Making]:
    """Make data sets: they, the lists and last of all the report appear when the block ends without an error.

    Args:
        source: what comes in.
        targets: what may be written.
        settings: of the command.
        told: the command's own settings, as the report has them.
        versions: of packages that the result depends on.

    Raises:
        Error: something is in one of the places already, or nothing may be written there.
    """
    begun = time.monotonic()
    report_file = settings.report_file(targets[0].path)
    stem = report_file.stem.removesuffix(".report")
    lists = {kind: report_file.with_name(f"{stem}.{kind}.jsonl") for kind in (DROPPED, PAIRS)}
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "command": shown_command(),
        "versions": dict(versions or {"facerts": __version__, "numpy": np.__version__}),
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "dry_run": settings.dry_run,
        "settings": dict(told),
        "in": {
            "name": source.name,
            "images": len(source),
            "identities": None if source.labels is None else len(source.identities),
        },
        "written": [],
        "dropped": {},
        "lists": {},
    }
    data_sets = [] if settings.dry_run else [target.path for target in targets]
    with new_places([*data_sets, *lists.values(), report_file]) as places:
        made = Making(source, places, lists, settings.dry_run, report)
        with made._open:
            yield made
        report["report"] = str(report_file)
        report["seconds"] = round(time.monotonic() - begun, 1)
        made.finish(report_file)


def _shown(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report with its paths as others may see them; they lie beside it."""
    return {
        **report,
        "written": [{**data_set, "path": shown_path(data_set["path"])} for data_set in report["written"]],
        "lists": {kind: shown_path(path) for kind, path in report["lists"].items()},
        "report": shown_path(report["report"]),
    }


def identity_of(source: Source, index: int) -> str | None:
    """The name of a picture's identity; None where it is not known."""
    return None if source.labels is None else source.identities[source.labels[index]]
