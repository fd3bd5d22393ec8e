"""The runs of the stall profiler in real processes: what each is made of, not how fast this machine is."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from shunter.engine.config import Execution, Hyperparameters
from shunter.errors import RequestError
from shunter.extensions.distributed.links.communication import Link, transfer_seconds
from shunter.extensions.distributed.links.processes import run_group
from shunter.extensions.distributed.training.plan import Machine, Sharding
from shunter.extensions.stalls.plan import RUNS, StallMeasurements, StallPlan
from shunter.extensions.stalls.search import measure_stalls
from shunter.extensions.stalls.worker import PLAN, RESULT
from shunter.models.registry import model_spec
from tests.engine.synthetic import write_dataset

pytestmark = pytest.mark.usefixtures("warm_processes")

STEPS = 4
LINK = Link(bytes_per_second=1e6, latency_seconds=1e-3, machines=2)


@pytest.fixture
def plan(tmp_path: Path) -> StallPlan:
    dataset = write_dataset(tmp_path / "data", rows=2000, bags=0, ids=5000)
    machine = Machine(memory_bytes=2**31, memory_bytes_per_second=1e10)
    return StallPlan(
        dataset=dataset,
        spec=model_spec(embedding_dim=8, bottom_widths=(8,), top_widths=(8,)),
        hyperparameters=Hyperparameters(),
        execution=Execution(threads=1, batch_size=32),
        processes=2,
        sharding=Sharding(machine=machine, types=("table_wise",)),
        link=LINK,
        steps=STEPS,
        warmup_steps=2,
        rounds=(2, 2),
    )


def test_between_machines_a_step_takes_what_its_bytes_take_on_the_link(plan: StallPlan, tmp_path: Path) -> None:
    """Tables as a whole on one process, and one id a field: each step sends the same."""
    folder = tmp_path / "group"
    folder.mkdir()
    (folder / PLAN).write_bytes(pickle.dumps(plan))
    run_group("tests.extensions.stalls.member", folder, 2, threads=1, on_report=lambda kind, value: None)
    found: StallMeasurements = pickle.loads((folder / RESULT).read_bytes())
    traffic = found.traffic
    assert traffic is not None
    assert {"all_reduce", "all_to_all"} <= traffic.calls.keys()
    expected = sum(
        calls * transfer_seconds(operation, traffic.message_bytes[operation] / calls, 2, LINK)
        for operation, calls in traffic.calls.items()
    )
    assert expected > STEPS * LINK.latency_seconds
    for name, rounds in found.seconds.items():
        for seconds in rounds:
            assert seconds == pytest.approx([expected if name == "S5" else 0.0] * STEPS), name


def test_all_runs_are_made_in_each_round_and_the_first_process_times_them(plan: StallPlan) -> None:
    told: list[str] = []
    specs = tuple(replace(plan.spec, embedding_dim=dim) for dim in (4, 8))
    found = measure_stalls(replace(plan, communication_specs=specs, communication_steps=3), told.append)
    missing = set(RUNS) - found.seconds.keys()
    assert missing <= {"S3", "L3"}, "only the page cache may refuse"
    assert found.not_measurable.keys() == missing
    for rounds in found.seconds.values():
        assert [len(seconds) for seconds in rounds] == [STEPS, STEPS]
        assert all(second > 0 for seconds in rounds for second in seconds)
    assert found.sharding == {"table_wise": 3}
    assert found.slow_tier_rows is not None
    assert found.slow_tier_rows[0] < found.slow_tier_rows[1] == 5000 + 5001 + 5002
    assert [one.model for one in found.communication] == ["dlrm d4 8 8", "dlrm d8 8 8"]
    narrow, wide = (one.traffic.message_bytes["all_to_all"] for one in found.communication)
    assert narrow < wide
    assert "round 2, S3" in told
    assert StallMeasurements.from_dict(found.to_dict()) == found


def test_with_one_device_what_needs_two_is_not_measurable(plan: StallPlan) -> None:
    found = measure_stalls(replace(plan, processes=1))
    for name in ("S0", "S1g", "S2", "S5", "S6"):
        assert name not in found.seconds
        assert found.not_measurable[name] == "this run needs two devices, but there is only one"
    assert {"S1", "S4", "S7", "L4"} <= found.seconds.keys()
    assert found.traffic is None


def test_a_step_larger_than_the_data_is_one_sentence(plan: StallPlan) -> None:
    with pytest.raises(RequestError, match="1,400"):
        measure_stalls(replace(plan, execution=replace(plan.execution, batch_size=1000)))
