"""Any of torchvision's classifiers as a trunk: its network without the classifier, with random weights."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor, nn

from facerts.errors import Error, MissingExtraError, did_you_mean, first_line
from facerts.images import CROP_SIZE

# Names of these backbones begin with it: torchvision/mobilenet_v3_small.
PREFIX = "torchvision/"
# Where torchvision's classifiers have their last layers.
CLASSIFIERS = ("classifier", "fc", "head", "heads")


class TorchvisionTrunk(nn.Module):
    """The trunk: ``(B, 3, H, W)`` to ``(B, features)``, what the network gives its classifier, with dropout.

    ``name`` is that in torchvision's registry, such as ``mobilenet_v3_small``; ``width`` must be 1, as torchvision has
    networks of several widths.
    """

    def __init__(self, name: str, *, width: float = 1.0, dropout: float = 0.0, input_size: int = CROP_SIZE) -> None:
        super().__init__()
        models = _torchvision_models()
        if name not in (known := models.list_models(module=models)):
            raise Error(f"backbone.name: torchvision has no network {name!r}{did_you_mean(name, known)}")
        if width != 1:
            raise Error(
                f"backbone.width: {PREFIX}{name} has a width of its own; leave it out, or choose another of "
                "torchvision's networks, such as mnasnet0_5"
            )
        self.network: nn.Module = models.get_model(name, weights=None)
        for classifier in CLASSIFIERS:
            if hasattr(self.network, classifier):
                setattr(self.network, classifier, nn.Identity())
                break
        else:
            raise Error(f"backbone.name: {PREFIX}{name} has no classifier of a kind known here; choose another")
        self.dropout = nn.Dropout(dropout)
        self.features = self._count_features(name, input_size)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.dropout(torch.flatten(self.network(images), 1))
        return features

    @torch.no_grad()
    def _count_features(self, name: str, size: int) -> int:
        self.eval()
        try:
            features = self(torch.zeros(1, 3, size, size))
        except (RuntimeError, TypeError, AssertionError) as error:
            raise Error(
                f"backbone.name: {PREFIX}{name} does not classify images of {size} x {size} pixels "
                f"({first_line(error)}); choose another network, or another backbone.input_size"
            ) from error
        finally:
            self.train()
        return int(features.shape[1])


def _torchvision_models() -> ModuleType:
    try:
        # Not at the top: beside a PyTorch of another build, it cannot be imported.
        from torchvision import models
    except (ImportError, RuntimeError) as error:
        raise MissingExtraError(
            f"backbones {PREFIX}NAME need a torchvision of the same build as PyTorch ({first_line(error)}): install "
            "both together, such as pip install torch torchvision"
        ) from error
    result: ModuleType = models
    return result
