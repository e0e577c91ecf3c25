"""A method and its settings from what a command line gives, and whether features are enough for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import ValidationError

from facerts.errors import Error, did_you_mean
from facerts.training.methods import METHODS, Method
from facerts.training.plain_yaml import parse_yaml


def build_method(name: str, config: Any, embedding_size: int, seed: int) -> Method:
    """A method; what it keeps of its own is drawn by the seed, and nothing that a caller draws afterwards changes."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return METHODS[name](config, embedding_size)


def configure(name: str, overrides: Sequence[str]) -> Any:
    """A method's settings.

    Args:
        name: in the registry.
        overrides: ``key=value`` each.

    Raises:
        Error: no such method or setting, or a method that trains nothing but the embedding.
    """
    if name not in METHODS:
        raise Error(f"no method {name!r}{did_you_mean(name, METHODS)}")
    method = METHODS[name]
    fields: dict[str, Any] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise Error(f"{override!r}: a setting reads key=value, e.g. margin=0.4")
        if key not in method.Config.model_fields:
            raise Error(f"{name} has no setting {key!r}{did_you_mean(key, method.Config.model_fields)}")
        fields[key] = parse_yaml(value, f"{override!r}")
    try:
        config = method.Config(**fields)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
            for problem in error.errors()
        )
        raise Error(f"{name}: {problems}") from error
    if not _learns(name, config):
        fit = [known for known in METHODS if _learns(known, METHODS[known].Config())]
        raise Error(
            f"{name} trains the embedding alone, which stays as it is post hoc; there are {', '.join(fit)}"
        )
    return config


def _learns(name: str, config: Any) -> bool:
    """Whether a method has anything to train beside the embedding: heads, or parameters of its own."""
    method = build_method(name, config, 2, 0)
    return bool(method.heads()) or any(parameter.requires_grad for parameter in method.state.parameters())
