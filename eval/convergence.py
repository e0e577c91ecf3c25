"""How far training runs have learned their own images, and whether RTS's scales have settled.

python eval/convergence.py out/converging random_logit_scale_32 arcface_logit_scale_32 --values values.csv
python eval/convergence.py values.csv random_logit_scale_32 arcface_logit_scale_32

Reads the runs LABEL_seedN that eval/train_and_evaluate.py has written into a folder, and embeds their training images
without augmentation, or reads the values that it has added to a CSV file. In the table, as means over the seeds:

- training accuracy: share of the images that are nearer to their own class center than to any other, in percent;
- v: RTS's, its 5th, 50th and 95th percentile; its range is the 95th over the 5th, minus 1, in percent;
- gap: mean of Σ_k p_k s_k − s_c, how far an image's own logit is below the mean of all by the network's probabilities;
  with the margin, at the mean temperature;
- λ(v − 1)/2: what the gap is where the loss is at its minimum over the scales of each image;
- correlation: Spearman's, of v with the image's own gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from common import number, parser_of, run, runs_of
from numpy.typing import NDArray
from run_values import add_values, by_seed
from scipy.stats import spearmanr
from torch import Tensor

from facerts.evaluation.labeled import split_label
from facerts.report.table import markdown_table
from facerts.training.classifier import Classifier, load_classifier
from facerts.training.loader import TrainingData
from facerts.training.methods.margin import additive_angular
from facerts.training.methods.rts import RTSConfig, mean_temperature
from facerts.training.network_embedder import to_network_input

BATCH = 256
# The table's columns: what their values are multiplied by, and how they are printed.
ACCURACY = "training accuracy"
COLUMNS = {
    ACCURACY: (100, ".2f"),
    "v: 5%": (1, ".3f"),
    "v: 50%": (1, ".3f"),
    "v: 95%": (1, ".3f"),
    "range of v": (100, ".1f"),
    "gap of the logits": (1, ".2f"),
    "λ(v − 1)/2": (1, ".2f"),
    "correlation": (1, ".2f"),
}
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Learned:
    """What a run has made of its N training images.

    Attributes:
        accuracy: share of images nearer to their own center than to any other.
        uncertainty: ``(N,)`` v; NaN for methods without one.
        gap: ``(N,)``; NaN likewise.
        balance: λ(v̄ − 1)/2; NaN likewise.
    """

    accuracy: float
    uncertainty: Floats
    gap: Floats
    balance: float

    def values(self) -> dict[str, float]:
        """What the table shows; for methods without v, the accuracy alone."""
        if np.isnan(self.balance):
            return {ACCURACY: self.accuracy}
        low, middle, high = np.percentile(self.uncertainty, (5, 50, 95))
        correlation = spearmanr(self.uncertainty, self.gap).statistic
        measured = (
            *(self.accuracy, low, middle, high, high / low - 1),
            *(self.gap.mean(), self.balance, correlation),
        )
        return dict(zip(COLUMNS, map(float, measured), strict=True))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("runs", type=Path, help="Folder of the runs LABEL_seedN, or a file of --values.")
    parser.add_argument("labels", nargs="+", metavar="[NAME=]LABEL", help="Rows.")
    parser.add_argument("--values", type=Path, metavar="CSV", help="File to add each run's values to.")
    options = parser.parse_args()
    rows = []
    for text in options.labels:
        name, label = split_label(text)
        if options.runs.is_file():
            found = by_seed(options.runs, label)
        else:
            found = {seed: learned(folder).values() for seed, folder in runs_of(options.runs, label).items()}
            if options.values:
                add_values(options.values, {(label, seed): values for seed, values in found.items()})
        rows.append([name or label, str(len(found)), *cells(list(found.values()))])
    print(markdown_table(["", "seeds", *COLUMNS], rows))


def cells(runs: Sequence[Mapping[str, float]]) -> list[str]:
    """The means over the runs; a dash for what they have not."""
    return [
        number(float(np.mean([run[name] for run in runs])) * factor, form=form)
        if all(name in run for run in runs)
        else "–"
        for name, (factor, form) in COLUMNS.items()
    ]


@torch.no_grad()
def learned(folder: Path) -> Learned:
    """Measure a run on its training images."""
    classifier = load_classifier(folder)
    source = TrainingData(classifier.recipe).source
    assert source.labels is not None
    right: list[NDArray[np.bool_]] = []
    scales: list[Tensor] = []
    gaps: list[Tensor] = []
    for at in range(0, len(source), BATCH):
        rows = range(at, min(at + BATCH, len(source)))
        crops = torch.from_numpy(np.stack([source.crop(row) for row in rows]))
        outputs = classifier.network(to_network_input(crops))
        cosine = classifier.centers.cosines(outputs["embedding"])
        labels = torch.from_numpy(source.labels[at : at + BATCH])
        right.append((cosine.argmax(dim=1) == labels).numpy())
        if isinstance(classifier.method.config, RTSConfig):
            scales.append(outputs["log_scale"].exp())
            gaps.append(gap(classifier, cosine, labels, scales[-1]))
    accuracy = float(np.concatenate(right).mean())
    if not scales:
        nothing = np.full(len(source), np.nan)
        return Learned(accuracy, nothing, nothing, float("nan"))
    v = torch.cat(scales).mean(dim=1).double().numpy()
    weight = float(classifier.method.config.kl_weight)
    return Learned(accuracy, v, torch.cat(gaps).double().numpy(), weight * float(v.mean() - 1) / 2)


def gap(classifier: Classifier, cosine: Tensor, labels: Tensor, v: Tensor) -> Tensor:
    """``(B,)`` Σ_k p_k s_k − s_c of cosines ``(B, C)`` and scales ``(B, δ)`` or ``(B, 1)``."""
    settings = classifier.method.config
    rows = torch.arange(len(labels))
    own = additive_angular(cosine[rows, labels], settings.margin)
    temperature = (
        mean_temperature(v, settings.degrees) if settings.temperature != "none" else torch.ones(len(v))
    )
    logits = settings.logit_scale * cosine.index_put((rows, labels), own) / temperature.unsqueeze(1)
    return (logits.softmax(dim=1) * logits).sum(dim=1) - logits[rows, labels]


if __name__ == "__main__":
    run(main)
