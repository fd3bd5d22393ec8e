"""A training in many processes on the nodes of a cluster, as its flow sees it: reserved together, followed as one."""

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from shunter.engine.execution import execution_of
from shunter.engine.executors.checkpoint_files import Files
from shunter.engine.executors.energy import side_by_side
from shunter.engine.executors.follow import GRACE_SECONDS, Followed, LostError
from shunter.engine.executors.messages import Done, EnergyUsed, Failed, Message, Order, Task
from shunter.engine.executors.ray.group_trainer import GroupTrainer, Membership
from shunter.engine.executors.ray.node_trainer import ANSWER_SECONDS
from shunter.engine.executors.ray.training import NodeLostError, lost, memory_there, signs_of_a_loss
from shunter.engine.job import Hooks
from shunter.errors import ShunterError
from shunter.hardware.devices.nodes import ClusterNode, alive_nodes, placed, reserved
from shunter.hardware.types import EnergyReading, Placement

END_SECONDS = 5.0  # that processes have to leave once the first has said its last word
KNOWN_SECONDS = 60.0  # after which Ray knows of a node that it is gone; its processes are missed at once
REACH_SECONDS = 10.0  # that processes which cannot reach each other may take to be missed
CONNECTION = ("gloo", "nccl", "connection", "tcpstore", "socket")  # in what torch says when another process is gone


@dataclass(frozen=True)
class Seat:
    """Where one process of a group trains.

    Attributes:
        node: Its node.
        placement: Its accelerator there, with the threads of this process alone.
        shared_by: Processes of the group on that node.
        memory_bytes: Of the node's memory, as predicted; 0 where nobody can say.
    """

    node: ClusterNode
    placement: Placement
    shared_by: int
    memory_bytes: int = 0

    @property
    def resources(self) -> dict[str, float]:
        """What Ray sets aside for it; processes that share fewer cores than they are get a part of one."""
        cores = min(float(self.placement.threads), self.node.resources.get("CPU", 0.0) / self.shared_by)
        gpus = float(self.placement.device.startswith("cuda"))
        memory = memory_there(self.node, self.memory_bytes, self.shared_by)
        return {name: count for name, count in (("CPU", cores), ("GPU", gpus), ("memory", memory)) if count}

    @property
    def cores(self) -> int | None:
        """Cores whose idle power counts as this process's; None is all of them."""
        if self.shared_by == 1:
            return None
        return max(1, next(one.cores for one in self.node.accelerators if one.kind == "cpu") // self.shared_by)


def train_on_nodes(
    seats: Sequence[Seat],
    task: Task,
    files: Files,
    hooks: Hooks,
    *,
    on_energy: Callable[[EnergyReading], None],
    on_checkpoint: Callable[[Files], None],
    on_begin: Callable[[], None] = lambda: None,
) -> Done:
    """Train to the end in a process on each seat; all nodes have the data.

    Args:
        seats: Where, those of one node next to each other.
        task: The training, or the rest of one.
        files: State to go on from; empty to begin.
        hooks: Functions that are called here.
        on_energy: Called with what all of them have used so far.
        on_checkpoint: Called with the files of each new state.
        on_begin: Called when the nodes have room for all.

    Raises:
        NodeLostError: A node or a process died.
        KeyboardInterrupt: Ctrl-C; the state has been saved.
        Exception: What the training raised there, or a hook here.
    """
    import ray
    from ray.util import remove_placement_group

    group = reserved([seat.resources for seat in seats], [seat.node for seat in seats])
    actors: list[Any] = []
    try:
        _wait_for_room(group, seats, hooks)
        actors += [_actor(group, turn, seat) for turn, seat in enumerate(seats)]
        training = Followed(_GroupLine(actors, seats), hooks, on_energy=on_energy, on_checkpoint=on_checkpoint)
        try:
            _start(actors, seats, task, files)
            on_begin()
            done = training.to_the_end(ends_it=lambda error: task.checkpointing is not None)
        except signs_of_a_loss() as error:
            raise lost(_names(seats), error) from error
        finally:
            if training.has_ended:
                leaving = [actor.end.remote(END_SECONDS) for actor in actors]
                ray.wait(leaving, num_returns=len(actors), timeout=END_SECONDS)
        return done
    finally:
        for actor in actors:
            ray.kill(actor)
        remove_placement_group(group)


def wait_until_known(seats: Sequence[Seat]) -> None:
    """Wait, after a loss, until each of the nodes answers or Ray knows that it is gone; no longer than a while."""
    import ray

    asked = ray.remote(num_cpus=0)(_answer)
    nodes = {seat.node.node_id for seat in seats}
    answers = [asked.options(**placed(node)).remote() for node in nodes]
    ray.wait(answers, num_returns=len(answers), timeout=KNOWN_SECONDS)


def _answer() -> None:
    """Say that the node is there."""


def _wait_for_room(group: Any, seats: Sequence[Seat], hooks: Hooks) -> None:
    """Wait until Ray has set aside what all processes need; a hook may end the waiting by an exception.

    Raises:
        NodeLostError: One of the nodes is gone, so there will be no room.
    """
    while not group.wait(ANSWER_SECONDS):
        if hooks.should_stop:
            hooks.should_stop()
        up = {node["NodeID"] for node in alive_nodes()}
        for seat in seats:
            if seat.node.node_id not in up:
                raise NodeLostError(f"Node {seat.node.name} is gone before the training began there.")


def _actor(group: Any, turn: int, seat: Seat) -> Any:
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    there = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=turn)
    needs = seat.resources
    options: dict[str, Any] = {"num_cpus": needs.get("CPU", 0), "num_gpus": needs.get("GPU", 0)}
    options |= {"memory": needs["memory"]} if "memory" in needs else {}
    return ray.remote(GroupTrainer).options(**options, scheduling_strategy=there).remote()  # pyright: ignore


def _start(actors: Sequence[Any], seats: Sequence[Seat], task: Task, files: Files) -> None:
    """Tell each process who it is, and let it train; the first gets the state, and hands it on."""
    import ray

    host, port = ray.get(actors[0].address.remote())
    names = [seat.node.node_id for seat in seats]
    keepers = tuple(names.index(name) for name in names)
    token = uuid.uuid4().hex
    started = []
    for rank, (actor, seat) in enumerate(zip(actors, seats, strict=True)):
        own = replace(task, job=replace(task.job, execution=execution_of(seat.placement)), cores=seat.cores)
        actor.join.remote(Membership(token, rank, keepers, host, port))
        started.append(actor.start.remote(own, {} if rank else files))
    ray.get(started)


class _GroupLine:
    """To all processes; the `shunter.engine.executors.follow.Line` of a group on several nodes.

    Args:
        actors: Ray's handles of the processes, in their order.
        seats: Where they live.
    """

    def __init__(self, actors: Sequence[Any], seats: Sequence[Seat]) -> None:
        self._actors, self._seats = actors, seats
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

        with suppress(RayError):  # what became of it is found out when it is asked
            self._actors[0].order.remote(order)

    def _ask(self) -> list[tuple[int, Message]]:
        """What each of them says; the first is waited for a moment, the others are not."""
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
                raise LostError(lost(self._seats[rank].node.name, error)) from error
            for message in messages:
                if isinstance(message, EnergyUsed):
                    self._readings[rank] = message.reading
                found.append((rank, message))
        return found

    def _cause(self, failed: list[Failed]) -> Failed:
        """Of what went wrong that which the rest followed from.

        Raises:
            LostError: A process or its node is gone, or out of reach of the others.
        """
        deadline = time.monotonic() + REACH_SECONDS
        while all(_is_connection(one.error) for one in failed):
            if time.monotonic() >= deadline:
                raise LostError(lost(_names(self._seats), failed[0].error)) from failed[0].error
            failed += [message for _, message in self._ask() if isinstance(message, Failed)]
        return next(one for one in failed if not _is_connection(one.error))


def _is_connection(error: BaseException) -> bool:
    """Whether an error says that another process cannot be reached."""
    words = f"{type(error).__name__} {error}".lower()
    return not isinstance(error, ShunterError) and any(word in words for word in CONNECTION)


def _names(seats: Sequence[Seat]) -> str:
    return ", ".join(dict.fromkeys(seat.node.name for seat in seats))
