"""Glossary of the terms that a report uses."""

from __future__ import annotations

import re
from html import unescape
from typing import NamedTuple


class Term(NamedTuple):
    """A term, the pattern that finds it on a page, and what it means."""

    name: str
    pattern: str
    meaning: str


TERMS = (
    Term("Genuine pair", r"genuine|same-person", "Two images of one person (a mated pair)."),
    Term("Impostor pair", r"impostor|different-person", "Two images of two people (a non-mated pair)."),
    Term(
        "Similarity",
        r"similarit",
        "How similar two faces are to a model: the cosine of the angle between their embeddings, at most 1, unless "
        "another measure is named. A pair matches if its similarity is at or above a threshold.",
    ),
    Term(
        "Embedding", r"embedding", "The list of numbers that a model computes for a face; similar faces have "
        "similar embeddings."
    ),
    Term(
        "Accuracy",
        r"accuracy|correctly",
        "Share of the pairs that are decided correctly. Each fold of a benchmark uses the threshold that is "
        "best on the others.",
    ),
    Term(
        "FMR",
        r"FMR|false match",
        "False match rate: the share of impostor pairs that are taken for one person. Here it is the same as FAR, the "
        "false accept rate.",
    ),
    Term(
        "FNMR",
        r"FNMR|misses|non-match",
        "False non-match rate: the share of genuine pairs that are taken for two people. TAR, the true accept rate, is "
        "1 − FNMR, so TAR at FAR says the same as FNMR at FMR.",
    ),
    Term("EER", r"\bEER\b", "Equal error rate: FMR and FNMR at the threshold where both are the same."),
    Term("DET curve", r"DET curve", "Detection error tradeoff: FNMR against FMR for all thresholds."),
    Term(
        "AUROC",
        r"AUROC",
        "Area under the ROC curve: the probability that a score ranks a random positive above a random "
        "negative, a genuine pair above an impostor pair or a face above a non-face. 50% is chance, 100% is perfect.",
    ),
    Term(
        "AUPR",
        r"AUPR",
        "Area under the precision-recall curve, with faces as the positive class. The chance level is the share "
        "of faces.",
    ),
    Term("TPR", r"TPR|keeps", "True positive rate: the share of faces at or above the threshold, which are kept."),
    Term("TNR", r"TNR|non-faces", "True negative rate: the share of non-faces below the threshold, which are "
        "rejected."),
    Term(
        "Quality",
        r"quality",
        "A number for one image that says how much its embedding can be trusted; higher is better. Each model has "
        "its own scale. The quality of a pair is that of its worse image, unless another rule is named.",
    ),
    Term("Norm", r"\bnorm\b", "Length of an embedding before it is scaled to 1; a quality that needs no training."),
    Term("Sharpness", r"sharpness", "Variance of the crop's Laplacian; a quality that needs no model."),
    Term(
        "Accepted",
        r"accepted (by|share|least)",
        "An image whose quality is at or above a threshold. Errors of accepted images are those of pairs whose two "
        "images are accepted.",
    ),
    Term(
        "Error versus reject",
        r"error versus reject|left out",
        "FNMR of the genuine pairs that remain when those of lowest quality are left out, at a fixed threshold "
        "unless stated otherwise. An uninformative quality does not change FNMR, like random rejection; the best "
        "possible quality leaves out the misses first.",
    ),
    Term("pAUC", r"pAUC", "Partial area under the curve of error versus reject, divided by its width: the mean FNMR "
        "while 0 to 20% (or 95%) are left out."),
    Term("Mated", r"\bmated", "A search for a person who is in the gallery; non-mated: for a person who is not."),
    Term("Rank k", r"\brank \d", "The person searched for is among the k most similar people of the gallery."),
    Term("FPIR", r"FPIR", "False positive identification rate: the share of searches for people outside the "
        "gallery that find somebody."),
    Term(
        "FNIR",
        r"FNIR",
        "False negative identification rate: the share of searches for enrolled people in which the person is not "
        "ranked first, or scores below the threshold.",
    ),
    Term(
        "Interval",
        r"interval",
        "95% bootstrap interval, in brackets: how much a number varies when people (or pairs or images) are "
        "resampled. It does not cover other data or other training runs.",
    ),
    Term("Percentile", r"percentile", "The 5th percentile is the number that 5% of the values lie below."),
    Term("Median", r"median", "The number that half of the values lie below."),
    Term(
        "Percentage point",
        r"percentage point",
        "Unit of a difference of two percentages: from 8% to 6% is 2 percentage points.",
    ),
    Term("p-value", r"\bp \d", "The probability of a difference at least as large by chance alone."),
    Term("Spearman's ρ", r"ρ", "Rank correlation, from −1 to 1; 0 means none."),
    Term("Uncertainty v", r"uncertainty", "A number that RTS learns for each image besides the embedding; low "
        "for good faces."),
)  # fmt: skip


def terms_of(page: str) -> list[Term]:
    """The terms that a page uses, as HTML of which tags and styles do not count."""
    text = unescape(re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL))
    return [term for term in TERMS if re.search(term.pattern, text, re.IGNORECASE)]
