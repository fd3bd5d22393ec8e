"""Run as `python -m benchmarks.serving`."""

from benchmarks.serving.benchmark import main

if __name__ == "__main__":
    main()
