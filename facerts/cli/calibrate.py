"""``facerts calibrate``."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from facerts.cli.option_groups import NEW
from facerts.cli.output import number, print_result, print_rows, warn
from facerts.cli.settings import CommandSettings
from facerts.cli.shared_options import GroupOptions, Json, Model

if TYPE_CHECKING:
    from facerts.onnx.contract import Calibration, Description, MatchErrors


def calibrate(
    *,
    model: Model,
    data: list[str],
    pairs: str | None = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE"), NEW] = None,
    keep: list[float] | None = None,
    fmr: list[float] | None = None,
    groups: GroupOptions,
    out_of: Annotated[list[str] | None, typer.Option("--out-of")] = None,
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Choose quality thresholds and match thresholds on your own faces, and write them into the model.

    Exits with status 1 if any image could not be read.

    Example: facerts calibrate --model m.onnx --data faces/

    Args:
        data: Your own faces: a folder by identity or a flat folder, a RecordIO directory or tar shards; may be
            repeated.
        pairs: Verification benchmark to choose match thresholds on, instead of all pairs of the faces. The paths in a
            list of pairs are relative to --data, if that is one folder, or else to the list's own.
        out: Path of the .onnx file to write; by default the model itself.
        keep: Share of the faces that a quality threshold keeps; may be repeated. By default 0.99, 0.95, 0.9 and 0.8.
        fmr: False match rate of a match threshold; may be repeated. By default 0.01, 0.001 and 0.0001. A rate at
            which not even one pair would match is left out.
        out_of: Images of non-faces, 112 x 112, to measure the share of them that each quality threshold lets through;
            may be repeated.
    """
    from facerts.calibration.quality_thresholds import calibrate as run

    result = run(
        model,
        data,
        pairs=pairs,
        out=out,
        keep=keep or None,
        fmr=fmr or None,
        flip=settings.flip or False,
        groups=groups.read(),
        non_faces=out_of or None,
        detector=settings.face_finder(),
        **settings.runtime(),
    )
    calibration = result.description.calibration
    assert calibration is not None
    for note in calibration.notes:
        warn(note)
    if not json:
        _show(result.description, calibration)
    content = result.description.model_dump(mode="json", include={"thresholds", "calibration"})
    print_result(
        {"file": str(result.file), "left_out": len(result.left_out)},
        json,
        details={**content, "left_out": list(result.left_out)},
        problems=[f"left out: {problem}" for problem in result.left_out],
    )


def _show(description: Description, calibration: Calibration) -> None:
    matching = calibration.matching
    matches = matching.thresholds if matching else {}
    if matching is not None:
        pairs = "all pairs of" if matching.pairs == "all" else "the listed pairs of"
        views = "the crop and its mirror image" if matching.flip else "only the crop"
        match_rows = [
            {
                "FMR": number(rate),
                "min. similarity": threshold.similarity,
                "achieved FMR (95%)": _with_interval(threshold.achieved_fmr, threshold.fmr_ci95, ".3g"),
                "impostor pairs": threshold.impostors,
                "genuine pairs": threshold.genuine,
                "FNMR (95%)": _with_interval(threshold.fnmr, threshold.ci95),
            }
            for rate, threshold in matches.items()
        ]
        title = f"Match thresholds on {pairs} {matching.images:,} images, embeddings of {views}"
        print_rows(match_rows, title=title)
    quality_rows = [
        {
            "keep": number(share),
            "min. quality": threshold.quality,
            "faces kept (95%)": _with_interval(threshold.kept, threshold.ci95),
            "pairs kept": next((match.kept[share].genuine for match in matches.values()), None),
            **{
                f"at FMR {rate}": _with_interval(match.kept[share].fnmr, match.kept[share].ci95)
                for rate, match in matches.items()
            },
        }
        for share, threshold in description.thresholds.items()
    ]
    title = f"Quality thresholds on {calibration.faces:,} faces, and FNMR of the pairs whose two faces pass"
    print_rows(quality_rows, title=title)
    _show_groups(description, calibration)


def _show_groups(description: Description, calibration: Calibration) -> None:
    """A table for each attribute and share: the group's own threshold next to the one for all faces."""
    matches = calibration.matching.thresholds if calibration.matching else {}
    # The rate that people look at first; --json has all of them.
    fmr = min(matches, key=lambda rate: abs(float(rate) - 1e-3), default="")
    others = calibration.non_faces
    for attribute, by_share in calibration.groups.items():
        for share, groups in by_share.items():
            rows = [
                {
                    "group": name,
                    "faces": group.faces,
                    "accepted (95%)": _with_interval(group.accepted, group.ci95),
                    "own min. quality": group.quality,
                    f"FNMR at FMR {fmr}": _rate(group.errors, fmr, "fnmr"),
                    "own FNMR": _rate(group.own_errors, fmr, "fnmr"),
                    "FMR": _rate(group.errors, fmr, "fmr"),
                    "own FMR": _rate(group.own_errors, fmr, "fmr"),
                    "non-faces with own": group.non_faces,
                }
                for name, group in groups.items()
            ]
            minimum = description.thresholds[share].quality
            let_through = f", {others.accepted[share]:.4f} of the non-faces" if others is not None else ""
            title = f"Groups by {attribute}: quality {minimum:.4f} keeps {share} of all faces{let_through}"
            print_rows(rows, title=title)
    if others is not None and not calibration.groups:
        title = f"Share of {others.images:,} non-faces that each quality threshold lets through"
        print_rows([*others.accepted.items()], [("keep", itemgetter(0)), ("non-faces", itemgetter(1))], title)


def _rate(errors: Mapping[str, MatchErrors], fmr: str, name: str) -> Text | None:
    rate = getattr(errors[fmr], name).rate if fmr in errors else None
    return None if rate is None else number(f"{rate:.4g}")


def _with_interval(rate: float | None, ci95: tuple[float, float] | None, form: str = ".4f") -> Text | None:
    if rate is None:
        return None
    return number(f"{rate:{form}}" if ci95 is None else f"{rate:{form}} [{ci95[0]:{form}}, {ci95[1]:{form}}]")
