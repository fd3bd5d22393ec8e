"""Runs the benchmark."""

from benchmarks.search.benchmark import main

main()
