"""Tables kept in parts: what comes back is what was there, and a training goes on as if it had not been disturbed."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.checkpoint.checkpoint_settings import ROW_SELECTIONS, CheckpointSettings, RowSelection
from shunter.engine.checkpoint.directory import CheckpointDirectory
from shunter.engine.checkpoint.storage import write_tensors
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.trainer import train
from shunter.engine.results import TrainResult
from shunter.errors import CheckpointError, TrainingError
from shunter.models.registry import Model, build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features
from tests.engine.interruptions import assert_same_weights, interrupt_at
from tests.engine.synthetic import memory_of_rows, write_dataset

SPEC = model_spec(embedding_dim=8, bottom_widths=(8,), top_widths=(16,), dropout=0.3)
EXECUTION = Execution(threads=1, batch_size=64)
SCHEDULE = Schedule(max_epochs=3, patience=4, seed=3)
RATES = Hyperparameters(dense_learning_rate=5e-3, embedding_learning_rate=0.1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=3_000)


@pytest.fixture(scope="module")
def undisturbed(dataset: Dataset) -> TrainResult:
    return train(TrainingJob(dataset, SPEC, RATES, EXECUTION, SCHEDULE))


def interrupted_at(stops: list[int], job: TrainingJob, checkpointing: Checkpointing) -> TrainResult:
    for stop in stops:
        with pytest.raises(KeyboardInterrupt):
            train(job, Hooks(on_step=interrupt_at(stop)), checkpointing)
    return train(job, checkpointing=checkpointing)


@pytest.mark.parametrize("policy", ROW_SELECTIONS)
def test_in_full_precision_an_interrupted_training_ends_bitwise_the_same(
    dataset: Dataset, undisturbed: TrainResult, tmp_path: Path, policy: RowSelection
) -> None:
    checkpoint_settings = CheckpointSettings(bits=32, rows=policy)
    job = TrainingJob(dataset, SPEC, RATES, EXECUTION, SCHEDULE)
    again = interrupted_at(
        [3, 20, 47, 70], job, Checkpointing(tmp_path, steps=4, checkpoint_settings=checkpoint_settings)
    )
    assert_same_weights(undisturbed, again)
    assert again.checkpoints is not None
    assert again.checkpoints.restores == 4
    assert again.checkpoints.written + again.checkpoints.skipped > 20


def test_an_earlier_epoch_that_was_the_best_comes_back(dataset: Dataset, tmp_path: Path) -> None:
    job = TrainingJob(dataset, SPEC, RATES, EXECUTION, Schedule(max_epochs=4, patience=4, seed=3))
    expected = train(job)
    assert expected.best_epoch < len(expected.history), "else nothing comes back"
    kept = train(
        job,
        checkpointing=Checkpointing(
            tmp_path, steps=4, checkpoint_settings=CheckpointSettings(bits=32, rows="consecutive")
        ),
    )
    assert_same_weights(expected, kept)


@pytest.mark.parametrize("change", [{"table_dims": (4, 8, 4, 8)}, {"table_shares": (0.5, 1.0, 0.25, 1.0)}])
def test_tables_of_several_widths_and_shared_rows(dataset: Dataset, tmp_path: Path, change: dict[str, tuple]) -> None:
    job = TrainingJob(dataset, model_spec(**{**SPEC.to_dict(), **change}), RATES, EXECUTION, SCHEDULE)
    expected = train(job)
    again = interrupted_at(
        [20, 47], job, Checkpointing(tmp_path, steps=4, checkpoint_settings=CheckpointSettings(rows="consecutive"))
    )
    assert_same_weights(expected, again)


def test_tables_in_a_file(dataset: Dataset, undisturbed: TrainResult, tmp_path: Path) -> None:
    execution = Execution(
        threads=1, batch_size=64, embedding_memory_bytes=memory_of_rows(900, SPEC.embedding_dim, dataset)
    )
    job = TrainingJob(dataset, SPEC, RATES, execution, SCHEDULE)
    again = interrupted_at(
        [20, 47], job, Checkpointing(tmp_path, steps=4, checkpoint_settings=CheckpointSettings(rows="consecutive"))
    )
    assert_same_weights(undisturbed, again)


@pytest.mark.parametrize("bits", [8, 4, 3, 2])
def test_in_few_bits_a_training_goes_on_close_by(
    dataset: Dataset, undisturbed: TrainResult, tmp_path: Path, bits: int
) -> None:
    checkpoint_settings = CheckpointSettings(bits=bits, rows="intermittent")  # type: ignore[arg-type]
    job = TrainingJob(dataset, SPEC, RATES, EXECUTION, SCHEDULE)
    again = interrupted_at([20, 47], job, Checkpointing(tmp_path, steps=4, checkpoint_settings=checkpoint_settings))
    assert again.checkpoints is not None
    assert again.checkpoints.bits == bits
    gap = again.validation.ne - undisturbed.validation.ne
    assert gap < {8: 0.005, 4: 0.02, 3: 0.04, 2: 0.08}[bits]


FEATURES = Features(
    dense=("number",),
    categorical=(
        CategoricalFeature(name="one", rows=40, multi_valued=False),
        CategoricalFeature(name="two", rows=25, multi_valued=False),
    ),
)


def fresh(seed: int) -> tuple[Model, torch.optim.Optimizer]:
    model = build_model(model_spec(embedding_dim=4, bottom_widths=(4,), top_widths=(4,)), FEATURES, seed=seed).train()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def touch(model: Model, kept: CheckpointDirectory[Model], rows: list[tuple[int, int]]) -> None:
    """A step on a batch with these ids of both fields."""
    values = torch.tensor([one for one, _ in rows] + [two for _, two in rows], dtype=torch.int32)
    offsets = torch.arange(len(values) + 1, dtype=torch.int32)
    kept.record_rows(values, offsets)
    model(torch.randn(len(rows), 1), values, offsets).sum().backward()


def tables_of(model: Model) -> list[torch.Tensor]:
    return [*map(torch.clone, model.embeddings.tables), model.embeddings.adagrad_sum.clone()]


batches = st.lists(st.tuples(st.integers(0, 39), st.integers(0, 24)), min_size=1, max_size=6)


@settings(deadline=None, max_examples=15)
@given(
    policy=st.sampled_from(ROW_SELECTIONS),
    intervals=st.lists(st.lists(batches, max_size=3), min_size=1, max_size=6),
    data=st.data(),
)
def test_whatever_was_touched_comes_back(
    policy: RowSelection,
    intervals: list[list[list[tuple[int, int]]]],
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("kept")
    model, optimizer = fresh(0)
    kept = CheckpointDirectory(folder, {}, CheckpointSettings(bits=32, rows=policy))
    kept.follow(model)
    for number, interval in enumerate(intervals):
        for rows in interval:
            touch(model, kept, rows)
        kept.write(model, optimizer, {"step": number})
        if data.draw(st.booleans()):  # killed, and gone on with
            kept.finish()
            expected = tables_of(model)
            model, optimizer = fresh(1)
            kept = CheckpointDirectory(folder, {}, CheckpointSettings(bits=32, rows=policy))
            kept.follow(model)
            assert kept.read(model, optimizer)["step"] == number
            assert all(map(torch.equal, tables_of(model), expected))


@pytest.mark.parametrize(
    ("bits", "is_begun_before", "most_off"), [(32, False, 0.0), (32, True, 0.0), (8, False, 0.002), (2, False, 0.002)]
)
def test_the_best_weights_are_those_of_a_generation_whose_files_stay(
    tmp_path: Path, bits: int, is_begun_before: bool, most_off: float
) -> None:
    checkpoint_settings = CheckpointSettings(bits=bits, rows="auto" if bits < 32 else "consecutive", generations=1)  # type: ignore[arg-type]
    model, optimizer = fresh(0)
    kept = CheckpointDirectory(tmp_path, {}, checkpoint_settings)
    kept.follow(model)
    expected = tables_of(model)
    for step in range(30):
        touch(model, kept, [(step, step % 25)])
        if step in (3, 7) and not is_begun_before:
            kept.keep_best(model, step)
        kept.write(model, optimizer, {"step": step})
        if step in (3, 7) and is_begun_before:
            kept.keep_best(model, step)
        if step == 7:
            expected = tables_of(model)
    kept.finish()
    assert not list(tmp_path.glob("best-*"))
    model, optimizer = fresh(1)
    kept = CheckpointDirectory(tmp_path, {}, checkpoint_settings)
    kept.follow(model)
    assert kept.read(model, optimizer)["step"] == 29
    kept.restore_best(model)
    for found, wanted in zip(model.embeddings.tables, expected[:-1], strict=True):
        assert float((found - wanted).abs().max()) <= most_off


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_what_was_restored_from_few_bits_loses_nothing_more(tmp_path: Path, bits: int) -> None:
    checkpoint_settings = CheckpointSettings(bits=bits, rows="consecutive")  # type: ignore[arg-type]
    model, optimizer = fresh(0)
    kept = CheckpointDirectory(tmp_path, {}, checkpoint_settings)
    kept.follow(model)
    touch(model, kept, [(number, number % 25) for number in range(40)])
    kept.write(model, optimizer, {"step": 1})
    touch(model, kept, [(3, 4)])
    kept.write(model, optimizer, {"step": 2})
    kept.finish()
    rows = []
    for step in (3, 4, 5):
        model, optimizer = fresh(step)
        # The last ones keep all rows each time, so that those which nothing has touched are written anew.
        kept = CheckpointDirectory(
            tmp_path,
            {},
            checkpoint_settings if step == 3 else CheckpointSettings(bits=bits, rows="full"),  # type: ignore[arg-type]
        )
        kept.follow(model)
        kept.read(model, optimizer)
        rows.append(tables_of(model))
        touch(model, kept, [(0, 0)])
        kept.write(model, optimizer, {"step": step})
        kept.finish()
    for table in zip(*rows, strict=True):
        assert torch.equal(table[0][1:25], table[1][1:25])
        assert torch.equal(table[1][1:25], table[2][1:25])


def kept_in_parts(folder: Path) -> tuple[CheckpointDirectory[Model], list[list[torch.Tensor]]]:
    """Three generations, and the tables as they were at each."""
    model, optimizer = fresh(0)
    kept = CheckpointDirectory(folder, {}, CheckpointSettings(bits=32, rows="consecutive", generations=3))
    kept.follow(model)
    tables = []
    for step in range(3):
        touch(model, kept, [(step, step)])
        kept.write(model, optimizer, {"step": step})
        kept.finish()
        tables.append(tables_of(model))
    return kept, tables


def read_again(folder: Path) -> tuple[int, list[torch.Tensor]]:
    model, optimizer = fresh(9)
    kept = CheckpointDirectory(folder, {}, CheckpointSettings(bits=32, rows="consecutive", generations=3))
    kept.follow(model)
    return kept.read(model, optimizer)["step"], tables_of(model)


def test_parts_are_never_laid_upon_another_base(tmp_path: Path) -> None:
    _, tables = kept_in_parts(tmp_path)
    newest = read_json(tmp_path / "checkpoint.json")
    newest["parts"] = [newest["parts"][0], newest["parts"][2]]
    for name in ("checkpoint.json", "generation-000003.json"):
        (tmp_path / name).write_text(json.dumps(newest))
    step, found = read_again(tmp_path)
    assert step == 1
    assert all(map(torch.equal, found, tables[1]))


def test_exchanged_parts_are_noticed_and_what_is_whole_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, tables = kept_in_parts(tmp_path)
    second, third = tmp_path / "rows-000002-0000.safetensors", tmp_path / "rows-000003-0000.safetensors"
    third.write_bytes(second.read_bytes())
    step, found = read_again(tmp_path)
    assert step == 1
    assert all(map(torch.equal, found, tables[1]))
    assert "rows-000003-0000.safetensors" in caplog.text
    (tmp_path / "rows-000001-0000.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"rows-00000[13]-0000\.safetensors"):
        read_again(tmp_path)


def test_an_older_base_stays_until_no_generation_needs_it(tmp_path: Path) -> None:
    model, optimizer = fresh(0)
    kept = CheckpointDirectory(tmp_path, {}, CheckpointSettings(bits=32, rows="auto", generations=1))
    kept.checkpoint_settings = CheckpointSettings(bits=8, rows="auto", generations=1)
    kept.follow(model)
    for step in range(40):
        touch(model, kept, [(number, number % 25) for number in range(step % 40, min(step % 40 + 12, 40))])
        kept.write(model, optimizer, {"step": step})
        kept.finish()
        named = set(json.dumps(read_json(tmp_path / "checkpoint.json")["parts"]).split('"'))
        assert {path.name for path in tmp_path.glob("rows-*")} <= named
        assert kept.figures.written == step + 1
    assert kept.figures.full == 1, "ranges of the rows begin anew in turn"
    assert not list(tmp_path.glob("rows-000001-*"))


def test_what_the_disk_does_not_take_in_time_is_given_up_and_kept_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shunter.engine.checkpoint.directory._bytes_for_rows", lambda _: 400.0)
    monkeypatch.setattr("shunter.extensions.incremental_checkpoints.snapshot.PIECE_BYTES", 80)
    monkeypatch.setattr("shunter.extensions.incremental_checkpoints.pieces.PIECE_BYTES", 80)
    disk = threading.Event()
    disk.set()

    def held_up(*arguments: Any, **named: Any) -> str:
        assert disk.wait(60)
        return write_tensors(*arguments, **named)

    monkeypatch.setattr("shunter.engine.checkpoint.directory.write_tensors", held_up)
    model, optimizer = fresh(0)
    kept = CheckpointDirectory(tmp_path, {}, CheckpointSettings(bits=32, rows="consecutive"))
    kept.follow(model)
    kept.write(model, optimizer, {"step": 0}, may_skip=True)
    kept.finish()
    touch(model, kept, [(number, number % 25) for number in range(30)])
    disk.clear()
    kept.write(model, optimizer, {"step": 1}, may_skip=True)
    for number in range(30):  # they would wait for the disk
        touch(model, kept, [(number, number % 25)])
    disk.set()
    kept.finish()
    assert read_again(tmp_path)[0] == 0
    expected = tables_of(model)
    kept.write(model, optimizer, {"step": 2}, may_skip=True)
    kept.finish()
    assert (kept.figures.written, kept.figures.skipped) == (2, 1)
    step, found = read_again(tmp_path)
    assert step == 2
    assert all(map(torch.equal, found, expected))


def test_one_at_a_time_and_what_is_due_meanwhile_is_counted(tmp_path: Path) -> None:
    model, optimizer = fresh(0)
    kept = CheckpointDirectory(tmp_path, {}, CheckpointSettings(bits=32, rows="consecutive", bytes_per_second=3_000))
    kept.follow(model)
    for step in range(4):
        kept.write(model, optimizer, {"step": step}, may_skip=True)
    kept.finish()
    assert (kept.figures.written, kept.figures.skipped) == (1, 3)
    assert read_json(tmp_path / "checkpoint.json")["state"]["step"] == 0


def test_steps_go_on_while_the_writer_is_held_up_and_what_it_wrote_and_the_next_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, at_once = 400_000, 40_000  # more than the memory that copies may take of small tables
    one = CategoricalFeature(name="one", rows=rows, multi_valued=False)
    spec = model_spec(embedding_dim=16, bottom_widths=(16,), top_widths=(4,))
    checkpoint_settings = CheckpointSettings(bits=32, rows="consecutive")
    disk, is_late = threading.Event(), threading.Event()
    waiting = threading.Timer(30, lambda: (is_late.set(), disk.set()))  # steps that wait for it end all the same

    def held_up(*arguments: Any, **named: Any) -> str:
        disk.wait()
        return write_tensors(*arguments, **named)

    def begun(seed: int) -> tuple[Model, torch.optim.Optimizer, CheckpointDirectory[Model]]:
        model = build_model(spec, Features(dense=("number",), categorical=(one,)), seed=seed).train()
        kept = CheckpointDirectory(tmp_path, {}, checkpoint_settings)
        kept.follow(model)
        return model, torch.optim.SGD(model.parameters(), lr=0.1), kept

    monkeypatch.setattr("shunter.engine.checkpoint.directory.write_tensors", held_up)
    model, optimizer, kept = begun(0)
    before = tables_of(model)
    kept.write(model, optimizer, {"step": 0})
    waiting.start()
    for first in range(0, rows, at_once):
        values = torch.arange(first, first + at_once, dtype=torch.int32)
        offsets = torch.arange(at_once + 1, dtype=torch.int32)
        kept.record_rows(values, offsets)
        model(torch.randn(at_once, 1), values, offsets).sum().backward()
        kept.write(model, optimizer, {"step": 1}, may_skip=True)
    waiting.cancel()
    disk.set()
    kept.finish()
    assert not is_late.is_set()
    assert (kept.figures.written, kept.figures.skipped) == (1, 10)
    for state in (before, tables_of(model)):
        again, its_optimizer, reading = begun(1)
        reading.read(again, its_optimizer)
        for there, back in zip(state, tables_of(again), strict=True):
            assert torch.equal(there, back)
        kept.write(model, optimizer, {"step": 2})
        kept.finish()


def test_rows_that_are_not_finite_are_not_kept(tmp_path: Path) -> None:
    kept, _ = kept_in_parts(tmp_path)
    model, optimizer = fresh(0)
    kept.follow(model)
    model.embeddings.tables[0][7] = torch.nan
    kept.write(model, optimizer, {"step": 3})
    with pytest.raises(TrainingError, match="After step 3 the tensor table 0 holds NaN"):
        kept.finish()
    assert read_again(tmp_path)[0] == 2


def test_small_tables_are_kept_whole_by_themselves(tmp_path: Path) -> None:
    checkpoint_settings = CheckpointSettings()
    assert not checkpoint_settings.is_incremental(1 << 19)
    assert checkpoint_settings.is_incremental(1 << 21)
    assert [checkpoint_settings.bits_of(size) for size in (1 << 21, 1 << 31)] == [32, 8]
