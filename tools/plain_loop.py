"""A conventional training step to compare ours with: eager, NCHW, autocast, all B x C logits at once.

Network, precision and optimizer are those of a recipe; nothing is compiled, chunked or fused.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.losses.margin import additive_angular
from facerts.nn import build_network
from facerts.nn.device import AUTOCAST, choose_device, choose_precision
from facerts.training.loader import Batch
from facerts.training.recipe import Recipe


class PlainLearner:
    """ArcFace on a recipe's network, with the interface of ``facerts.training.learner.Learner``."""

    def __init__(self, recipe: Recipe, identities: int) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe = recipe
        self.device = choose_device(recipe.compute.device)
        self.precision = choose_precision(recipe.compute.precision, self.device)
        backbone = recipe.backbone
        self.network = build_network(
            backbone.name,
            embedding_size=backbone.embedding_size,
            heads={},
            width=backbone.width,
            dropout=backbone.dropout,
        ).to(self.device)
        self.weight = nn.Parameter(torch.empty(identities, backbone.embedding_size, device=self.device))
        nn.init.normal_(self.weight, std=0.01)
        self.optimizer = torch.optim.SGD(
            [p for p in (*self.network.parameters(), self.weight) if p.requires_grad],
            lr=recipe.optim.lr,
            momentum=recipe.optim.momentum,
            weight_decay=recipe.optim.weight_decay,
        )
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")

    def forward(self, images: Tensor) -> Tensor:
        dtype = AUTOCAST[self.precision]
        with torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None):
            return self.network(images)["embedding"]

    def _loss(self, embedding: Tensor, labels: Tensor) -> Tensor:
        cosine = F.linear(F.normalize(embedding), F.normalize(self.weight)).clamp(-1, 1)
        index = labels.unsqueeze(1)
        target = additive_angular(cosine.gather(1, index).squeeze(1), 0.5)
        return F.cross_entropy(cosine.scatter(1, index, target.unsqueeze(1)) * 64, labels)

    def step(self, batch: Batch, step: int, learning_rate: float) -> Tensor:
        self.network.train()
        images = batch.crops.to(self.device).permute(0, 3, 1, 2).contiguous().float().sub_(127.5).div_(127.5)
        loss = self._loss(self.forward(images), batch.labels)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()
