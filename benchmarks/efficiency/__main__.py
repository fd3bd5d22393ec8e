"""Run as `python -m benchmarks.efficiency`."""

from benchmarks.efficiency.benchmark import main

if __name__ == "__main__":
    main()
