"""Runs the benchmark."""

from benchmarks.towers.benchmark import main

main()
