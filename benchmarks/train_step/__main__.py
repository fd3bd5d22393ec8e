"""Runs the benchmark, or one race of it in a process of its own."""

import sys

from benchmarks.train_step.benchmark import main
from benchmarks.train_step.race import run_race

if len(sys.argv) == 3 and sys.argv[1] == "race":
    run_race(sys.argv[2])
else:
    main()
