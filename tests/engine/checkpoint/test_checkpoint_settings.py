"""What checkpoints came to, as it is kept with them."""

from dataclasses import asdict

from shunter.engine.checkpoint.checkpoint_settings import CheckpointFigures


def test_figures_of_a_newer_version_are_left_out() -> None:
    figures = CheckpointFigures(written=3, stall_seconds=0.5)
    assert CheckpointFigures.of(asdict(figures) | {"later": 1}) == figures
    assert CheckpointFigures.of({}) == CheckpointFigures()
