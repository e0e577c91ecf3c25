"""Terms of a report that stand on its page without an explanation beside them."""

from __future__ import annotations

import re
from html import unescape

# Found on a page by their names.
TERMS = {
    "Genuine pair": "Two images of one person (a mated pair).",
    "Impostor pair": "Two images of two people (a non-mated pair).",
    "Similarity": "How similar two faces are to a model: the cosine of the angle between their embeddings, at most 1, "
    "unless another measure is named. A pair matches if its similarity is at or above a threshold.",
    "Embedding": "The list of numbers that a model computes for a face; similar faces have similar embeddings.",
    "FMR": "False match rate: the share of impostor pairs that are taken for one person. Here it is the same as FAR, "
    "the false accept rate.",
    "FNMR": "False non-match rate: the share of genuine pairs that are taken for two people. TAR, the true accept "
    "rate, is 1 − FNMR, so TAR at FAR says the same as FNMR at FMR.",
    "EER": "Equal error rate: FMR and FNMR at the threshold where both are the same.",
    "AUROC": "Area under the ROC curve: the probability that a score ranks a random positive above a random negative, "
    "a genuine pair above an impostor pair or a face above a non-face. 50% is chance, 100% is perfect.",
    "AUPR": "Area under the precision-recall curve, with faces as the positive class. The chance level is the share "
    "of faces.",
    "TPR": "True positive rate: the share of faces at or above the threshold, which are kept.",
    "TNR": "True negative rate: the share of non-faces below the threshold, which are rejected.",
    "Quality": "A number for one image that says how much its embedding can be trusted; higher is better. Each model "
    "has its own scale. The quality of a pair is that of its worse image, unless another rule is named.",
    "Norm": "Length of an embedding before it is scaled to 1; a quality that needs no training.",
    "Sharpness": "Variance of the crop's Laplacian; a quality that needs no model.",
    "Accepted image": "An image whose quality is at or above a threshold. Errors of accepted images are those of pairs "
    "whose two images are accepted.",
    "Error versus reject": "FNMR of the genuine pairs that remain when those of lowest quality are left out, at a "
    "fixed threshold unless stated otherwise. An uninformative quality does not change FNMR, like random rejection; "
    "the best possible quality leaves out the misses first.",
    "Mated": "A search for a person who is in the gallery; non-mated: for a person who is not.",
    "FPIR": "False positive identification rate: the share of searches for people outside the gallery that find "
    "somebody.",
    "FNIR": "False negative identification rate: the share of searches for enrolled people in which the person is not "
    "ranked first, or scores below the threshold.",
    "95% interval": "How much a number varies when people (or pairs or images) are resampled, in brackets. It does not "
    "cover other data or other training runs.",
    "Percentile": "Of a quality: the share, in percent, of the faces that the model was calibrated on which have a "
    "lower one.",
    "Percentage point": "Unit of a difference of two percentages: from 8% to 6% is 2 percentage points.",
    "p-value": "The probability of a difference at least as large by chance alone.",
    "ρ": "Spearman's rank correlation, from −1 to 1; 0 means none.",
    "Uncertainty": "RTS's v, a number that it learns for each image besides the embedding; low for good faces.",
}


def terms_of(page: str) -> dict[str, str]:
    """The terms that a page uses, as HTML of which tags and styles do not count, with what they mean."""
    text = unescape(re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL))
    return {term: meaning for term, meaning in TERMS.items() if re.search(rf"\b{term}", text, re.IGNORECASE)}
