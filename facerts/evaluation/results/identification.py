"""Identification (1:N): the section ``identification[SET]`` of a result."""

from __future__ import annotations

from pydantic import Field

from facerts.evaluation.results.base import ByRate, Count, Interval, ResultPart


class RankRate(ResultPart):
    """How often a probe's person is among the first k people of the gallery."""

    value: float = Field(description="Share of the mated probes.")
    ci95: Interval = Field(description="95 % interval of `value`.")


class FnirAtFpir(ResultPart):
    """Probes that are missed at the threshold that a share of the non-mated probes reach."""

    value: float = Field(
        description="False negative identification rate: the share of mated probes that are missed."
    )
    achieved_fpir: float = Field(description="Share of the non-mated probes at or above the threshold.")
    threshold: float | None = Field(
        description="Similarity from which a probe is identified; null where none is."
    )
    non_mated: Count = Field(description="Non-mated probes.")
    ci95: Interval = Field(description="95 % interval of `value`.")


class GallerySearch(ResultPart):
    """One gallery, searched with one pooling of templates."""

    pooling: str = Field(
        description="What the images of a template are weighted by: `mean`, `quality`, `inverse_variance` or `norm`."
    )
    gallery: str = Field(description="Name of the gallery.")
    gallery_templates: Count = Field(description="Templates in the gallery.")
    gallery_people: Count = Field(description="People in the gallery.")
    probes: Count = Field(description="Probes: `mated` and `non_mated`.")
    mated: Count = Field(description="Probes whose person is in the gallery.")
    non_mated: Count = Field(description="Probes whose person is not.")
    backend: str = Field(description="What searched: `numpy` or `faiss`; both are exact.")
    rank: dict[str, RankRate] = Field(
        description="Identification rate by rank: `1`, `5`, `10`.", min_length=1
    )
    fnir_at_fpir: ByRate[FnirAtFpir] = Field(
        default={}, description="FNIR by the target FPIR: `0.01`, `0.1`, where so few probes can show it."
    )


class IdentificationResult(ResultPart):
    """All searches of a benchmark."""

    images: Count = Field(description="Images in the benchmark.")
    notes: list[str] = Field(
        default=[], description="What is odd about the data, and how a gallery was drawn."
    )
    data_sha256: str | None = Field(default=None, description="As under `verification`.")
    interval: str = Field(description="What the intervals resample, in words.")
    searches: list[GallerySearch] = Field(description="One for each gallery and pooling.", min_length=1)
