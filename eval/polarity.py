"""Which way a model's uncertainty points: its median on faces that are made worse step by step.

python eval/polarity.py --model m.onnx --faces faces/val-000000.tar
"""

from __future__ import annotations

import argparse

import numpy as np

from facerts.data import open_pictures
from facerts.degrade import KINDS, degrade
from facerts.embedder import load_embedder
from facerts.metrics.verification import auroc

STRENGTHS = (0.25, 0.5, 0.75, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--faces", required=True, help="aligned faces that the model was not trained on")
    parser.add_argument("--pictures", type=int, default=500)
    options = parser.parse_args()
    embedder, source = load_embedder(options.model), open_pictures(options.faces)
    rows = np.unique(np.linspace(0, len(source) - 1, options.pictures).astype(int)).tolist()
    faces = [source.crop(row) for row in rows]

    def uncertainty(crops: list[np.ndarray]) -> np.ndarray:
        values = embedder(np.stack(crops)).uncertainty
        assert values is not None, f"{options.model} has no uncertainty"
        return values

    clean = uncertainty(faces)
    print(f"{len(faces)} faces as they are: median {np.median(clean):.4f}")
    print(
        "| kind | " + " | ".join(f"{strength:g}" for strength in STRENGTHS) + " | worse above clean, AUROC |"
    )
    print("|" + "---|" * (len(STRENGTHS) + 2))
    for kind in KINDS:
        worse = [
            uncertainty(
                [degrade(face, kind, strength, (0, row)) for row, face in zip(rows, faces, strict=True)]
            )
            for strength in STRENGTHS
        ]
        hardest = auroc(np.concatenate([worse[-1], clean]), np.repeat([True, False], len(faces)))
        print(
            f"| {kind} | "
            + " | ".join(f"{np.median(values):.4f}" for values in worse)
            + f" | {hardest:.4f} |"
        )


if __name__ == "__main__":
    main()
