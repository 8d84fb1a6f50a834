"""Holotron: a throughput-first stack for computer-use agents."""

__version__ = "0.1.0"
