"""Benchmarks as data: `python -m benchmarks` runs them and prints a table. A slow result is not a failure."""
