"""Measures hipq_django on this machine: `python -m benchmarks`, or `make bench`."""
