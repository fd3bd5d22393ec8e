"""Several trainings at a time: which nodes take them, and the slot that sends them there."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from engine.config import Hyperparameters, Schedule
from engine.data.dataset import Dataset
from engine.execution import execution_of
from engine.executors.ledger import Ledger, LedgerMeter
from engine.executors.ray.node_trainer import Job, Outcome
from engine.executors.ray.training import Listener
from engine.results import TrainingFigures
from hardware.devices.nodes import ClusterNode
from hardware.types import Placement
from models.spec import ModelSpec
from shunter.errors import RequestError


def spread(placement: Placement, count: int, nodes: Mapping[str, ClusterNode]) -> list[tuple[Placement, int]]:
    """Where so many trainings run at a time, and how many share the node's processor, the same for all.

    All get the same model of accelerator and as many threads, for what they measure is compared. Processors are
    divided where there are more trainings than nodes; a GPU takes one training.

    Args:
        placement: the chosen one, which comes first.
        count: how many.
        nodes: of the cluster, by name.

    Raises:
        RequestError: there are fewer GPUs of that model than trainings.
    """
    chosen = nodes[str(placement.node)]
    model = next(one.model for one in chosen.accelerators if one.name == placement.device)
    alike = [
        f"{one.name}@{node.name}"
        for node in sorted(nodes.values(), key=lambda node: node.name != chosen.name)
        for one in node.accelerators
        if one.model == model
    ]
    alike.sort(key=lambda name: name != placement.accelerator)
    if placement.device != "cpu" and count > len(alike):
        raise RequestError(
            f"{count} trials at a time want a GPU each, and the cluster has {len(alike)} of the model {model}: lower "
            f"--parallel-trials to {len(alike)}."
        )
    shared_by = -(-count // len(alike))
    threads = max(1, placement.threads // shared_by)
    update = {"threads": threads} if placement.device == "cpu" else {}
    return [
        (placement.model_copy(update={"accelerator": alike[slot % len(alike)], **update}), shared_by)
        for slot in range(count)
    ]


class _Sender(Protocol):
    """The cluster, as a slot sees it."""

    nodes: dict[str, ClusterNode]

    def train(self, job: Job, placement: Placement, listener: Listener, ledger: Ledger) -> Outcome: ...


class ClusterSlot:
    """Trains on a node of the cluster; a `engine.executors.role.Slot`.

    Args:
        cluster: that sends the trainings.
        placement: where they run, and elsewhere when that node dies.
        ledger: of this slot alone.
        shared_by: slots that share the node, this one included.
    """

    def __init__(self, cluster: _Sender, placement: Placement, ledger: Ledger, *, shared_by: int) -> None:
        self.placement = placement
        self._cluster, self._ledger = cluster, ledger
        cores = next(one.cores for one in cluster.nodes[str(placement.node)].accelerators if one.kind == "cpu")
        self._cores = max(1, cores // shared_by) if shared_by > 1 else None
        self._closed = threading.Event()

    def meter(self) -> LedgerMeter:
        """Meter of what its trainings draw while it is entered."""
        return LedgerMeter(self._ledger)

    def train(
        self,
        dataset: Dataset,
        spec: ModelSpec,
        hyperparameters: Hyperparameters,
        schedule: Schedule,
        *,
        should_stop: Callable[[], str | None] | None = None,
        **options: Any,
    ) -> TrainingFigures:
        """Train; see `engine.executors.role.Slot.train`.

        Raises:
            NodeLostError: one node after the other was lost.
            KeyboardInterrupt: the slot was closed meanwhile.
        """

        def stop_or_close() -> str | None:
            if self._closed.is_set():
                raise KeyboardInterrupt
            return should_stop() if should_stop else None

        listener = Listener(
            on_epoch=options.pop("on_epoch", None),
            on_step=options.pop("on_step", None),
            should_stop=stop_or_close,
            on_checkpoint=lambda files: None,
            on_energy=self._ledger.update,
        )
        job = Job(
            dataset=dataset,
            spec=spec,
            hyperparameters=hyperparameters,
            execution=execution_of(self.placement),
            schedule=schedule,
            options=options,
            checkpoint=None,
            wants_weights=False,
            cores=self._cores,
        )
        return self._cluster.train(job, self.placement, listener, self._ledger).figures

    def close(self) -> None:
        """End the training that is under way."""
        self._closed.set()
