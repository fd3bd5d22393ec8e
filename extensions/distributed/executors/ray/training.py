"""Caller's side of a training run on nodes: sends the task, follows it, and detects the loss of a node.

The cost of collectives between nodes is measured by one process on each, and cached for a day.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import torch
from pydantic import AwareDatetime

from shunter.checked_json import read_or_quarantine
from shunter.engine.checkpoint.checked_files import write_json
from shunter.engine.execution import execution_of
from shunter.engine.executors.checkpoint_files import Files
from shunter.engine.executors.energy import add_parallel_readings
from shunter.engine.executors.messages import Done, EnergyUsed, Failed, Message, Order, Task
from shunter.engine.executors.remote_training import GRACE_SECONDS, LostError, RemoteTraining
from shunter.engine.job import Hooks
from shunter.engine.profiling.profiles import MAX_AGE, ProfileKey
from shunter.errors import HardwareError, ShunterError, TrainingError, first_line
from shunter.extensions.distributed.executors.ray.node_trainer import (
    ANSWER_SECONDS,
    GroupTrainer,
    Membership,
    NodeTrainer,
)
from shunter.extensions.distributed.executors.ray.slots import WorkerSlot
from shunter.extensions.distributed.links.collectives import fitted, timed
from shunter.extensions.distributed.links.nodes import ClusterNode, alive_nodes, placed
from shunter.frozen import Frozen
from shunter.hardware.types import Collective, CollectiveCost, EnergyReading
from shunter.settings import Settings

END_SECONDS = 5.0  # time for processes to exit after the last message of the first process
KNOWN_SECONDS = 60.0  # time until Ray detects a lost node; lost processes are detected at once
REACH_SECONDS = 10.0  # time until processes that cannot reach each other count as lost
LONGEST_PROBE_SECONDS = 300.0
LINK = "gloo between nodes"
NODE_LABEL = "ray.io/node-id"  # label of every node
CONNECTION = ("gloo", "nccl", "connection", "tcpstore", "socket")  # parts of torch's errors about a lost process


class NodeLostError(TrainingError):
    """Error: a node, or a training process on it, was lost; the last checkpoint is kept."""

    code = "node-lost"


def train_on_nodes(
    slots: Sequence[WorkerSlot],
    task: Task,
    files: Files,
    hooks: Hooks,
    *,
    is_together: bool,
    on_energy: Callable[[EnergyReading], None],
    on_checkpoint: Callable[[Files], None],
    on_begin: Callable[[], None],
) -> Done:
    """Train to completion in one process on each worker slot; all nodes have the data.

    Args:
        slots: Worker slots, those of one node next to each other.
        task: Training to run or to resume.
        files: Files of the state to resume from; empty for a new training.
        hooks: Functions that are called in this process.
        is_together: Whether the processes form a group (possibly of one process), whose checkpoints are sharded.
        on_energy: Called with the energy of all processes so far.
        on_checkpoint: Called with the files of each new state.
        on_begin: Called when Ray has reserved the resources of all processes.

    Raises:
        NodeLostError: A node or a process died.
        KeyboardInterrupt: Ctrl-C; the state has been saved.
        Exception: Error of the training, or of a hook.
    """
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    group = None
    if len(slots) > 1:  # reserve all of these resources, each on its node, or none of them
        labels = [{NODE_LABEL: slot.node.node_id} for slot in slots]
        group = placement_group([slot.resources for slot in slots], bundle_label_selector=labels)
    actors: list[Any] = []
    try:
        actors += [_actor(group, turn, slot, is_together=is_together) for turn, slot in enumerate(slots)]
        training = RemoteTraining(_Channel(actors, slots), hooks, on_energy=on_energy, on_checkpoint=on_checkpoint)
        try:
            _wait_for_room(actors, slots, hooks)
            _start(actors, slots, task, files, is_together=is_together)
            on_begin()
            done = training.run(must_save=lambda error: task.checkpointing is not None)
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
        if group is not None:
            remove_placement_group(group)


def wait_until_known(slots: Sequence[WorkerSlot]) -> None:
    """Wait, after a node was lost, until each node answers or Ray reports it dead, at most `KNOWN_SECONDS`."""
    import ray

    asked = ray.remote(num_cpus=0)(lambda: None)
    nodes = {slot.node.node_id for slot in slots}
    answers = [asked.options(**placed(node)).remote() for node in nodes]
    ray.wait(answers, num_returns=len(answers), timeout=KNOWN_SECONDS)


def _actor(group: Any, turn: int, slot: WorkerSlot, *, is_together: bool) -> Any:
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    needs = slot.resources
    options: dict[str, Any] = {"num_cpus": needs.get("CPU", 0), "num_gpus": needs.get("GPU", 0)}
    options |= {"memory": needs["memory"]} if "memory" in needs else {}
    if group is None:
        options |= placed(slot.node.node_id)
    else:
        there = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=turn)
        options["scheduling_strategy"] = there
    return ray.remote(GroupTrainer if is_together else NodeTrainer).options(**options).remote()  # pyright: ignore


def _wait_for_room(actors: Sequence[Any], slots: Sequence[WorkerSlot], hooks: Hooks) -> None:
    """Wait until Ray has reserved the resources of all processes; a hook may end the wait by an exception.

    Raises:
        NodeLostError: A node was lost, so that its resources can never be reserved.
    """
    import ray

    ready = [actor.ready.remote() for actor in actors]
    while ray.wait(ready, num_returns=len(ready), timeout=ANSWER_SECONDS)[1]:
        if hooks.should_stop:
            hooks.should_stop()
        up = {node["NodeID"] for node in alive_nodes()}
        for slot in slots:
            if slot.node.node_id not in up:
                raise NodeLostError(f"Node {slot.node.name} of the cluster was lost before its training run began.")
    ray.get(ready)


def _start(actors: Sequence[Any], slots: Sequence[WorkerSlot], task: Task, files: Files, *, is_together: bool) -> None:
    """Start the training in all processes; the first alone receives the checkpoint files and returns the model."""
    import ray

    if is_together:
        host, port = ray.get(actors[0].address.remote())
        members = Membership.of_all([slot.node.node_id for slot in slots], host, port)
        for actor, member in zip(actors, members, strict=True):
            actor.join.remote(member)
    started = []
    for rank, (actor, slot) in enumerate(zip(actors, slots, strict=True)):
        own = replace(
            task, job=replace(task.job, execution=execution_of(slot.placement)), cores=slot.cores or task.cores
        )
        started.append(
            actor.start.remote(replace(own, wants_model=own.wants_model and not rank), {} if rank else files)
        )
    ray.get(started)


class _Channel:
    """Channel to all processes; a `shunter.engine.executors.remote_training.Channel`.

    Args:
        actors: Ray's handles of the processes, in their order.
    """

    def __init__(self, actors: Sequence[Any], slots: Sequence[WorkerSlot]) -> None:
        self._actors, self._slots = actors, slots
        self._readings: dict[int, EnergyReading] = {}

    def receive(self) -> Sequence[Message]:
        said = self._ask()
        if len(self._actors) == 1:
            return [message for _, message in said]
        failed = [error for _, error in said if isinstance(error, Failed)]
        if failed and not isinstance(failed[0].error, KeyboardInterrupt):
            # The cause is the first failure that is not a mere loss of connection to another, already failed process.
            deadline = time.monotonic() + REACH_SECONDS
            while all(_is_connection(one.error) for one in failed):
                if time.monotonic() >= deadline:
                    raise LostError(lost(_names(self._slots), failed[0].error)) from failed[0].error
                failed += [message for _, message in self._ask() if isinstance(message, Failed)]
            return [next(one for one in failed if not _is_connection(one.error))]
        own = [message for rank, message in said if rank == 0 and not isinstance(message, EnergyUsed)]
        energy = [EnergyUsed(add_parallel_readings(list(self._readings.values())))] if self._readings else []
        return [*energy, *own]

    def order(self, order: Order) -> None:
        from ray.exceptions import RayError

        with suppress(RayError):  # the next `receive` detects the loss
            self._actors[0].order.remote(order)

    def _ask(self) -> list[tuple[int, Message]]:
        """Return new messages with the rank of their process; wait only for messages of the first process."""
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


def _is_connection(error: BaseException) -> bool:
    """Return True if an error means that another process is unreachable."""
    words = f"{type(error).__name__} {error}".lower()
    return not isinstance(error, ShunterError) and any(word in words for word in CONNECTION)


def _names(slots: Sequence[WorkerSlot]) -> str:
    return ", ".join(dict.fromkeys(slot.node.name for slot in slots))


def signs_of_a_loss() -> tuple[type[Exception], ...]:
    """Return Ray's exceptions for a lost process, or for a node lost with a pending result."""
    from ray.exceptions import NodeDiedError, ObjectLostError, RayActorError

    return RayActorError, NodeDiedError, ObjectLostError


def lost(node: str, error: BaseException) -> NodeLostError:
    """Return the error for a training run on these nodes whose process was lost; `error` revealed the loss."""
    return NodeLostError(
        f"The training on node {node} was lost, because its process ended ({first_line(error)}): its "
        "last checkpoint is kept, train again to resume from it."
    )


class NetworkFile(Frozen):
    """Content of `network-*.json` beside the profiles."""

    key: ProfileKey
    measured_at: AwareDatetime
    collectives: tuple[CollectiveCost, ...]


class NetworkProbe(GroupTrainer):
    """Ray actor that takes part in the timing of collective operations between nodes."""

    def durations(self) -> dict[tuple[Collective, int], list[float]]:
        """Return the measured seconds of collective operations, for each repetition, by operation and message size."""
        torch.set_num_threads(1)
        with self._group("cpu"):
            return dict(timed())


def network_between(nodes: Sequence[ClusterNode]) -> tuple[CollectiveCost, ...]:
    """Time collectives between one process on each node, or read the measurement of the last day.

    Raises:
        HardwareError: A node does not take part in the measurement.
    """
    names = "|".join(sorted(f"{node.host} {node.address} {node.name}" for node in nodes))
    key = ProfileKey.of(hashlib.sha256(names.encode()).hexdigest()[:16])
    path = Settings().profile_directory / f"network-{key.host}.json"
    kept = read_or_quarantine(path, NetworkFile.model_validate_json)
    if kept is not None and kept.key == key and timedelta(0) <= datetime.now(UTC) - kept.measured_at <= MAX_AGE:
        return kept.collectives
    measured = _measured(nodes)
    content = NetworkFile(key=key, measured_at=datetime.now(UTC), collectives=measured)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content.model_dump_json(indent=1))
    return measured


def _measured(nodes: Sequence[ClusterNode]) -> tuple[CollectiveCost, ...]:
    import ray
    from ray.exceptions import RayError

    actors: list[Any] = [
        ray.remote(NetworkProbe).options(num_cpus=0, **placed(node.node_id)).remote()  # pyright: ignore
        for node in nodes
    ]
    try:
        host, port = ray.get(actors[0].address.remote(), timeout=LONGEST_PROBE_SECONDS)
        for actor, member in zip(actors, Membership.of_all([one.node_id for one in nodes], host, port), strict=True):
            actor.join.remote(member)
        asked = [actor.durations.remote() for actor in actors]
        return fitted(ray.get(asked, timeout=LONGEST_PROBE_SECONDS)[0], len(nodes), LINK)
    except RayError as error:
        raise HardwareError(
            f"The network between the nodes {', '.join(node.name for node in nodes)} cannot be measured "
            f"({first_line(error)}): check that the nodes can connect to each other, or train in one "
            "process."
        ) from error
    finally:
        for actor in actors:
            ray.kill(actor)
