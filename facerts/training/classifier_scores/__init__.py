"""Scores of a training run's classifier without further training, one file each; baselines for learned qualities.

The registry is a plain dict; ``classifier_embedder.load_run`` gives a run with its scores.
"""

from __future__ import annotations

from pydantic import ValidationError

from facerts.errors import Error, did_you_mean, problems_text
from facerts.training.classifier_scores.classifier import ClassifierScore
from facerts.training.classifier_scores.energy import Energy
from facerts.training.classifier_scores.max_logit import MaxLogit
from facerts.training.classifier_scores.max_softmax import MaxSoftmax
from facerts.training.classifier_scores.mc_dropout import MCDropout
from facerts.training.classifier_scores.newton_temperature import NewtonTemperature
from facerts.training.classifier_scores.odin import ODIN, PerturbedQuality
from facerts.training.classifier_scores.ser_fiq import SERFIQ

CLASSIFIER_SCORES: dict[str, type[ClassifierScore]] = {
    score.name: score
    for score in (MaxSoftmax, MaxLogit, ODIN, Energy, MCDropout, SERFIQ, NewtonTemperature, PerturbedQuality)
}


def parse_score(text: str) -> ClassifierScore:
    """Parse ``NAME`` or ``NAME:OPTION=VALUE,…``."""
    name, _, rest = text.partition(":")
    if name not in CLASSIFIER_SCORES:
        hint = did_you_mean(name, CLASSIFIER_SCORES) or f"; available: {', '.join(CLASSIFIER_SCORES)}"
        raise Error(f"no score {name!r}{hint} (--ensemble RUN gives the score of an ensemble)")
    known, options = CLASSIFIER_SCORES[name].model_fields, {}
    for part in rest.split(",") if rest else ():
        key, equals, value = part.partition("=")
        if not equals:
            raise Error(f"--score {text}: {part!r} is not of the form OPTION=VALUE")
        if key not in known:
            hint = did_you_mean(key, known) or f"; available: {', '.join(known)}"
            raise Error(f"--score {text}: {name} has no option {key!r}{hint}")
        options[key] = value
    try:
        return CLASSIFIER_SCORES[name].model_validate(options)
    except ValidationError as error:
        raise Error(f"--score {text}: {problems_text(error.errors())}") from error
