"""An embedder on a benchmark gives a result."""
