"""Runs the benchmark."""

from benchmarks.ensembles.benchmark import main

main()
