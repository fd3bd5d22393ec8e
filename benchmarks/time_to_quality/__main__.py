"""Runs the benchmark."""

from benchmarks.time_to_quality.benchmark import main

main()
