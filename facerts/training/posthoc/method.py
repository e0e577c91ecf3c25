"""Builds a method from the command line's settings, and checks that it can be trained on features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import ValidationError

from facerts.errors import Error, did_you_mean, problems_text
from facerts.training.methods import METHODS, Method
from facerts.training.plain_yaml import parse_yaml


def build_method(name: str, config: Any, embedding_size: int, seed: int) -> Method:
    """Build a method, with its own parameters drawn by the seed; PyTorch's global generator does not change."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return METHODS[name](config, embedding_size)


def configure(name: str, overrides: Sequence[str]) -> Any:
    """Parse the settings of a method.

    Args:
        name: name in the registry.
        overrides: settings of the form ``key=value``.

    Raises:
        Error: unknown method or setting, an invalid value, or a method that trains nothing but the embedding.
    """
    if name not in METHODS:
        raise Error(f"no method {name!r}{did_you_mean(name, METHODS)}")
    method = METHODS[name]
    fields: dict[str, Any] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise Error(f"{override!r}: not of the form key=value, e.g. margin=0.4")
        known = method.Config.setting_names()
        if key not in known:
            raise Error(f"{name} has no setting {key!r}{did_you_mean(key, known)}")
        fields[key] = parse_yaml(value, f"{override!r}")
    try:
        config = method.Config(**fields)
    except ValidationError as error:
        raise Error(f"{name}: {problems_text(error.errors())}") from error
    if not _learns(name, config):
        suitable = [known for known in METHODS if _learns(known, METHODS[known].Config())]
        raise Error(
            f"{name} trains only the embedding, which does not change post hoc; use one of {', '.join(suitable)}"
        )
    return config


def _learns(name: str, config: Any) -> bool:
    return build_method(name, config, 2, 0).learns_beside_embedding
