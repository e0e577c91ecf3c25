"""A result folder as figures and one self-contained page."""
