"""Benchmarks on disk, as images and pairs, or as templates and galleries."""

from facerts.benchmarks.heldout import pairs_from_identities
from facerts.benchmarks.listed import load_pair_list
from facerts.benchmarks.open_benchmark import (
    is_pair_benchmark,
    is_template_benchmark,
    open_benchmark,
    open_benchmarks,
    open_templates,
)
from facerts.benchmarks.pair_benchmark import PairBenchmark
from facerts.benchmarks.template_benchmark import Roster, TemplateBenchmark

__all__ = [
    "PairBenchmark",
    "Roster",
    "TemplateBenchmark",
    "is_pair_benchmark",
    "is_template_benchmark",
    "load_pair_list",
    "open_benchmark",
    "open_benchmarks",
    "open_templates",
    "pairs_from_identities",
]
