"""Steps measured on other machines set the catalogue's promises right, nearest for the accelerators most alike."""

import numpy as np
import pytest

from shunter.hardware.catalogue.offers import catalogue_profile
from shunter.hardware.catalogue.rows import Catalogue, load_catalogue
from shunter.hardware.cost.cost_model import CostModel
from shunter.hardware.cost.residual import StepObservation
from shunter.hardware.types import Placement, Prediction, Workload
from shunter.planner.history.fleet import with_fleet

WORKLOAD = Workload(
    matmul_flops_per_sample=3e6,
    lookups_per_sample=26,
    lookup_bytes_per_sample=1664,
    input_bytes_per_sample=160,
    parameter_bytes=10**8,
    optimizer_bytes=10**7,
    activation_bytes_per_sample=1e4,
    operators_per_step=200,
    train_samples=1_000_000,
)


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue()


def promise(catalogue: Catalogue, name: str, batch_size: int = 2048) -> tuple[Placement, Prediction]:
    row = catalogue.find_accelerator(name)
    placement = Placement(accelerator=row.name, threads=1, precision="fp32", batch_size=batch_size)
    return placement, CostModel(catalogue_profile(row)).predict(WORKLOAD, placement)


def measured(catalogue: Catalogue, name: str, ratio: float, batch_size: int = 2048) -> StepObservation:
    """A step that took `ratio` times what the catalogue promises, on a machine of the fleet."""
    placement, prediction = promise(catalogue, name, batch_size)
    return StepObservation(
        workload=WORKLOAD,
        placement=placement.model_copy(update={"accelerator": "cuda:0"}),
        accelerator_model=name,
        host="another",
        predicted_seconds=0.01,  # by that machine's own profile, which is of no use here
        measured_seconds=ratio * prediction.step_seconds,
        measured_at="2026-01-01T00:00:00+00:00",
    )


def ratios(catalogue: Catalogue, steps: list[StepObservation], *names: str) -> list[float]:
    promised = [promise(catalogue, name) for name in names]
    corrected = with_fleet(WORKLOAD, promised, steps, catalogue)
    return [after.step_seconds / before.step_seconds for after, (_, before) in zip(corrected, promised, strict=True)]


def test_measured_accelerator_is_believed_and_its_like_nearly(catalogue: Catalogue) -> None:
    steps = [measured(catalogue, "V100", 2.0), measured(catalogue, "V100", 2.1, 512), measured(catalogue, "K80", 1.0)]
    same, like, old = ratios(catalogue, steps, "V100", "A100-40GB", "K80")
    assert same == pytest.approx(2.0, rel=0.1)
    assert old == pytest.approx(1.0, rel=0.1)
    assert old < like < same


def test_more_is_known_of_what_was_measured(catalogue: Catalogue) -> None:
    steps = [measured(catalogue, "V100", 2.0)]
    promised = [promise(catalogue, name) for name in ("V100", "H100 SXM")]
    widths = []
    for after in with_fleet(WORKLOAD, promised, steps, catalogue):
        assert after.step_seconds_interval is not None
        low, high = after.step_seconds_interval
        assert low < after.step_seconds < high
        widths.append(np.log(high / low))
    assert widths[0] < widths[1]


def test_epoch_and_energy_follow_the_step(catalogue: Catalogue) -> None:
    (promised,) = [promise(catalogue, "V100")]
    (after,) = with_fleet(WORKLOAD, [promised], [measured(catalogue, "V100", 3.0)] * 3, catalogue)
    before = promised[1]
    assert after.epoch_seconds / before.epoch_seconds == pytest.approx(after.step_seconds / before.step_seconds)
    assert before.epoch_joules is not None
    assert after.epoch_joules == pytest.approx(before.epoch_joules * after.step_seconds / before.step_seconds)
    assert after.step_seconds_source == "estimated"


def test_without_a_measured_accelerator_of_the_catalogue_its_promise_stays(catalogue: Catalogue) -> None:
    promised = [promise(catalogue, "V100")]
    hidden = measured(catalogue, "V100", 2.0).model_copy(update={"accelerator_model": "a processor without a name"})
    assert with_fleet(WORKLOAD, promised, [], catalogue) == [promised[0][1]]
    assert with_fleet(WORKLOAD, promised, [hidden], catalogue) == [promised[0][1]]
    assert with_fleet(WORKLOAD, [], [hidden], catalogue) == []


def test_ratio_of_what_past_runs_keep_is_applied_to_what_they_keep(catalogue: Catalogue) -> None:
    placement, prediction = promise(catalogue, "V100")
    finer = prediction.model_copy(update={"step_seconds": 1.3 * prediction.step_seconds})
    steps = [measured(catalogue, "V100", 2.0)] * 4
    (after,) = with_fleet(WORKLOAD, [(placement, finer)], steps, catalogue)
    assert after.step_seconds == pytest.approx(2.0 * prediction.step_seconds, rel=0.05)


def test_newer_accelerator_is_slower_only_by_evidence_of_an_alike_workload(catalogue: Catalogue) -> None:
    """Another workload that is slow on the V100 does not send this one to a K80."""
    other = WORKLOAD.model_copy(update={"matmul_flops_per_sample": 3e2, "lookup_bytes_per_sample": 1e5})
    slow = [measured(catalogue, "V100", 40.0).model_copy(update={"workload": other}), measured(catalogue, "K80", 0.2)]
    promised = [promise(catalogue, name) for name in ("K80", "V100")]
    old, new = (one.step_seconds for one in with_fleet(WORKLOAD, promised, slow, catalogue))
    assert new < old
    known = [*slow, measured(catalogue, "V100", 40.0)]
    old, new = (one.step_seconds for one in with_fleet(WORKLOAD, promised, known, catalogue))
    assert new > old
