"""Holdfast, its peers and the raw limits, measured in one interleaved run: `python -m benchmarks`."""
