"""Runs the benchmark."""

from benchmarks.hashing.benchmark import main

main()
