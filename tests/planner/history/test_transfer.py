"""What was seen elsewhere is carried over as far as it resembles, and no further."""

import numpy as np
import pytest

from shunter.hardware.catalogue.rows import load_catalogue
from shunter.planner.history import EpochCount, Situation, Traits, estimate, estimate_epochs

OLD, NEW, NEWER, UNKNOWN = (
    Traits("old", (0.0, 0.0)),
    Traits("new", (1.0, 1.0)),
    Traits("newer", (1.3, 1.1)),
    Traits("homemade"),
)


def job(accelerator: Traits, batch_size: int = 256, family: str = "dlrm") -> Situation:
    return Situation(family, accelerator, batch_size)


def test_what_was_measured_is_believed() -> None:
    belief = estimate([(job(OLD), 2e-5), (job(NEW), 1e-5)], [job(OLD), job(NEW)])
    assert np.exp(belief.mean) == pytest.approx([2e-5, 1e-5], rel=0.05)


def test_job_that_is_slower_on_the_newer_accelerator_is_foreseen_from_its_likes() -> None:
    seen = [
        *((job(NEW, size, "autoencoder"), 1e-5) for size in (128, 512, 1024)),
        *((job(NEWER, size, "autoencoder"), 2e-5) for size in (128, 512, 1024)),
        *((job(NEW, size, "cnn"), 4e-5) for size in (64, 256)),
        *((job(NEWER, size, "cnn"), 2e-5) for size in (64, 256)),
    ]
    pairs = [job(where, 256, family) for family in ("autoencoder", "cnn") for where in (NEW, NEWER)]
    autoencoder_new, autoencoder_newer, cnn_new, cnn_newer = estimate(seen, pairs).mean
    assert autoencoder_newer > autoencoder_new
    assert cnn_newer < cnn_new


def test_accelerator_without_catalogue_row_resembles_itself_alone() -> None:
    seen = [(job(NEW), 1e-5)]
    near, far = estimate(seen, [job(NEWER), job(UNKNOWN)]).deviation
    assert near < far
    assert estimate([*seen, (job(UNKNOWN), 3e-5)], [job(UNKNOWN)]).deviation[0] < near


def test_doubt_grows_with_the_distance_of_batch_size_and_of_demands() -> None:
    sizes = estimate([(job(NEW, 256), 1e-5)], [job(NEW, size) for size in (256, 512, 4096)]).deviation
    assert sizes[0] < sizes[1] < sizes[2]
    asked = [Situation("dlrm", NEW, 256, log_demands=(10.0 + more,)) for more in (0.0, 0.5, 3.0)]
    demands = estimate([(asked[0], 1e-5)], asked).deviation
    assert demands[0] < demands[1] < demands[2]


def test_traits_come_from_the_catalogue() -> None:
    row = load_catalogue().find_accelerator("V100")
    assert Traits.of(row).log_rates == pytest.approx((np.log(15.7e12), np.log(900e9)))


def test_epochs_rise_where_trainings_were_stopped() -> None:
    seen = [EpochCount(256, 4, True), EpochCount(512, 4, True)]
    sizes = (256, 8192)
    free = estimate_epochs(seen, sizes)
    stopped = estimate_epochs([*seen, EpochCount(8192, 20, False)], sizes)
    assert 4 < np.exp(free.mean[1]) < 8  # large batches need somewhat more, even where none was run
    assert np.exp(stopped.mean[1]) > 15
    assert np.exp(stopped.mean[0]) == pytest.approx(4, rel=0.2)


def test_early_stop_far_below_the_expected_epochs_teaches_nothing() -> None:
    seen = [EpochCount(256, 40, True), EpochCount(512, 40, True)]
    before = estimate_epochs(seen, (1024,))
    after = estimate_epochs([*seen, EpochCount(1024, 1.5, False)], (1024,))
    assert after.mean == pytest.approx(before.mean, abs=1e-3)
