"""Runs the benchmark."""

from benchmarks.predict.benchmark import main

main()
