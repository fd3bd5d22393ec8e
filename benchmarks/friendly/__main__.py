"""Runs the benchmark."""

from benchmarks.friendly.benchmark import main

main()
