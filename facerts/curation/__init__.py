"""What of a data set to keep, as embeddings of its pictures tell."""
