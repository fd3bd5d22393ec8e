"""Runs the benchmark."""

from benchmarks.quality.benchmark import main

main()
