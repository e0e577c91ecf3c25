"""Identification (1:N): the section ``identification[SET]`` of a result."""

from __future__ import annotations

from pydantic import Field

from facerts.evaluation.results.result_part import ByRate, Count, Interval, ResultPart


class RankRate(ResultPart):
    """How often a probe's person is among the first k people of the gallery."""

    value: float = Field(description="Share of the mated probes.")
    ci95: Interval = Field(description="95% interval of `value`.")


class FnirAtFpir(ResultPart):
    """Probes that are missed at the threshold that a share of the non-mated probes reach."""

    value: float = Field(
        description="False negative identification rate: the share of mated probes that are missed."
    )
    achieved_fpir: float = Field(description="Share of the non-mated probes at or above the threshold.")
    threshold: float | None = Field(
        description="Minimum similarity at which a probe is identified; null if none is."
    )
    non_mated: Count = Field(description="Non-mated probes.")
    ci95: Interval = Field(description="95% interval of `value`.")


class GallerySearch(ResultPart):
    """One gallery, searched with one pooling of templates."""

    pooling: str = Field(
        description="Weighting of the images in a template: `mean`, `quality`, `inverse_variance` or `norm`."
    )
    gallery: str = Field(description="Name of the gallery.")
    gallery_templates: Count = Field(description="Templates in the gallery.")
    gallery_people: Count = Field(description="People in the gallery.")
    probes: Count = Field(description="Probes: `mated` and `non_mated`.")
    mated: Count = Field(description="Probes whose person is in the gallery.")
    non_mated: Count = Field(description="Probes whose person is not in the gallery.")
    backend: str = Field(description="Search backend: `numpy` or `faiss`; both are exact.")
    rank: dict[str, RankRate] = Field(
        description="Identification rate by rank: `1`, `5`, `10`.", min_length=1
    )
    fnir_at_fpir: ByRate[FnirAtFpir] = Field(
        default={},
        description="FNIR by target FPIR: `0.01`, `0.1`, if there are enough probes to measure it.",
    )


class IdentificationResult(ResultPart):
    """All searches of a benchmark."""

    images: Count = Field(description="Images in the benchmark.")
    notes: list[str] = Field(
        default=[], description="Notes on problems with the data, and on how a gallery was drawn."
    )
    data_sha256: str | None = Field(default=None, description="As under `verification`.")
    interval: str = Field(description="Unit that the intervals resample, as text.")
    searches: list[GallerySearch] = Field(description="One search per gallery and pooling.", min_length=1)
