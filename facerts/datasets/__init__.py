"""Data on disk: labeled images, read the same way whatever their layout, and benchmarks of pairs and templates."""

from facerts.datasets.listed_pairs import load_pair_list
from facerts.datasets.open_benchmark import (
    is_pair_benchmark,
    is_template_benchmark,
    open_benchmark,
    open_benchmarks,
    open_templates,
)
from facerts.datasets.open_source import Joined, open_images, open_source
from facerts.datasets.pair_benchmark import PairBenchmark, pairs_from_identities
from facerts.datasets.source import Source, Subset
from facerts.datasets.template_benchmark import Roster, TemplateBenchmark

__all__ = [
    "Joined",
    "PairBenchmark",
    "Roster",
    "Source",
    "Subset",
    "TemplateBenchmark",
    "is_pair_benchmark",
    "is_template_benchmark",
    "load_pair_list",
    "open_benchmark",
    "open_benchmarks",
    "open_images",
    "open_source",
    "open_templates",
    "pairs_from_identities",
]
