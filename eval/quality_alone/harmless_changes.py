"""What a quality makes of harmless changes: those after which recognizers still find a cosine of 0.94 or more.

facerts evaluate corruptions --model facerts-quality --recognizer mobilefacenet.onnx --data lfw --out out
python eval/quality_alone/harmless_changes.py out other_out

For each result folder, a line for the kinds that are trained on and one for those held out: harmless changes (a kind at
a severity), the lowest share kept and its change, how many keep 92%, and the highest share called no face, of harmless
changes and of all, with the mean.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import parser_of, run

from facerts.evaluation.result_folder import load_result
from facerts.images.changes import CHANGES
from facerts.report.table import markdown_table

HARMLESS, KEPT = 0.94, 0.92
COLUMNS = [
    "result",
    "kinds",
    "harmless",
    "least kept",
    "change",
    "keep 92%",
    "no face, harmless",
    "all",
    "mean",
]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="Folders of facerts evaluate corruptions.")
    rows = []
    for folder in parser.parse_args().results:
        result, arrays = load_result(folder)
        for source in result.of_kind("corruptions"):
            prefix = f"corruptions/{source}/"
            severity = arrays[f"{prefix}severity"]
            kinds = [kind for kind in CHANGES if f"{prefix}{kind}/kept" in arrays]
            for held_out in (False, True):
                changes = []
                for kind in kinds:
                    cosines, kept = (arrays[f"{prefix}{kind}/{name}"] for name in ("cosine to unchanged", "kept"))
                    no_face = arrays.get(f"{prefix}{kind}/not a face", np.zeros(len(cosines)))
                    if CHANGES[kind].held_out == held_out:
                        changes += [
                            (kept[step], no_face[step], cosines[step], f"{kind} {severity[step]:g}")
                            for step in range(1, len(cosines))
                        ]
                harmless = [change for change in changes if change[2] >= HARMLESS]
                least = min(harmless, default=(1.0, 0.0, 1.0, "–"))
                shares = [max((change[1] for change in some), default=0.0) for some in (harmless, changes)]
                mean = float(np.mean([change[1] for change in changes] or [0.0]))
                rows.append(
                    [folder.name, "held out" if held_out else "trained", f"{len(harmless)} of {len(changes)}"]
                    + [f"{least[0]:.3f}", least[3], f"{sum(change[0] >= KEPT for change in harmless)}"]
                    + [f"{share:.3f}" for share in (*shares, mean)]
                )
    print(markdown_table(COLUMNS, rows))


if __name__ == "__main__":
    run(main)
