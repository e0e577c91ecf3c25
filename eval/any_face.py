"""Whether a quality is right about any face: how many faces of each set it keeps, and how many it calls no face.

python eval/any_face.py --data $FACERTS_DATA --models $FACERTS_MODELS --non-faces held_out.tar \\
    --quality facerts-quality other.onnx

Sets: LFW, All-Age-Faces, CFP frontal and profile, RAF-DB as it comes (tight) and aligned anew by YuNet, Families in the
Wild in color, the same made gray, and monochrome (the model learned from Families in the Wild), MFR2 with and without a
mask; and what shows no face: pets not for development, and crops of eval/quality_alone/non_faces.py --held-out. Faces
are kept at or above the model's threshold that keeps 95% of the calibration faces, if they are not called no face.
Intervals are Wilson's at 95%.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from common import parser_of, run, share
from numpy.typing import NDArray

from facerts.datasets import Source, Subset, open_source
from facerts.detection import open_detector
from facerts.embedding.onnx_embedder import OnnxModel, OnnxQuality
from facerts.hub.find import find_model
from facerts.images.align import align
from facerts.images.changes import apply_change
from facerts.metrics.verification import auroc
from facerts.report.table import markdown_table

KEEP = "0.95"
BATCH = 256
# Means of the differences between channels, in levels, below which an image is monochrome.
MAX_CHROMA = 2.0
# Where a photo would go on around an aligned crop.
MARGIN = 56

Crops = NDArray[np.uint8]


def sets(data: Path, models: Path) -> Iterator[tuple[str, Crops]]:
    """Name and crops ``(N, 112, 112, 3)`` of each set of faces."""
    yield "LFW", crops_of(data / "lfw")
    yield "All-Age-Faces", crops_of(data / "aaf")
    cfp = open_source(data / "cfp" / "Data")
    for side in ("frontal", "profile"):
        yield f"CFP, {side}", crops_of(cfp, side)
    raf = crops_of(data / "rafdb")
    yield "RAF-DB as it comes", raf
    yield "RAF-DB, aligned anew", realigned(raf, models)
    fiw = crops_of(data / "faces" / "fiw-000000.tar")
    levels = fiw.astype(np.int16)
    chroma = np.abs(levels - levels.mean(axis=3, keepdims=True)).mean(axis=(1, 2, 3))
    color = fiw[chroma >= MAX_CHROMA]
    yield "Families in the Wild, color", color
    yield "Families in the Wild, color made gray", np.stack([apply_change(crop, "gray", 1) for crop in color])
    yield "Families in the Wild, monochrome", fiw[chroma < MAX_CHROMA]
    mfr2 = open_source(data / "mfr2")
    worn = {}
    for line in (data / "mfr2" / "mfr2_labels.txt").read_text().splitlines():
        name, number, kind = (part.strip() for part in line.split(","))
        worn[f"{name}_{int(number):04d}"] = kind != "no-mask"
    masked = np.array([worn[Path(mfr2.key(row)).stem] for row in range(len(mfr2))])
    for name, rows in (("without a mask", np.flatnonzero(~masked)), ("with a mask", np.flatnonzero(masked))):
        yield f"MFR2, {name}", crops_of(Subset(mfr2, rows))


def crops_of(source: Source | Path, part: str = "") -> Crops:
    """All crops of a source, or those with a part of their path."""
    if isinstance(source, Path):
        source = open_source(source)
    rows = [row for row in range(len(source)) if part in source.key(row)]
    return np.stack([source.crop(row) for row in rows])


def realigned(crops: Crops, models: Path) -> Crops:
    """The crops in which YuNet finds a face, aligned by its points."""
    detector = open_detector(models / "face_detection_yunet_2023mar.onnx")
    found = []
    for crop in crops:
        photo = np.pad(crop, ((MARGIN, MARGIN), (MARGIN, MARGIN), (0, 0)))
        faces = detector(photo)
        if faces:
            found.append(align(photo, max(faces, key=lambda face: face.area).points))
    return np.stack(found)


def outputs(model: OnnxModel, crops: Crops) -> dict[str, NDArray[np.float64]]:
    """Quality, and the outputs about non-faces and covered faces that the model has, ``(N,)`` each."""
    parts = [model.tensors(crops[start : start + BATCH]) for start in range(0, len(crops), BATCH)]
    found = {"quality": np.concatenate([model.quality_of(part) for part in parts])}
    for name in ("not_a_face", "covered"):
        if name in parts[0]:
            found[name] = np.concatenate([part[name].reshape(-1) for part in parts])
    return {name: values.astype(np.float64) for name, values in found.items()}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--non-faces", type=Path)
    parser.add_argument("--quality", nargs="+", default=["facerts-quality"])
    options = parser.parse_args()
    faces = dict(sets(options.data, options.models))
    things = {"pets": crops_of(open_source(str(options.data / "pets" / "*[!01].jpg")))}
    if options.non_faces:
        source = open_source(options.non_faces)
        for kind in sorted({Path(source.key(row)).name.split("_")[0] for row in range(len(source))}):
            things[f"held-out non-faces: {kind}"] = crops_of(source, f"{kind}_")
    for name in options.quality:
        model = OnnxQuality(find_model(name))
        threshold = model.description.thresholds[KEEP].quality
        found = {label: outputs(model, crops) for label, crops in {**faces, **things}.items()}
        rows = []
        for label, values in found.items():
            is_face = values.get("not_a_face", np.full(len(values["quality"]), -1.0)) <= 0
            kept = is_face & (values["quality"] >= threshold)
            covered = share(values["covered"] > 0) if "covered" in values else "–"
            rows.append([label, f"{len(kept):,}", share(kept), share(~is_face), covered])
        print(f"\n{name}\n\n{markdown_table(['set', 'images', 'kept', 'not a face', 'covered'], rows)}")
        print(f"\n{markdown_table(['faces', 'AUROC, not_a_face', 'TNR at TPR 95%', 'AUROC, quality'], pets(found))}")
        if "covered" in found["LFW"]:
            worn, bare = (found[f"MFR2, {side} a mask"]["covered"] for side in ("with", "without"))
            flags = np.repeat([True, False], [len(worn), len(bare)])
            print(f"\ncovered: AUROC of MFR2's masks {auroc(np.concatenate([worn, bare]), flags):.4f}")


def pets(found: dict[str, dict[str, NDArray[np.float64]]]) -> list[list[str]]:
    """How well outputs separate faces from pets, a row for each set."""
    together = ("LFW", "All-Age-Faces", "RAF-DB as it comes")
    rows = []
    for label, names in [*((name, [name]) for name in together), ("all three", list(together))]:
        cells = [label]
        for output, sign in (("not_a_face", -1.0), ("quality", 1.0)):
            if output not in found["pets"]:
                cells += ["–", "–"] if output == "not_a_face" else ["–"]
                continue
            of_faces = sign * np.concatenate([found[name][output] for name in names])
            of_pets = sign * found["pets"][output]
            flags = np.repeat([True, False], [len(of_faces), len(of_pets)])
            cells.append(f"{auroc(np.concatenate([of_faces, of_pets]), flags):.4f}")
            if output == "not_a_face":
                cells.append(f"{np.mean(of_pets < np.quantile(of_faces, 0.05)):.4f}")
        rows.append(cells)
    return rows


if __name__ == "__main__":
    run(main)
