"""What the processes of these tests run, and how they are started: forked from a server that has imported TorchRec."""

import multiprocessing
import os
import random
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.loop.trainer import train
from shunter.engine.results import EpochReport
from shunter.extensions.distributed.tables.sharded import ShardedEmbeddings
from shunter.extensions.distributed.training import Machine, Sharding
from shunter.extensions.distributed.training.processes import ManyProcesses
from shunter.extensions.distributed.training.stored import latest_checkpoint
from shunter.models.registry import model_spec
from tests.engine.interruptions import interrupt_at
from tests.engine.parts import parts_of

SPEC = model_spec(embedding_dim=8, bottom_widths=(8,), top_widths=(16,))
EXECUTION = Execution(threads=1, batch_size=97)  # neither divisible by 2 nor a divisor of the rows
SCHEDULE = Schedule(max_epochs=2, patience=4, seed=3)
RATES = Hyperparameters(dense_learning_rate=5e-3, embedding_learning_rate=0.1)
LONGEST_SECONDS = 0.1  # some steps, each with a checkpoint
LONGEST_WAIT_SECONDS = 600  # for a group that hangs; nothing is said of how long one takes
MACHINE = Machine(memory_bytes=2 << 30, memory_bytes_per_second=1e10, link_bytes_per_second=1e9)


def start(ranks: int, folder: Path, work: Callable[..., Any], *arguments: Any) -> list[BaseProcess]:
    """Start `work(*arguments)` in every process of a new group; each leaves what it returns in `rank{n}.pt`."""
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "torchrec.distributed.planner"])
    processes = [
        context.Process(target=_enter, args=(rank, ranks, folder, work, arguments), daemon=True)
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    return list(processes)


def run(ranks: int, folder: Path, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Run `work(*arguments)` in every process of a new group; returns what each returned.

    Raises:
        AssertionError: one failed; its traceback is in the message.
    """
    processes = start(ranks, folder, work, *arguments)
    for process in processes:
        process.join(LONGEST_WAIT_SECONDS)
    errors = [path.read_text() for path in sorted(folder.glob("error*.txt"))]
    for process in processes:
        process.kill()
    assert not errors, errors[0]
    assert [process.exitcode for process in processes] == [0] * ranks
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(ranks)]


def _enter(rank: int, ranks: int, folder: Path, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), GLOO_SOCKET_IFNAME="lo")
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder / 'rendezvous'}", rank=rank, world_size=ranks)
        torch.save(work(*arguments), folder / f"rank{rank}.pt")
        dist.destroy_process_group()
    except BaseException:
        (folder / f"error{rank}.txt").write_text(traceback.format_exc())
        raise


def train_here(dataset: Dataset, directory: Path, **options: Any) -> dict[str, Any]:
    """Train in this process's group; returns what a test may compare."""
    sharding = Sharding(machine=MACHINE, **options.pop("sharding", {}))
    arguments = {"spec": SPEC, "hyperparameters": RATES, "execution": EXECUTION, "schedule": SCHEDULE, **options}
    processes = ManyProcesses(dataset, sharding)
    result = train(*parts_of(dataset, checkpoint_directory=directory, **arguments), processes=processes)
    tables = result.model.embeddings
    shards = list(tables.shards())
    return {
        "history": result.history,
        "best": processes.kept.best,
        "shards": [(s.table, s.first_row, s.first_column, s.weight.clone(), s.adagrad_sum.clone()) for s in shards],
        "layers": {name: value.clone() for name, value in result.model.layers.state_dict().items()},
        "types": types_of(tables) if isinstance(tables, ShardedEmbeddings) else [],
        "tiers": result.tiers,
    }


def types_of(embeddings: ShardedEmbeddings) -> list[str]:
    """The sharding type of each table that is TorchRec's."""
    assert embeddings.plan is not None
    (module_plan,) = embeddings.plan.plan.values()
    return [module_plan[f"table{place}"].sharding_type for place in range(len(module_plan))]  # type: ignore[index,arg-type]


def train_and_stop(dataset: Dataset, directory: Path, step: int, **options: Any) -> None:
    """Train until `step`, then stop as an interrupted training does."""

    with suppress(KeyboardInterrupt):
        train_here(dataset, directory, on_step=interrupt_at(step), **options)


def curve(history: tuple[EpochReport, ...]) -> list[float]:
    """The losses of a training, epoch by epoch."""
    return [loss for report in history for loss in (report.train_logloss, report.validation.logloss)]


def kill_at_random(processes: list[BaseProcess], checkpoints: Path, drawn: random.Random) -> bool:
    """Kill a process soon after the next checkpoint, then end the others as torchrun does. Whether one was killed."""
    victim = drawn.choice(processes)
    before = latest_checkpoint(checkpoints)
    while victim.is_alive() and latest_checkpoint(checkpoints) == before:
        victim.join(0.01)
    victim.join(drawn.uniform(0.0, LONGEST_SECONDS))
    killed = victim.is_alive()
    if killed and victim.pid is not None:
        os.kill(victim.pid, signal.SIGKILL)
    for process in processes:
        if killed:
            process.terminate()
        process.join(LONGEST_WAIT_SECONDS)
    return killed
