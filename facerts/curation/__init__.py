"""Data sets made from data sets: packed, split, merged, shuffled, deduplicated, without the people of a benchmark."""
