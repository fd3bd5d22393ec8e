"""Ray cluster as a compute target: measures its nodes, and moves a training run to another node if its node dies."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, Self

from shunter.engine.checkpoint.storage import holds_sharded_checkpoint
from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.checkpoint_files import Files, read_checkpoint, write_checkpoint
from shunter.engine.executors.energy import Ledger
from shunter.engine.executors.messages import Done, Task
from shunter.engine.executors.move_monitor import MoveError, MoveMonitor
from shunter.engine.executors.role import Choice
from shunter.engine.job import Hooks
from shunter.engine.probes.measurement import Measurement
from shunter.engine.profiling.profiles import local_profiles
from shunter.errors import HardwareError, first_line
from shunter.extensions.distributed.executors.ray.node_trainer import (
    find_dataset,
    measure_on_node,
    read_pieces,
    write_piece,
)
from shunter.extensions.distributed.executors.ray.slots import (
    PROCESSES,
    Choices,
    FlowMeter,
    RayExecutor,
    SelectUpgrade,
    WorkerSlot,
    are_free,
    never_moves,
    spread,
)
from shunter.extensions.distributed.executors.ray.training import (
    NodeLostError,
    network_between,
    train_on_nodes,
    wait_until_known,
)
from shunter.extensions.distributed.links.nodes import ClusterNode, alive_nodes, cluster_nodes, connected, placed
from shunter.extensions.distributed.training import Division
from shunter.extensions.distributed.training.stored import read_sharded, write_sharded
from shunter.hardware.meters.meter import EnergyMeter
from shunter.hardware.types import CollectiveCost, HardwareProfile, Placement
from shunter.models.graph import GraphSpec
from shunter.models.spec import ModelSpec

log = logging.getLogger(__name__)

MOST_MEASURED = 4  # nodes between which collectives are timed
MOST_RESTARTS = 3  # of one training run: if processes die on every node, the training itself is the cause


@contextmanager
def open_cluster(address: str, resource: str | None = None) -> Iterator["Cluster"]:
    """Connect to a cluster while the block runs.

    Args:
        address: `host:port`, `ray://host:port`, or `auto` for the cluster that this machine is part of.
        resource: Only nodes that were started with this resource are used (`ray start --resources`).

    Raises:
        HardwareError: no cluster answers, or none of its nodes has the resource.
    """
    with connected(address):
        yield Cluster(cluster_nodes(address, resource))


class Cluster:
    """Nodes on which one flow trains; a `shunter.engine.executors.role.ComputeTarget`.

    Requires a connection, see `open_cluster`. A node's accelerators are named `cpu@node`, `cuda:0@node`. Shunter must
    be installed on every node in the same version. Data, checkpoints and results are transferred, so that no shared
    disk is needed.

    Args:
        nodes: Nodes, in the order of preference if no prediction ranks them.

    Attributes:
        ledger: Energy used by the nodes.
        moves: Sentences on each move of a training run and its reason.
        nodes_together: Names of the nodes of each multi-process training run, in the order of their first use.
    """

    def __init__(self, nodes: Sequence[ClusterNode]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.ledger = Ledger()
        self.moves: list[str] = []
        self.nodes_together: list[str] = []
        self._choices = Choices(slots=self.slots)
        self._division: Division | None = None

    def profiles(self, processes: int = 1) -> list[HardwareProfile]:
        """Return the profiles of all nodes' accelerators; nodes that share a machine are measured one after another.

        The profile of a CPU covers only the cores that Ray may allocate.

        Args:
            processes: Processes of a training run; for several, the profiles contain the cost of collectives between
                nodes, measured once a day.

        Raises:
            HardwareError: a device cannot be measured.
        """
        import ray

        waiting = list(self.nodes.values())
        found: dict[str, list[HardwareProfile]] = {}
        while waiting:
            round_ = list({node.host: node for node in reversed(waiting)}.values())
            asked = {node.name: self._on(node, local_profiles).remote() for node in round_}
            found |= {name: ray.get(reference) for name, reference in asked.items()}
            waiting = [node for node in waiting if node.name not in found]
        offered = []
        for name, node in self.nodes.items():
            cores = int(node.resources.get("CPU", 0.0))
            for profile in found[name]:
                accelerator = profile.accelerator.model_copy(update={"name": f"{profile.accelerator.name}@{name}"})
                named = profile.model_copy(update={"accelerator": accelerator})
                offered.append(named.with_cores(cores) if cores else named)
        if processes == 1 or len(self.nodes) == 1:
            return offered
        between = self.network()
        return [
            one.model_copy(update={"collectives": between}) if one.accelerator.kind == "cpu" else one for one in offered
        ]

    def network(self) -> tuple[CollectiveCost, ...]:
        """Return the cost of collectives between the first few nodes, measured once a day.

        Raises:
            HardwareError: A node does not take part in the measurement.
        """
        return network_between(list(self.nodes.values())[:MOST_MEASURED])

    def measure(
        self, dataset: Dataset, spec: ModelSpec | GraphSpec, placement: Placement, steps: int
    ) -> Measurement | None:
        """Measure some training steps on the node of the placement; see `shunter.engine.probes.measurement.measure`."""
        import ray

        node = self.nodes[str(placement.node)]
        self._bring(dataset, node)
        there = placement.model_copy(update={"accelerator": placement.device})
        return ray.get(self._on(node, measure_on_node).remote(dataset, spec, there, steps))

    def prefer(
        self,
        choices: Sequence[Choice],
        *,
        select_upgrade: SelectUpgrade | None = None,
        may_begin_elsewhere: bool = False,
        memory_bytes: int = 0,
    ) -> None:
        """Set the placements to use if a training run's node dies or a better node becomes free; see `Choices`."""
        self._choices = Choices(
            slots=self.slots,
            all=tuple(one for one in choices if one.placement.node in self.nodes),
            select_upgrade=select_upgrade or never_moves,
            may_begin_elsewhere=may_begin_elsewhere,
            memory_bytes=memory_bytes,
        )

    def executor(self, placement: Placement, checkpoints: Path | None = None) -> RayExecutor:
        """Return the executor of one run, on the placement's node and further nodes that its processes need."""
        return RayExecutor(self, placement, self.ledger, division=self._division)

    def divided(self, division: Division) -> Self:
        """Return the same cluster for multi-process training runs with a fixed division of the tables."""
        other = copy(self)
        other._division = division
        return other

    def meter_with(self, process_meter: EnergyMeter) -> FlowMeter:
        """Return a meter that adds the energy reported by the nodes to that of `process_meter`, a local meter."""
        return FlowMeter(process_meter, self.ledger)

    def executors(self, placement: Placement, count: int) -> list[RayExecutor]:
        """Return executors on nodes with the same accelerator, so that measurements are comparable.

        If the chosen placement is in use and another is free, all executors begin and stay on the other.

        Raises:
            RequestError: There are fewer GPUs of that model than executors.
        """
        placement = self._begun_at(placement)
        places = spread(placement, count, self.nodes)
        return [RayExecutor(self, place, self.ledger.branch(), shared_by=shared_by) for place, shared_by in places]

    def train(self, task: Task, placement: Placement, hooks: Hooks, ledger: Ledger) -> Done:
        """Train to completion; after the loss of a node, resume on another node from the last checkpoint.

        Args:
            task: The training; its checkpoints are copied into their folder on this machine.
            placement: First placement.
            hooks: Functions that are called in this process.
            ledger: Record of the energy of each attempt.
        """
        placement, restarts = self._alive(placement), 0
        if task.checkpointing is not None:
            placement = self._begun_at(placement)
        while True:
            slots = self.slots(placement)
            watch = MoveMonitor(partial(self._choices.better, placement, slots))
            on_begin = (lambda: None) if are_free(slots) else watch.begin
            watched = hooks if task.checkpointing is None else watch.watching(hooks)
            try:
                return self.attempt(task, slots, watched, ledger, on_begin=on_begin)
            except MoveError as move:
                self._note_move(f"{self._label(move.to)} is free: the training at {_label(slots)} continues there.")
                placement = move.to
            except NodeLostError as error:
                restarts += 1
                if restarts > MOST_RESTARTS:
                    raise
                is_together = _are_a_group(task, slots)
                if is_together:
                    wait_until_known(slots)
                placement = self._alive(placement, exclude=None if is_together else placement.node)
                self._note_move(f"{error} It continues at {self._label(placement)}.")

    def _begun_at(self, placement: Placement) -> Placement:
        """Return the first placement of training runs: the requested one, unless it is in use and another is free."""
        free = self._choices.begin(placement)
        if free is None:
            return placement
        self._note_move(f"{self._label(placement)} is in use: the training begins at {self._label(free)}.")
        return free

    def _label(self, placement: Placement) -> str:
        return _label(self.slots(placement))

    def attempt(
        self,
        task: Task,
        slots: Sequence[WorkerSlot],
        hooks: Hooks,
        ledger: Ledger,
        *,
        on_begin: Callable[[], None],
        on_checkpoint: Callable[[], None] = lambda: None,
    ) -> Done:
        """Run one attempt of a training run with one process on each worker slot, without moving to other nodes.

        Args:
            task: The training; its checkpoints are copied into their folder on this machine.
            slots: Worker slots, grouped by node.
            hooks: Functions that are called in this process.
            ledger: Ledger that records the energy of the attempt.
            on_begin: Called when the nodes have free resources for the training.
            on_checkpoint: Called when a checkpoint has been copied to this machine.

        Raises:
            NodeLostError: A node or a process died; the last checkpoint is on this machine.
        """
        checkpointing, is_together = task.checkpointing, _are_a_group(task, slots)

        def keep(files: Files) -> None:
            if checkpointing is None:
                return
            if is_together:
                write_sharded(files, checkpointing.directory, checkpointing.checkpoint_settings.generations)
            else:
                write_checkpoint(files, checkpointing.directory)
            on_checkpoint()

        ledger.begin()
        for node in {slot.node.node_id: slot.node for slot in slots}.values():
            self._bring(task.job.dataset, node)
            if is_together:
                self.nodes_together += [node.name] if node.name not in self.nodes_together else []
        read = read_sharded if is_together else read_checkpoint
        return train_on_nodes(
            slots,
            task,
            {} if checkpointing is None else read(checkpointing.directory),
            hooks,
            is_together=is_together,
            on_energy=ledger.update,
            on_checkpoint=keep,
            on_begin=on_begin,
        )

    def slots(self, placement: Placement) -> list[WorkerSlot]:
        """Return the worker slots of a training run: its own node first, then the best similar nodes that are up.

        Raises:
            RequestError: There are fewer GPUs of that model than processes.
        """
        up = {node["NodeID"] for node in alive_nodes()}
        alive = [name for name, node in self.nodes.items() if node.node_id in up or name == placement.node]
        best = [one.placement.node for one in self._choices.all]
        alive.sort(key=lambda name: best.index(name) if name in best else len(best))
        nodes = {name: self.nodes[name] for name in alive}
        places = [place for place, _ in spread(placement, placement.processes, nodes, PROCESSES)]
        names = [str(place.node) for place in places]
        ordered = sorted(places, key=lambda place: names.index(str(place.node)))
        memory = self._choices.memory_bytes
        return [WorkerSlot(nodes[str(place.node)], place, names.count(str(place.node)), memory) for place in ordered]

    def _note_move(self, move: str) -> None:
        log.warning(move)
        self.moves.append(move)

    def _alive(self, placement: Placement, exclude: str | None = None) -> Placement:
        """Return the placement if its node is up, else the same batch size and precision on the best live node.

        The node `exclude` is avoided if there is another.
        """
        up = {node["NodeID"] for node in alive_nodes()}
        alive = [name for name, node in self.nodes.items() if node.node_id in up]
        if not alive:
            raise HardwareError("All nodes of the cluster are down: train again when a node is up, to resume.")
        if placement.node in alive and placement.node != exclude:
            return placement
        elsewhere = [name for name in alive if name != exclude] or alive
        choices = [one.placement for one in self._choices.all]
        others = [one for one in choices if one.node in elsewhere and one.precision == placement.precision]
        if others:
            return placement.model_copy(update={"accelerator": others[0].accelerator, "threads": others[0].threads})
        node = self.nodes[elsewhere[0]]
        same = next((found for found in node.accelerators if found.name == placement.device), node.accelerators[0])
        return placement.model_copy(update={"accelerator": f"{same.name}@{node.name}"})

    def _bring(self, dataset: Dataset, node: ClusterNode) -> None:
        """Send the data to a node, unless the node can read its path or has a copy from an earlier run."""
        import ray
        from ray.exceptions import RayError

        try:
            if not ray.get(self._on(node, find_dataset).remote(dataset)):
                for piece in read_pieces(dataset):
                    ray.get(self._on(node, write_piece).remote(dataset, piece))
        except RayError as error:
            raise NodeLostError(
                f"The data set cannot be copied to node {node.name} of the cluster ({first_line(error)})."
            ) from error

    def _on(self, node: ClusterNode, work: Callable[..., Any]) -> Any:
        import ray

        return ray.remote(num_cpus=0)(work).options(**placed(node.node_id))


def _label(slots: Sequence[WorkerSlot]) -> str:
    """Return a text that names the placement of a single process, or the nodes of several."""
    if len(slots) == 1:
        return slots[0].placement.label
    return " and ".join(dict.fromkeys(slot.node.name for slot in slots))


def _are_a_group(task: Task, slots: Sequence[WorkerSlot]) -> bool:
    """Return True if there are several processes, or a checkpoint of several, which only a process group can read."""
    begun_by_many = task.checkpointing is not None and holds_sharded_checkpoint(task.checkpointing.directory)
    return len(slots) > 1 or begun_by_many
