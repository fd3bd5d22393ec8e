"""The published figures: `python -m benchmarks.NAME` measures one, `--quick` in under a minute."""
