"""A flow that trains without end, for the tests of what a worker does with it."""

import time
from pathlib import Path

from prefect import flow

from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.interrupt import stopped_between_steps
from shunter.engine.loop.trainer import train
from shunter.models.registry import model_spec
from shunter.tasks.flow_runs import notify
from tests.engine.synthetic import write_dataset

STEP_SECONDS = 0.005  # what each step waits, so that the servers beside it have the processor


@flow(name="endless", on_failure=[notify], on_crashed=[notify])
def endless(folder: str) -> None:
    """Train in `folder`, on from the checkpoint that is there."""
    job = TrainingJob(
        write_dataset(Path(folder) / "data", rows=2_000),
        model_spec(embedding_dim=4),
        Hyperparameters(dense_learning_rate=1e-4, embedding_learning_rate=1e-3),
        Execution(batch_size=64, threads=1),
        Schedule(max_epochs=10**6, patience=10**6),
    )
    hooks = Hooks(on_step=lambda step, steps: time.sleep(STEP_SECONDS))
    stopped_between_steps(train)(job, hooks, checkpointing=Checkpointing(Path(folder) / "checkpoint", steps=200))
