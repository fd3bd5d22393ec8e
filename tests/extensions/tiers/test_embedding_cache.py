"""A training whose tables lie in a file ends bit by bit as one in memory; what does not fit is told at once."""

import errno
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.trainer import train
from shunter.engine.memory import available_memory_bytes, check_tables_fit
from shunter.engine.probes.steps import time_steps
from shunter.engine.results import EpochReport, TrainResult
from shunter.errors import HardwareError, RequestError
from shunter.extensions.tiers.embedding_cache import cached_rows
from shunter.extensions.tiers.tiered import TieredEmbeddings
from shunter.extensions.tiers.tiers import RowTiers
from shunter.models.embeddings import kernel_choice
from shunter.models.embeddings.mapped import MappedEmbeddings
from shunter.models.ensemble import Ensemble
from shunter.models.recommender import Recommender
from shunter.models.registry import model_spec
from shunter.models.spec import CategoricalFeature, Features, ModelSpec
from tests.engine.interruptions import assert_same_weights
from tests.engine.synthetic import write_dataset

SPEC = model_spec(embedding_dim=8, bottom_widths=(8,), top_widths=(16,), dropout=0.3)
IN_MEMORY = Execution(threads=1, batch_size=32)
# Of each of the 1,806 rows the cache knows where it is, and how frequent, in 5 bytes; one in memory takes 36, and 28 of
# book-keeping.
ROWS = 1_806


def in_file(rows: int) -> Execution:
    """With memory for so many rows of the tables, which lie in a file."""
    return replace(IN_MEMORY, embedding_memory_bytes=5 * ROWS + (36 + 28) * rows)


CACHED = in_file(400)  # four batches in work use up to about 300 rows
SCHEDULE = Schedule(max_epochs=3, patience=3, seed=3)
RATES = Hyperparameters(dense_learning_rate=5e-3, embedding_learning_rate=0.1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=3_000, ids=450)


@pytest.fixture(scope="module")
def in_memory(dataset: Dataset) -> TrainResult:
    return train(TrainingJob(dataset, SPEC, RATES, IN_MEMORY, SCHEDULE))


def train_cached(
    dataset: Dataset,
    directory: Path,
    execution: Execution = CACHED,
    on_step: Callable[[int, int], None] | None = None,
    checkpoint_steps: int | None = None,
) -> TrainResult:
    return train(
        TrainingJob(dataset, SPEC, RATES, execution, SCHEDULE),
        Hooks(on_step=on_step),
        Checkpointing(directory, steps=checkpoint_steps),
    )


def interrupt_at(stop: int) -> Callable[[int, int], None]:
    def on_step(step: int, _: int) -> None:
        if step == stop:
            raise KeyboardInterrupt

    return on_step


def assert_same(one: TrainResult, other: TrainResult) -> None:
    assert_same_weights(one, other)
    assert torch.equal(one.model.embeddings.adagrad_sum, other.model.embeddings.adagrad_sum)
    assert [(r.step, r.train_logloss, r.validation) for r in one.history] == [
        (r.step, r.train_logloss, r.validation) for r in other.history
    ]


@contextmanager
def most_private_memory() -> Iterator[list[int]]:
    """Bytes that the process took beyond those at the start, without pages of mapped files; filled in at the end."""
    finished, found, readings = threading.Event(), [0], []

    def read() -> int:
        return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) * 1024

    def watch() -> None:
        while not finished.wait(0.005):
            readings.append(read())

    before, watcher = read(), threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        finished.set()
        watcher.join()
        found[0] = max(readings) - before


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_weights_sums_and_losses_are_those_of_a_training_in_memory(
    dataset: Dataset, in_memory: TrainResult, tmp_path: Path, depth: int
) -> None:
    cached = train_cached(dataset, tmp_path, replace(CACHED, prefetch_depth=depth))
    assert_same(cached, in_memory)
    tables = cached.model.embeddings
    assert isinstance(tables, TieredEmbeddings)
    assert tables.cache_counts.hits > 0
    assert tables.cache_counts.written_back > 400
    told = cached.tiers
    assert told is not None
    assert (told.rows, told.row_bytes) == (400, 36)
    assert 0.05 < told.miss_rate < 0.9
    assert told.bytes_read == 36 * told.misses > told.bytes_written == 36 * told.written_back
    assert in_memory.tiers is None


def test_without_the_native_kernel_they_are_the_same_as_well(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_choice, "library", lambda: None)
    in_memory = train(TrainingJob(dataset, SPEC, RATES, IN_MEMORY, SCHEDULE))
    assert type(in_memory.model.embeddings).__name__ == "TorchEmbeddings"
    assert_same(train_cached(dataset, tmp_path), in_memory)


def test_checkpoints_while_rows_move_do_not_disturb(dataset: Dataset, in_memory: TrainResult, tmp_path: Path) -> None:
    assert_same(train_cached(dataset, tmp_path, checkpoint_steps=3), in_memory)


def test_interrupted_the_tables_are_written_anew_with_or_without_a_cache(
    dataset: Dataset, in_memory: TrainResult, tmp_path: Path
) -> None:
    """Each part is trained in another way, so a checkpoint must hold neither too much nor too little."""
    ways = [CACHED, IN_MEMORY, CACHED, replace(CACHED, embedding_memory_bytes=36 * ROWS), IN_MEMORY, CACHED]
    for stop, execution in zip((7, 31, 66, 67, 130, 190), ways, strict=True):
        with pytest.raises(KeyboardInterrupt):
            train_cached(dataset, tmp_path, execution, interrupt_at(stop))
    with pytest.raises(RequestError, match="--embedding-memory"):  # too little for a batch leaves it as it was
        train_cached(dataset, tmp_path, in_file(40))
    assert_same(train_cached(dataset, tmp_path), in_memory)


# Killed once the weights of rows that leave are in the file, and their sums are not.
KILLED = """
import os, signal, sys
from pathlib import Path
from shunter.engine.data.dataset import Dataset
from shunter.extensions.tiers.tiers import RowTiers
from tests.extensions.tiers.test_embedding_cache import train_cached
left = int(sys.argv[3])
def half_written(self, rows, slots):
    global left
    left -= bool(len(rows))
    self.weight.index_copy_(0, rows, self._fast_weight.index_select(0, slots))
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    self.adagrad_sum.index_copy_(0, rows, self._fast_sum.index_select(0, slots))
RowTiers.write_back = half_written
train_cached(Dataset.load(Path(sys.argv[1])), Path(sys.argv[2]), checkpoint_steps=3)
"""


@pytest.mark.slow
def test_killed_between_the_halves_of_an_eviction_it_goes_on_bit_by_bit(
    dataset: Dataset, in_memory: TrainResult, tmp_path: Path
) -> None:
    for evictions in ("2", "60"):
        command = [sys.executable, "-c", KILLED, str(dataset.directory), str(tmp_path), evictions]
        child = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, check=False)
        assert child.returncode == -signal.SIGKILL, child.stderr
        assert not [path for path in tmp_path.iterdir() if path.stat().st_size > 10**6]  # the tables have gone with it
    assert (tmp_path / "checkpoint.json").exists()
    assert_same(train_cached(dataset, tmp_path), in_memory)


def test_a_disk_that_fails_while_rows_leave_is_told_and_the_state_stays(
    dataset: Dataset, in_memory: TrainResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_back, left = RowTiers.write_back, [40]

    def fail(tables: RowTiers, rows: torch.Tensor, slots: torch.Tensor) -> None:
        left[0] -= 1
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_back(tables, rows, slots)

    monkeypatch.setattr(RowTiers, "write_back", fail)
    with pytest.raises(HardwareError):
        train_cached(dataset, tmp_path, checkpoint_steps=3)
    assert_same(train_cached(dataset, tmp_path), in_memory)


def test_the_finished_model_scores_and_is_saved_as_any_other(
    dataset: Dataset, in_memory: TrainResult, tmp_path: Path
) -> None:
    model = train_cached(dataset, tmp_path / "checkpoint").model
    expected = evaluate(in_memory.model, dataset, "test", IN_MEMORY)
    assert (evaluate(model, dataset, "test", CACHED).logits == expected.logits).all()
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert (evaluate(loaded, dataset, "test", IN_MEMORY).logits == expected.logits).all()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of the process from Linux")
@pytest.mark.usefixtures("in_memory")  # so that what a first training loads is there already
def test_the_tables_never_lie_in_memory(dataset: Dataset, tmp_path: Path) -> None:
    """Neither when they are drawn, nor when they are saved, nor when the best of them are put back."""
    first, *others = dataset.features.categorical
    features = replace(dataset.features, categorical=(replace(first, rows=3_000_000), *others))
    table_bytes = 3_000_000 * (8 + 1) * 4
    with most_private_memory() as taken:
        # A place and a level for each row, and room for 400.
        execution = replace(CACHED, embedding_memory_bytes=5 * sum(features.table_rows) + 64 * 400)
        train_cached(replace(dataset, features=features), tmp_path, execution)
    assert 0 < taken[0] < table_bytes / 2


def test_a_probe_measures_with_the_cache(dataset: Dataset) -> None:
    assert time_steps(dataset, SPEC, RATES, CACHED, steps=3).steps == 3


def test_a_cache_that_holds_one_batch_alone_is_enough(dataset: Dataset, in_memory: TrainResult, tmp_path: Path) -> None:
    assert_same(train_cached(dataset, tmp_path, in_file(110)), in_memory)


def test_a_cache_smaller_than_one_batch_is_refused_with_the_sizes(dataset: Dataset, tmp_path: Path) -> None:
    expected = r"cache of 40 rows cannot hold the \d+ rows of one batch: raise --embedding-memory"
    with pytest.raises(RequestError, match=expected):
        train_cached(dataset, tmp_path, in_file(40))


def test_without_a_place_for_checkpoints_they_lie_beside_the_data_until_the_end(
    dataset: Dataset, in_memory: TrainResult
) -> None:
    before = sorted(dataset.directory.iterdir())
    found: list[str] = []
    hooks = Hooks(on_epoch=lambda _: found.extend(path.name for path in dataset.directory.glob("training-*")))
    assert_same(train(TrainingJob(dataset, SPEC, RATES, CACHED, SCHEDULE), hooks), in_memory)
    assert found
    assert sorted(dataset.directory.iterdir()) == before


def test_a_check_within_an_epoch_disturbs_nothing(dataset: Dataset, in_memory: TrainResult, tmp_path: Path) -> None:
    reports: list[EpochReport] = []
    schedule = replace(SCHEDULE, checks=(0.3, 1.5))
    job = TrainingJob(dataset, SPEC, RATES, CACHED, schedule)
    assert_same(train(job, Hooks(on_epoch=reports.append), Checkpointing(tmp_path, steps=5)), in_memory)
    assert [report.is_check for report in reports] == [True, False, True, False, False]
    alone = train(replace(job, execution=IN_MEMORY), Hooks(on_epoch=(others := []).append))
    assert alone.best_epoch == in_memory.best_epoch
    assert [report.validation for report in reports] == [report.validation for report in others]


def test_a_finished_model_scores_where_it_lies(dataset: Dataset, in_memory: TrainResult, tmp_path: Path) -> None:
    save_model(in_memory.model, tmp_path)
    expected = evaluate(in_memory.model, dataset, "test", IN_MEMORY)
    mapped = load_model(tmp_path, is_mapped=True)
    assert isinstance(mapped, Recommender)
    assert isinstance(mapped.embeddings, MappedEmbeddings)
    assert (evaluate(mapped, dataset, "test", CACHED).logits == expected.logits).all()
    save_model(Ensemble([mapped], [1.0]), tmp_path / "again")
    again = load_model(tmp_path / "again", is_mapped=True)
    assert (evaluate(again, dataset, "test", CACHED).logits == expected.logits).all()


# 1,500 rows of (8 + 1) floats of 4 bytes are 54,000 bytes.
FEATURES = Features(
    dense=(), categorical=(CategoricalFeature(name="item", rows=500), CategoricalFeature(name="user", rows=1_000))
)


def test_tables_larger_than_memory_are_refused_with_the_field_and_the_option() -> None:
    check_tables_fit(SPEC, FEATURES, IN_MEMORY, available_bytes=54_000)
    expected = (
        r"take 54,000 bytes, 36,000 of them for the 1,000 rows of the field 'user', but only 53,999 .*--embedding-mem"
    )
    with pytest.raises(RequestError, match=expected):
        check_tables_fit(SPEC, FEATURES, IN_MEMORY, available_bytes=53_999)


def test_of_tables_in_a_file_their_memory_must_fit() -> None:
    """A cached row takes 28 bytes of book-keeping beside its 36, and any row 5."""
    cached = replace(IN_MEMORY, embedding_memory_bytes=13_900)
    assert cached_rows(SPEC, FEATURES, 13_900) == 100
    check_tables_fit(SPEC, FEATURES, cached, available_bytes=13_900)
    with pytest.raises(RequestError, match="--embedding-memory"):
        check_tables_fit(SPEC, FEATURES, cached, available_bytes=13_899)


def test_tables_that_fit_need_no_file() -> None:
    assert cached_rows(SPEC, FEATURES, 54_000) is None
    assert cached_rows(SPEC, FEATURES, 53_999) == (53_999 - 7_500) // 64
    check_tables_fit(SPEC, FEATURES, replace(IN_MEMORY, embedding_memory_bytes=99_000), available_bytes=54_000)


@pytest.mark.parametrize(
    ("spec", "memory_bytes", "message"),
    [
        (SPEC, 7_563, "takes 7,500 bytes, which leaves no room for rows within --embedding-memory of 7,563"),
        (model_spec(embedding_dim=8, table_dims=(4, 8)), 20_000, "of several widths or shared rows take 46,000 bytes"),
        (model_spec("din", embedding_dim=8), 20_000, "of din, read id by id, take 54,000 bytes"),
    ],
)
def test_tables_that_cannot_lie_in_a_file_are_refused(spec: ModelSpec, memory_bytes: int, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        cached_rows(spec, FEATURES, memory_bytes)


def test_training_and_probe_refuse_tables_larger_than_this_machine(dataset: Dataset) -> None:
    rows = available_memory_bytes(torch.device("cpu")) // 4
    features = Features(dense=(), categorical=(CategoricalFeature(name="user", rows=rows),))
    larger = replace(dataset, features=features)
    with pytest.raises(RequestError, match="'user'"):
        train(TrainingJob(larger, SPEC, RATES, IN_MEMORY, SCHEDULE))
    with pytest.raises(RequestError, match="'user'"):
        time_steps(larger, SPEC, RATES, IN_MEMORY)
