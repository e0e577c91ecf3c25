"""The command line: each command parses, calls one function and prints."""

from facerts.cli.app import main

__all__ = ["main"]
