"""Benchmarks on disk, as pictures and pairs."""

from facerts.benchmarks.heldout import pairs_from_identities
from facerts.benchmarks.open import open_benchmark
from facerts.benchmarks.pairs import PairBenchmark

__all__ = ["PairBenchmark", "open_benchmark", "pairs_from_identities"]
