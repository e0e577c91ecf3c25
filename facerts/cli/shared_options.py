"""Arguments and options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from facerts.cli.option_groups import COMMON, GIVEN, NEW, NEW_FOLDER
from facerts.cli.settings import CommandSettings

if TYPE_CHECKING:
    from facerts.evaluation.image_groups import Groups
    from facerts.scoring import Scorer

_MODEL_HELP = (
    "Name of a model (see facerts models list), or path of an .onnx file (third-party: with its .json next to it) or "
    "of an insightface model pack"
)
Model = Annotated[str, typer.Option(metavar="MODEL", help=f"{_MODEL_HELP}.")]
ModelOrDefault = Annotated[
    str | None, typer.Option(metavar="MODEL", help=f"{_MODEL_HELP}; by default the setting recognizer.")
]
ScoringModel = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help=f"{_MODEL_HELP}, in place of the settings quality and recognizer.",
    ),
]
Images = Annotated[
    list[str],
    typer.Argument(help="Image files, folders, RecordIO directories, .tar shards or list files.", metavar="PATHS..."),
    GIVEN,
]
NewFile = Annotated[Path, typer.Option("--out", "-o", metavar="FILE"), NEW]
NewFolder = Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER"), NEW_FOLDER]
NewGallery = Annotated[str, typer.Option("--out", "-o", metavar="GALLERY"), NEW]
NewTable = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="File to write all rows to: .csv, .jsonl or .parquet.", metavar="FILE"),
    NEW,
]


def _share(text: str) -> float | str:
    if text == "none":
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a share of the faces, such as 0.95, nor none") from None


Keep = Annotated[Any, typer.Option(parser=_share, metavar="SHARE|none")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.", rich_help_panel=COMMON)]


@dataclass(frozen=True)
class ScorerOptions:
    """The models of a command that compares faces.

    Attributes:
        recognizer: Name or .onnx file of the recognizer, or an insightface model pack; by default the setting of that
            name.
    """

    model: ScoringModel = None
    recognizer: Annotated[str | None, typer.Option(metavar="NAME|FILE|PACK")] = None

    def open(self, settings: CommandSettings, batch_size: int | None = None) -> Scorer:
        """See ``facerts.load``."""
        return settings.scorer(self.model, self.recognizer, batch_size=batch_size)


@dataclass(frozen=True)
class GroupOptions:
    """Groups of the images, whose acceptance and errors are compared.

    Attributes:
        groups: Groups of the images: a CSV file with the header image,ATTRIBUTE[,ATTRIBUTE...] and a row for each.
        group_edges: Ranges of a numeric attribute, e.g. age=13,20,40: below 13, 13 to 19, ... Repeatable.
    """

    groups: Path | None = None
    group_edges: list[str] | None = None

    def read(self) -> Groups | None:
        """The groups; None if none are given."""
        from facerts.evaluation.image_groups import read_groups

        if self.groups is None:
            if self.group_edges:
                raise typer.BadParameter("--group-edges needs the attributes of --groups")
            return None
        return read_groups(self.groups, self.group_edges or ())
