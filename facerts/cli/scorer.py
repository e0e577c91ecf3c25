"""The scorer that a command's options ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from facerts.scoring import Scorer


def open_scorer(
    model: str | None,
    detector: str,
    det_threshold: float | None,
    resize_crops: bool,
    batch_size: int | None,
    threads: int,
    provider: list[str] | None,
) -> Scorer:
    """See ``facerts.load``; the parameters are those of ``facerts.cli.options``."""
    from facerts.scoring import load

    return load(
        model,
        detector=detector,
        det_threshold=det_threshold,
        resize_crops=resize_crops,
        batch_size=batch_size,
        threads=threads,
        providers=provider,
    )
