"""How much of tables larger than memory lies there, and that a choice for them is made and trained."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.job import TrainingJob
from shunter.engine.loop.trainer import train
from shunter.engine.memory import process_bytes
from shunter.extensions.tiers.planned_tables import embedding_memory_notes, memory_for_tables
from shunter.extensions.tiers.tiered import TieredEmbeddings
from shunter.hardware.cost.memory_model import predict_memory_bytes
from shunter.hardware.types import DiskRates, HardwareProfile, Quantity
from shunter.models.registry import model_spec
from shunter.planner.candidates.embedding_memory import MIB
from shunter.planner.candidates.offers import local_offers
from shunter.planner.candidates.placements import placements
from shunter.planner.choose import choose
from shunter.planner.decide import NoFeasiblePlacementError
from shunter.planner.describe import describe
from shunter.planner.predict.predicted import predicted_candidates
from shunter.requests import TrainRequest
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile, make_workload

TABLES = 800 * MIB
MEASURED = Quantity(value=100.0, source="measured")
WORKLOAD = make_workload(
    parameter_bytes=TABLES * 16 // 17, optimizer_bytes=TABLES // 17, table_bytes=TABLES, dense_parameter_bytes=10**6
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=6_400, ids=200_000)


@given(st.integers(600, 6_000), st.one_of(st.none(), st.floats(0.5, 6)))
def test_what_is_chosen_fits_and_nothing_is_chosen_where_all_fit(memory_mib: int, max_memory_gib: float | None) -> None:
    profile = make_profile(cores=2, memory_bytes=memory_mib * MIB)
    candidates = predicted_candidates(WORKLOAD, local_offers([profile], None))
    limit = min(memory_mib * MIB, (max_memory_gib or 99) * 2**30)
    chosen = memory_for_tables(WORKLOAD, candidates, max_memory_gib)
    if min(one.prediction.memory_bytes for one in candidates) <= limit:
        assert chosen is None
    elif chosen is not None:
        assert chosen < TABLES
        found = placements(WORKLOAD, [profile], embedding_memory_bytes=chosen)
        assert all(placement.embedding_memory_bytes == chosen for placement in found)
        held = process_bytes()
        assert min(predict_memory_bytes(WORKLOAD, placement, profile, held) for placement in found) <= 1.01 * limit


def test_of_many_processes_each_takes_the_rest_as_well() -> None:
    large = predicted_candidates(WORKLOAD, local_offers([make_profile(cores=2, memory_bytes=2**40)], None))
    least = min(one.prediction.memory_bytes for one in large)
    others = least - TABLES

    def chosen(memory_bytes: int, processes: int) -> int | None:
        candidates = [one.model_copy(update={"accelerator_memory_bytes": memory_bytes}) for one in large]
        return memory_for_tables(WORKLOAD, candidates, processes=processes)

    assert chosen(least, 1) is None
    for processes in (2, 3):
        short = least + (processes - 1) * others - TABLES // 2
        assert chosen(short, processes) == (short - processes * others) // 2 // MIB * MIB
        assert chosen(least + (processes - 1) * others, processes) is None


def test_tables_that_fit_and_accelerators_get_none() -> None:
    assert {one.embedding_memory_bytes for one in placements(WORKLOAD, [make_profile()], None, TABLES)} == {None}
    gpu = placements(WORKLOAD, [make_profile(name="cuda:0")], None, TABLES // 2)
    assert {one.embedding_memory_bytes for one in gpu} == {None}


def test_models_whose_tables_cannot_lie_in_a_file_get_none() -> None:
    small = make_profile(cores=2, memory_bytes=400 * MIB)
    workload = WORKLOAD.model_copy(update={"table_bytes": 0})
    assert memory_for_tables(workload, predicted_candidates(workload, local_offers([small], None))) is None


def test_the_demand_counts_tables_that_may_lie_in_a_file(dataset: Dataset) -> None:
    rows = sum(dataset.features.table_rows)
    assert describe(dataset, model_spec(embedding_dim=16)).table_bytes == rows * 17 * 4
    assert describe(dataset, model_spec(embedding_dim=16, table_shares=(0.5, 1, 1, 1))).table_bytes == 0


def test_a_machine_without_room_for_the_tables_trains_them_all_the_same(dataset: Dataset) -> None:
    """The tables take 52 MiB, and what a training takes beside them 36 MiB on top of what the process holds."""
    workload = describe(dataset, model_spec())
    decision = choose(dataset, TrainRequest(batch_sizes="64"), [_with_room(75 * MIB)], probe_seconds=0)
    room = decision.placement.embedding_memory_bytes
    assert room is not None
    assert room < workload.table_bytes
    assert decision.placement.label.endswith(f" e{room / MIB:.3g}MiB")
    assert any("because they do not fit into memory" in note for note in decision.notes)
    job = TrainingJob(
        dataset, model_spec(), Hyperparameters(), execution_of(decision.placement), Schedule(max_epochs=1)
    )
    assert isinstance(train(job).model.embeddings, TieredEmbeddings)
    for options in ({"search_space": "wide"}, {"ensemble_of": "snapshots"}):
        with pytest.raises(NoFeasiblePlacementError, match="--set"):
            choose(dataset, TrainRequest(**options, batch_sizes="64"), [_with_room(75 * MIB)], probe_seconds=0)


def test_in_fp16_the_tables_fit_where_they_would_lie_in_a_file(dataset: Dataset) -> None:
    """They take 28 MiB."""
    [in_file] = [
        note
        for note in choose(dataset, TrainRequest(batch_sizes="64"), [_with_room(75 * MIB)], probe_seconds=0).notes
        if "table_precision=fp16" in note
    ]
    request = TrainRequest(batch_sizes="64", set=("table_precision=fp16",))
    decision = choose(dataset, request, [_with_room(75 * MIB)], probe_seconds=0)
    assert decision.placement.embedding_memory_bytes is None
    rows = sum(dataset.features.table_rows)
    assert f"would take {rows * 36 / MIB:,.3g} MiB" in in_file
    [note] = [note for note in decision.notes if "fp16" in note]
    assert f"{rows * 32 / MIB:,.3g} MiB instead of {rows * 64 / MIB:,.3g}" in note
    spec = model_spec(table_precision="fp16")
    job = TrainingJob(dataset, spec, Hyperparameters(), execution_of(decision.placement), Schedule(max_epochs=1))
    assert train(job).model.embeddings.held_bytes().weights == rows * 32
    with pytest.raises(NoFeasiblePlacementError) as too_large:
        choose(dataset, request, [_with_room(20 * MIB)], probe_seconds=0)
    assert "would fit" not in str(too_large.value)


def _with_room(more_bytes: int) -> HardwareProfile:
    """A machine with so much memory beside what this process holds now; a training gives back what it held before."""
    return make_profile(cores=1, memory_bytes=process_bytes() + more_bytes)


def test_what_was_asked_for_is_said(dataset: Dataset) -> None:
    request = TrainRequest(embedding_memory="8MiB", batch_sizes="64")
    decision = choose(dataset, request, [make_profile(cores=1)], probe_seconds=0)
    assert decision.placement.embedding_memory_bytes == 8 * MIB
    [note] = [note for note in decision.notes if "embedding tables" in note]
    assert decision.tier_miss_rate is not None
    assert 0 < decision.tier_miss_rate < 1
    told = f"{decision.tier_miss_rate:.1%} are expected to be read from the file"
    assert any(told in note for note in decision.notes)
    by_two = TrainRequest(embedding_memory="8MiB", batch_sizes="64", processes=2)
    shared = choose(dataset, by_two, [make_profile(cores=1)], probe_seconds=0)
    assert shared.tier_miss_rate is not None
    assert shared.tier_miss_rate == pytest.approx(decision.tier_miss_rate, rel=0.2)
    assert shared.tier_highest_miss_rate is not None
    assert shared.tier_highest_miss_rate >= shared.tier_miss_rate
    [told] = [note for note in shared.notes if note.startswith("Each of 2 processes")]
    assert f"4 MiB of memory for them: up to {shared.tier_highest_miss_rate:.1%}" in told
    asked = choose(dataset, TrainRequest(batch_sizes="64"), [make_profile(cores=1)], probe_seconds=0)
    assert asked.tier_miss_rate is None
    [with_file, without] = [one.prediction.step_seconds for one in (decision, asked)]
    assert with_file > without  # one core computes and moves rows
    slow = DiskRates(sequential_bytes_per_second=MEASURED, random_reads_per_second=MEASURED)
    narrow = make_profile(cores=1, memory_bytes=process_bytes() + 60 * MIB).model_copy(update={"disk": slow})
    waiting = choose(dataset, request, [narrow], probe_seconds=0)
    assert waiting.prediction.step_seconds > 10 * with_file
    assert "with a cache of 8 MiB in memory, as requested" in note
    assert embedding_memory_notes(describe(dataset, model_spec()), [], was_requested=False) == []
