"""The side of a training on a node that its flow sees: sends the job, passes on what happens, survives the node."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from engine.executors.ray.checkpoint import Files
from engine.executors.ray.node_trainer import ANSWER_SECONDS, Job, News, NodeTrainer, Outcome
from engine.results import EpochReport, TrainResult
from hardware.devices.nodes import ClusterNode, placed
from hardware.meters.source import first_line
from hardware.types import EnergyReading
from models.registry import build_model
from shunter.errors import TrainingError

GRACE_SECONDS = 60.0  # to save the state after an interrupt


class NodeLostError(TrainingError):
    """A node, or the process that trained on it, is gone; what it had saved has been kept."""


@dataclass(frozen=True, kw_only=True)
class Listener:
    """Who is told, on this side, what happens there.

    Attributes:
        on_step: as in `engine.loop.trainer.train`.
        on_epoch: the same.
        should_stop: the same.
        on_checkpoint: called with the files of each new checkpoint.
        on_energy: called with what the node has used so far.
    """

    on_step: Callable[[int, int], None] | None
    on_epoch: Callable[[EpochReport], None] | None
    should_stop: Callable[[], str | None] | None
    on_checkpoint: Callable[[Files], None]
    on_energy: Callable[[EnergyReading], None]


def train_on_node(node: ClusterNode, job: Job, listener: Listener) -> Outcome:
    """Train to the end on a node that has the data.

    Raises:
        NodeLostError: the node or its process died.
        KeyboardInterrupt: Ctrl-C; the state has been saved.
        Exception: what the training raised there, or the listener here.
    """
    import ray
    from ray.exceptions import RayActorError

    actor: Any = ray.remote(NodeTrainer).options(**_resources(node, job)).remote()  # pyright: ignore
    try:
        _start(actor, job, listener)
        return _Followed(actor, listener, saves=job.checkpoint is not None).to_the_end()
    except RayActorError as error:
        raise NodeLostError(
            f"The training on node {node.name} was lost with its process ({first_line(error)}): its last checkpoint "
            f"is kept, train again to resume from it."
        ) from error
    finally:
        ray.kill(actor)


def with_model(job: Job, outcome: Outcome) -> TrainResult:
    """The result of a training whose weights came home."""
    model = build_model(job.spec, job.dataset.features)
    model.load_state_dict(outcome.weights)
    return TrainResult(model=model.eval(), **vars(outcome.figures))


def _start(actor: Any, job: Job, listener: Listener) -> None:
    """Begin to train as soon as the node has room; the listener may end the waiting by an exception."""
    import ray

    started = actor.start.remote(job)
    while not ray.wait([started], timeout=ANSWER_SECONDS)[0]:
        if listener.should_stop:
            listener.should_stop()
    ray.get(started)


def _resources(node: ClusterNode, job: Job) -> dict[str, Any]:
    """What Ray sets aside on the node, so that two trainings there wait for each other."""
    on_gpu = job.execution.device.startswith("cuda")
    cores = min(job.execution.threads, node.resources.get("CPU", 0.0))
    return {"num_cpus": cores, "num_gpus": int(on_gpu), **placed(node.node_id)}


class _Followed:
    """A training on a node while it runs.

    Args:
        actor: Ray's handle of the `NodeTrainer`, started.
        listener: who is told.
        saves: whether it has a state to save when it is interrupted.
    """

    def __init__(self, actor: Any, listener: Listener, *, saves: bool) -> None:
        self._actor, self._listener, self._saves = actor, listener, saves
        self._told_to_stop = False

    def to_the_end(self) -> Outcome:
        """Pass on what happens there until it has ended; an exception here lets it save its state and end."""
        import ray
        from ray.exceptions import RayActorError

        try:
            news: News = ray.get(self._actor.news.remote())
            while not news.ended:
                self._pass_on(news)
                self._pass_on_stop()
                news = ray.get(self._actor.news.remote())
            self._pass_on(news)
        except RayActorError:
            raise
        except BaseException:
            self._interrupt()
            raise
        if news.outcome is None:
            raise news.error or TrainingError("The training on the node ended without a result: train again.")
        return news.outcome

    def _pass_on(self, news: News) -> None:
        listener = self._listener
        if news.energy is not None:
            listener.on_energy(news.energy)
        if news.checkpoint:
            listener.on_checkpoint(news.checkpoint)
        if news.step and listener.on_step:
            listener.on_step(*news.step)
        if listener.on_epoch:
            for report in news.epochs:
                listener.on_epoch(report)

    def _pass_on_stop(self) -> None:
        should_stop = self._listener.should_stop
        because = should_stop() if should_stop and not self._told_to_stop else None
        if because:
            self._told_to_stop = True
            self._actor.stop.remote(because)

    def _interrupt(self) -> None:
        """Let the training save its state after the current step, and keep it here."""
        import ray
        from ray.exceptions import RayError

        if not self._saves:
            return
        deadline = time.monotonic() + GRACE_SECONDS
        with suppress(RayError):
            self._actor.stop.remote(None)
            ended = False
            while not ended and time.monotonic() < deadline:
                news: News = ray.get(self._actor.news.remote(), timeout=GRACE_SECONDS)
                if news.checkpoint:
                    self._listener.on_checkpoint(news.checkpoint)
                ended = news.ended
