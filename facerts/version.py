"""The version of the package, alone in a file so that building a wheel imports nothing else."""

__version__ = "0.1.0"
