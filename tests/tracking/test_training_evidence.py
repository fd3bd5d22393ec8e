"""What a training teaches of its steps."""

from types import SimpleNamespace

import pytest

from shunter.hardware.types import Placement
from shunter.tracking.training_evidence import mean_step_seconds

PLACEMENT = Placement(accelerator="cuda:0", threads=1, precision="fp32", batch_size=100)


def progress(steps: int, *, warm_up_steps: int = 0, warm_up_seconds: float = 0.0, seconds: float) -> SimpleNamespace:
    return SimpleNamespace(
        samples_seen=100 * steps,
        compute_seconds=0.75 * seconds,
        wait_seconds=0.25 * seconds,
        warm_up_steps=warm_up_steps,
        warm_up_seconds=warm_up_seconds,
    )


def test_the_first_steps_of_a_gpu_do_not_make_the_others_seem_slow() -> None:
    short = progress(200, warm_up_steps=4, warm_up_seconds=0.4, seconds=0.4 + 196 * 0.001)
    assert mean_step_seconds(short, PLACEMENT) == pytest.approx(0.001)  # pyright: ignore[reportArgumentType]


def test_where_there_are_no_others_they_count() -> None:
    all_of_it = progress(4, warm_up_steps=4, warm_up_seconds=0.4, seconds=0.4)
    assert mean_step_seconds(all_of_it, PLACEMENT) == pytest.approx(0.1)  # pyright: ignore[reportArgumentType]


def test_without_samples_nothing_is_taught() -> None:
    assert mean_step_seconds(None, PLACEMENT) is None
    assert mean_step_seconds(progress(0, seconds=0.0), PLACEMENT) is None  # pyright: ignore[reportArgumentType]
