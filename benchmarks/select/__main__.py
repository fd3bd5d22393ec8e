"""Runs the benchmark."""

from benchmarks.select.benchmark import main

main()
