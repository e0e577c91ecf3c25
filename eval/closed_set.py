"""Classification of held-out images of the people trained on, as in ESupCon's Tables 1 to 4 and Fig. 2.

python eval/closed_set.py split 'train-00000[01].tar' --out closed_set
CLOSED_SET=closed_set python eval/train_and_evaluate.py @eval/papers/closed_set.args --out out/closed_set
CLOSED_SET=closed_set python eval/train_and_evaluate.py @eval/papers/closed_set.args \\
    @eval/papers/settings/closed_set_noise.args --out out/closed_set_noise
python eval/closed_set.py table out/closed_set closed_set/test.tar CE=ce "SupCon + CE=supcon_ce" \\
    "SupCon + tightness=tightness" SPCE=spce "SPCE(M)=spce:means" ESupCon=esupcon

`split` writes train.tar and test.tar: of each person with enough images, test.tar has one at random, or --test-images.

`table` reads the runs LABEL_seedN of a folder. A row is [NAME=]LABEL[:means]. It classifies by the cosine to the class
centers that the run has learned, or to the means of the embeddings of the images that it was trained on. Columns:

- accuracy: in percent, the mean over the runs of a row, with the 95% interval over the people, which takes the
  networks as given; then its difference from the first row's, on the same people.
- ECE: expected calibration error in percent, in 15 bins of equal width. The classifier's probabilities are the softmax
  over γ times the cosines. γ is chosen on the images of half of the people, and measured on those of the others.
- γ: the mean of those chosen.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from common import Counts, number, open_people, parser_of, percent, resampled_rate, run, runs_of
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from facerts.curation.output_spec import write_shard
from facerts.datasets import Source
from facerts.datasets.encoded_images import encoded_images, order_by_identity
from facerts.embedding.embed import embed_source
from facerts.errors import DataError, Error
from facerts.evaluation.labeled import split_label
from facerts.metrics.intervals import percentile_interval
from facerts.report.table import markdown_table
from facerts.training.classifier import Classifier, load_classifier
from facerts.training.harder_data import kept_images
from facerts.training.loader import TrainingData
from facerts.training.network_embedder import NetworkEmbedder

TRAIN, TEST = "train.tar", "test.tar"
MEANS = ":means"
BINS = 15
# γ lies between these, and is found to within a thousandth of itself.
SCALES, HALVINGS = (0.1, 1e4), 14
# Methods, and what they contrast, whose centers stay as they were initialized.
WITHOUT_CENTERS = {("supcon", None), ("tau", None), ("tempnet", "batch")}


@dataclass(frozen=True)
class Classified:
    """What a classifier says of the test images.

    Attributes:
        correct: ``(N,) bool``.
        error: ECE at the chosen scale.
        scale: γ.
    """

    correct: NDArray[np.bool_]
    error: float
    scale: float


def main() -> None:
    options = arguments()
    if options.command == "split":
        split(options)
    else:
        table(options)


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    splitting = commands.add_parser("split", help="Hold out images of every person with enough of them.")
    splitting.add_argument("data", nargs="+", help="Faces with identities.")
    splitting.add_argument("--out", type=Path, required=True, help=f"Folder for {TRAIN} and {TEST}.")
    splitting.add_argument(
        "--test-images", type=int, default=1, help="Held-out images of a person (default: 1)."
    )
    splitting.add_argument(
        "--left", type=int, default=2, help="Images of a person that must be left to train on (default: 2)."
    )
    splitting.add_argument("--seed", type=int, default=0, help="Seed of the choice (default: 0).")
    comparing = commands.add_parser("table", help="Compare runs on the held-out images.")
    comparing.add_argument("runs", type=Path, help="Folder of the runs LABEL_seedN.")
    comparing.add_argument("test", help="The held-out images.")
    comparing.add_argument(
        "rows", nargs="+", metavar=f"[NAME=]LABEL[{MEANS}]", help="Rows; the first is the reference."
    )
    comparing.add_argument("--threads", type=int, default=1, help="CPU threads (default: 1).")
    return parser.parse_args()


def split(options: argparse.Namespace) -> None:
    """Write the images to train on and those to test on.

    Raises:
        DataError: nobody has enough images.
    """
    source, labels = open_people(options.data)
    chosen = kept_images(labels, images_per_identity=options.test_images, imbalance=1.0, seed=options.seed)
    enough = np.bincount(labels) >= options.test_images + options.left
    tested = np.zeros(len(source), dtype=bool)
    tested[chosen[enough[labels[chosen]]]] = True
    if not tested.any():
        raise DataError(
            f"{source.name}: nobody has {options.test_images + options.left} images; lower --test-images or --left"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    for name, kept in ((TRAIN, ~tested), (TEST, tested)):
        order = order_by_identity(source, kept)
        write_shard(options.out / name, encoded_images(source, order, f"writing {name}"))
        people = len(np.unique(labels[kept]))
        print(f"{options.out / name}: {len(order)} images of {people} people")


def table(options: argparse.Namespace) -> None:
    """Print the comparison of the rows."""
    torch.set_num_threads(options.threads)
    test, people = open_people(options.test)
    half = np.random.default_rng(0).permutation(len(test.identities)) < len(test.identities) // 2
    if half.sum() < 2:
        raise DataError(f"{test.name}: {len(test.identities)} people are too few to choose γ on half of them")
    total = np.bincount(people).astype(np.float64)
    lines, reference = [], None
    for text in options.rows:
        name, label = split_label(text)
        found = [
            classify(load_classifier(folder), test, half[people], means=label.endswith(MEANS))
            for folder in runs_of(options.runs, label.removesuffix(MEANS)).values()
        ]
        correct = np.mean([each.correct for each in found], axis=0)
        rates = resampled_rate(np.bincount(people, correct), total)
        difference = "–" if reference is None else with_interval(rates - reference, "+.2f")
        reference = rates if reference is None else reference
        lines.append(
            [
                name or label,
                str(len(found)),
                with_interval(rates, ".2f"),
                difference,
                percent(float(np.mean([each.error for each in found]))),
                number(float(np.mean([each.scale for each in found])), form=".1f"),
            ]
        )
    print(markdown_table(["", "seeds", "accuracy", f"minus {lines[0][0]}", "ECE", "γ"], lines))


def classify(
    classifier: Classifier, test: Source, chosen_on: NDArray[np.bool_], *, means: bool
) -> Classified:
    """Classify the test images.

    Args:
        chosen_on: ``(N,)`` which images γ is chosen on; the others measure the ECE.
        means: whether the centers are the means of the training images' embeddings, instead of those learned.

    Raises:
        DataError: the run was not trained on these people, or has learned no centers.
    """
    method = classifier.method
    embedder = NetworkEmbedder(classifier.network, method)
    training = TrainingData(classifier.recipe).source
    # As the run saw it: without the images that its recipe leaves out, and with its wrong labels.
    assert training.labels is not None
    rows = {name: row for row, name in enumerate(training.identities)}
    strangers = [name for name in test.identities if name not in rows]
    if strangers or len(rows) != classifier.identities:
        who = (
            f"{strangers[0]} is not one of them" if strangers else f"{len(rows)} people are in the images now"
        )
        raise DataError(f"{classifier.path}: was trained on {classifier.identities} people, but {who}")
    assert test.labels is not None
    labels = torch.tensor([rows[name] for name in test.identities])[test.labels]
    if means:
        embedding = torch.from_numpy(embed_source(embedder, training, flip=False).embedding)
        centers = torch.zeros(len(rows), embedding.shape[1])
        centers.index_add_(0, torch.from_numpy(training.labels), embedding)
    elif (method.name, getattr(method.config, "contrast", None)) in WITHOUT_CENTERS:
        raise Error(f"{classifier.path}: {method.name} learns no class centers; add {MEANS} to its label")
    else:
        centers = classifier.centers.weight.cpu()
    embedding = torch.from_numpy(embed_source(embedder, test, flip=False).embedding)
    cosines = embedding @ F.normalize(centers).T
    correct = cosines.argmax(dim=1) == labels
    fitted = torch.from_numpy(chosen_on)
    scale = softmax_scale(cosines[fitted], labels[fitted])
    confidence = (scale * cosines[~fitted]).softmax(dim=1).amax(dim=1)
    error = calibration_error(confidence.double().numpy(), correct[~fitted].numpy())
    return Classified(correct.numpy(), error, scale)


def softmax_scale(cosines: Tensor, labels: Tensor) -> float:
    """The γ whose softmax over γ cos θ has the least cross-entropy, which is convex in γ.

    Args:
        cosines: ``(N, C)``.
        labels: ``(N,)``.
    """
    own = cosines.gather(1, labels.unsqueeze(1)).mean()
    low, high = (math.log(scale) for scale in SCALES)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        # The derivative of the cross-entropy: the expected cosine, minus that to the own center.
        probability = (math.exp(middle) * cosines).softmax(dim=1)
        rises = bool((probability * cosines).sum(dim=1).mean() > own)
        low, high = (low, middle) if rises else (middle, high)
    return math.exp((low + high) / 2)


def calibration_error(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> float:
    """Expected calibration error: the mean difference between confidence and accuracy of a bin, by its images."""
    bin_of = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    return float(np.abs(np.bincount(bin_of, confidence - correct)).sum() / len(confidence))


def with_interval(rates: Counts, form: str) -> str:
    """A rate, the first, with the interval of its resamples, in percent."""
    return percent(rates[0], percentile_interval(rates[1:]), form=form)


if __name__ == "__main__":
    run(main)
