"""Collectives between the processes of a run, and how the processes find each other."""
