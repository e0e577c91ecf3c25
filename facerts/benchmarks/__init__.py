"""Benchmarks on disk, as images and pairs, or as templates and galleries."""

from facerts.benchmarks.heldout import pairs_from_identities
from facerts.benchmarks.listed import load_pair_list
from facerts.benchmarks.open import (
    is_pair_benchmark,
    is_template_benchmark,
    open_benchmark,
    open_benchmarks,
    open_templates,
)
from facerts.benchmarks.pairs import PairBenchmark
from facerts.benchmarks.templates import Roster, TemplateBenchmark

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
