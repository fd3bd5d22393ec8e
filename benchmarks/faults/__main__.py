"""Runs the benchmark."""

from benchmarks.faults.benchmark import main

main()
