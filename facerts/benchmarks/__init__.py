"""Benchmarks on disk, as pictures and pairs."""
