"""The parts of the benchmark: each file with a function `measure(*, quick)` that gives a `Part` is one."""
