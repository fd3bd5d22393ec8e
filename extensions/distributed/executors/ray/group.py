"""Caller's side of a multi-process training on cluster nodes: reserved together, followed as one training run."""

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from shunter.engine.execution import execution_of
from shunter.engine.executors.checkpoint_files import Files
from shunter.engine.executors.energy import side_by_side
from shunter.engine.executors.messages import Done, EnergyUsed, Failed, Message, Order, Task
from shunter.engine.executors.remote_training import GRACE_SECONDS, LostError, RemoteTraining
from shunter.engine.job import Hooks
from shunter.errors import ShunterError
from shunter.extensions.distributed.executors.ray.group_trainer import GroupTrainer, Membership
from shunter.extensions.distributed.executors.ray.node_trainer import ANSWER_SECONDS
from shunter.extensions.distributed.executors.ray.training import NodeLostError, lost, memory_there, signs_of_a_loss
from shunter.extensions.distributed.links.nodes import ClusterNode, alive_nodes, placed, reserved
from shunter.hardware.types import EnergyReading, Placement

END_SECONDS = 5.0  # time for processes to exit after the last message of the first process
KNOWN_SECONDS = 60.0  # time until Ray detects a lost node; lost processes are detected at once
REACH_SECONDS = 10.0  # time until processes that cannot reach each other count as lost
CONNECTION = ("gloo", "nccl", "connection", "tcpstore", "socket")  # parts of torch's errors about a lost process


@dataclass(frozen=True)
class WorkerSlot:
    """Worker slot of one process of a group.

    Attributes:
        node: Its node.
        placement: Its accelerator on the node, with the threads of this process alone.
        shared_by: Processes of the group on that node.
        memory_bytes: Predicted memory on the node; 0 if unknown.
    """

    node: ClusterNode
    placement: Placement
    shared_by: int
    memory_bytes: int = 0

    @property
    def resources(self) -> dict[str, float]:
        """Return the resources that Ray reserves; processes that share fewer cores than their number get fractions."""
        cores = min(float(self.placement.threads), self.node.resources.get("CPU", 0.0) / self.shared_by)
        gpus = float(self.placement.device.startswith("cuda"))
        memory = memory_there(self.node, self.memory_bytes, self.shared_by)
        return {name: count for name, count in (("CPU", cores), ("GPU", gpus), ("memory", memory)) if count}

    @property
    def cores(self) -> int | None:
        """Return the cores whose idle power counts for this process; None for all."""
        if self.shared_by == 1:
            return None
        return max(1, next(one.cores for one in self.node.accelerators if one.kind == "cpu") // self.shared_by)


def train_on_nodes(
    slots: Sequence[WorkerSlot],
    task: Task,
    files: Files,
    hooks: Hooks,
    *,
    on_energy: Callable[[EnergyReading], None],
    on_checkpoint: Callable[[Files], None],
    on_begin: Callable[[], None] = lambda: None,
) -> Done:
    """Train to completion in one process on each worker slot; all nodes have the data.

    Args:
        slots: Worker slots, those of one node next to each other.
        task: Training to run or to resume.
        files: Files of the state to resume from; empty for a new training.
        hooks: Functions that are called in this process.
        on_energy: Called with the energy of all processes so far.
        on_checkpoint: Called with the files of each new state.
        on_begin: Called when Ray has reserved the resources of all processes.

    Raises:
        NodeLostError: A node or a process died.
        KeyboardInterrupt: Ctrl-C; the state has been saved.
        Exception: Error of the training, or of a hook.
    """
    import ray
    from ray.util import remove_placement_group

    group = reserved([slot.resources for slot in slots], [slot.node for slot in slots])
    actors: list[Any] = []
    try:
        _wait_for_room(group, slots, hooks)
        actors += [_actor(group, turn, slot) for turn, slot in enumerate(slots)]
        training = RemoteTraining(_GroupChannel(actors, slots), hooks, on_energy=on_energy, on_checkpoint=on_checkpoint)
        try:
            _start(actors, slots, task, files)
            on_begin()
            done = training.run(ends_it=lambda error: task.checkpointing is not None)
        except signs_of_a_loss() as error:
            raise lost(_names(slots), error) from error
        finally:
            if training.has_ended:
                leaving = [actor.end.remote(END_SECONDS) for actor in actors]
                ray.wait(leaving, num_returns=len(actors), timeout=END_SECONDS)
        return done
    finally:
        for actor in actors:
            ray.kill(actor)
        remove_placement_group(group)


def wait_until_known(slots: Sequence[WorkerSlot]) -> None:
    """Wait, after a node was lost, until each node answers or Ray reports it dead, at most `KNOWN_SECONDS`."""
    import ray

    asked = ray.remote(num_cpus=0)(_answer)
    nodes = {slot.node.node_id for slot in slots}
    answers = [asked.options(**placed(node)).remote() for node in nodes]
    ray.wait(answers, num_returns=len(answers), timeout=KNOWN_SECONDS)


def _answer() -> None:
    """Do nothing; that the call returns shows that the node is alive."""


def _wait_for_room(group: Any, slots: Sequence[WorkerSlot], hooks: Hooks) -> None:
    """Wait until Ray has reserved the resources of all processes; a hook may end the wait by an exception.

    Raises:
        NodeLostError: A node was lost, so that its resources can never be reserved.
    """
    while not group.wait(ANSWER_SECONDS):
        if hooks.should_stop:
            hooks.should_stop()
        up = {node["NodeID"] for node in alive_nodes()}
        for slot in slots:
            if slot.node.node_id not in up:
                raise NodeLostError(f"Node {slot.node.name} is gone before the training began there.")


def _actor(group: Any, turn: int, slot: WorkerSlot) -> Any:
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    there = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=turn)
    needs = slot.resources
    options: dict[str, Any] = {"num_cpus": needs.get("CPU", 0), "num_gpus": needs.get("GPU", 0)}
    options |= {"memory": needs["memory"]} if "memory" in needs else {}
    return ray.remote(GroupTrainer).options(**options, scheduling_strategy=there).remote()  # pyright: ignore


def _start(actors: Sequence[Any], slots: Sequence[WorkerSlot], task: Task, files: Files) -> None:
    """Give each process its rank and start the training; the first process gets the state and distributes it."""
    import ray

    host, port = ray.get(actors[0].address.remote())
    names = [slot.node.node_id for slot in slots]
    keepers = tuple(names.index(name) for name in names)
    token = uuid.uuid4().hex
    started = []
    for rank, (actor, slot) in enumerate(zip(actors, slots, strict=True)):
        own = replace(task, job=replace(task.job, execution=execution_of(slot.placement)), cores=slot.cores)
        actor.join.remote(Membership(token, rank, keepers, host, port))
        started.append(actor.start.remote(own, {} if rank else files))
    ray.get(started)


class _GroupChannel:
    """Channel to all processes; the `shunter.engine.executors.remote_training.Channel` of a group on several nodes.

    Args:
        actors: Ray's handles of the processes, in their order.
        slots: Worker slots of the processes.
    """

    def __init__(self, actors: Sequence[Any], slots: Sequence[WorkerSlot]) -> None:
        self._actors, self._slots = actors, slots
        self._readings: dict[int, EnergyReading] = {}

    def receive(self) -> Sequence[Message]:
        said = self._ask()
        failed = [error for _, error in said if isinstance(error, Failed)]
        if failed and not isinstance(failed[0].error, KeyboardInterrupt):
            return [self._cause(failed)]
        own = [message for rank, message in said if rank == 0 and not isinstance(message, EnergyUsed)]
        energy = [EnergyUsed(side_by_side(list(self._readings.values())))] if self._readings else []
        return [*energy, *own]

    def order(self, order: Order) -> None:
        from ray.exceptions import RayError

        with suppress(RayError):  # the next `receive` detects the loss
            self._actors[0].order.remote(order)

    def _ask(self) -> list[tuple[int, Message]]:
        """Return the messages of each process with its rank; only the first process is waited for."""
        import ray
        from ray.exceptions import GetTimeoutError

        asked = [actor.messages.remote(0 if rank else ANSWER_SECONDS) for rank, actor in enumerate(self._actors)]
        found: list[tuple[int, Message]] = []
        for rank, reference in enumerate(asked):
            try:
                messages: list[Message] = ray.get(reference, timeout=GRACE_SECONDS)
            except GetTimeoutError:
                continue
            except signs_of_a_loss() as error:
                raise LostError(lost(self._slots[rank].node.name, error)) from error
            for message in messages:
                if isinstance(message, EnergyUsed):
                    self._readings[rank] = message.reading
                found.append((rank, message))
        return found

    def _cause(self, failed: list[Failed]) -> Failed:
        """Return the error that caused the other errors.

        Raises:
            LostError: A process or its node is gone, or unreachable for the other processes.
        """
        deadline = time.monotonic() + REACH_SECONDS
        while all(_is_connection(one.error) for one in failed):
            if time.monotonic() >= deadline:
                raise LostError(lost(_names(self._slots), failed[0].error)) from failed[0].error
            failed += [message for _, message in self._ask() if isinstance(message, Failed)]
        return next(one for one in failed if not _is_connection(one.error))


def _is_connection(error: BaseException) -> bool:
    """Return True if an error says that another process is unreachable."""
    words = f"{type(error).__name__} {error}".lower()
    return not isinstance(error, ShunterError) and any(word in words for word in CONNECTION)


def _names(slots: Sequence[WorkerSlot]) -> str:
    return ", ".join(dict.fromkeys(slot.node.name for slot in slots))
