"""Benchmarks as data: `python -m benchmarks` runs them and prints a table. They print; they never fail on a time."""
