"""Training step under a plan as a graph of tasks, whose seconds follow from the costs of its tables (`costs`).

    ids       each group sends the ids of all samples to the owners of their rows
    lookup    each device looks up its rows                                          one kernel for a group
    vectors   pooled rows go back to the samples' devices, partial sums are added up
    forward   the layers, on the own samples                                         waits for all groups
    backward  of the layers
    gradients pooled rows' gradients go to the owners
    update    each device updates its rows
    reduce    gradients of layers and of tables that every device keeps are added up over all devices
    optimizer the layers are updated

A collective ends for all devices when the last one ends. The layers' gradients are reduced after the tables' updates,
or during them with `overlap`. In the processes of `shunter train` ids belong to the next batch, so that no lookup waits
for them, and gradients are reduced during the updates. Vectors are exchanged through shared memory, with one barrier in
each direction, and messages use time of the same cores. The duration of a task is a sum of terms (layers, rows,
messages, ...), each multiplied by a factor learned from executed plans
(`shunter.extensions.distributed.planning.calibration`).
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import NamedTuple

from shunter.extensions.distributed.planning.calibration import UNCALIBRATED, Amounts, Calibration, Term
from shunter.extensions.distributed.planning.costs import GROUP_OPERATORS, ONE_BY_ONE_OPERATORS, TableCosts
from shunter.extensions.distributed.planning.dense_split import WITHIN_HOST, SplitLayer, traffic_of, weights_share
from shunter.extensions.distributed.planning.device_costs import dense_seconds
from shunter.extensions.distributed.planning.simulate import (
    NO_RESOURCE,
    DeltaSimulator,
    Schedule,
    Task,
    TaskGraph,
    simulate,
)
from shunter.extensions.distributed.tables.sharding_types import BY_ROW, Choice
from shunter.hardware.cost.step_model import message_share
from shunter.hardware.types import Collective

SUMS_OF = {"ids": ("ids_out", "ids_in"), "lookup": ("lookup",), "update": ("update",)}
UPDATE_SHARE = 0.1  # of the layers' seconds that their optimiser takes; the rest is forward and twice as much backward
ID_ROUNDS = 3  # exchanges of ids: how many, lengths, ids
FREQUENT_ROUNDS = 2  # exchanges of frequent rows that have learned, and of their gradients
COPY_OPERATORS = 12  # that update a table of which every device has a copy
STEP_OPERATORS = 100  # of a step besides: a batch is made ready, losses and statistics of all are added up
PROBED = 2.0**40  # of a sum, at which the slope of a task's seconds is read off


class TaskParts(NamedTuple):
    """Seconds of a task: start + a_table * tables of its group + the largest slope * sum; 0 without tables.

    Attributes:
        group: Group of tables of the task; -1 without a group.
        start: Constant seconds, independent of the tables.
        a_table: Seconds per table of the group.
        slopes: Seconds for each unit of each sum; the largest product counts.
    """

    group: int
    start: float
    a_table: float
    slopes: tuple[tuple[int, float], ...]


class StepModel:
    """Simulator of a training step of one model on one machine; many plans share its task graph and costs.

    Args:
        costs: Cost that each embedding table adds to a step.
        overlap: Whether gradients of the dense layers are exchanged during the backward pass of the tables.
        calibration: Correction factors, learned from plans that were executed on this machine.

    Attributes:
        layers: Dense layers that are divided over the devices.
    """

    def __init__(
        self,
        costs: TableCosts,
        *,
        overlap: bool = False,
        calibration: Calibration = UNCALIBRATED,
    ) -> None:
        self.costs, self.layout, self.calibration = costs, costs.layout, calibration
        self.layers: tuple[SplitLayer, ...] = ()
        self.machine, demand = costs.machine, costs.demand
        self.shared = self.machine.shared if costs.precision == "fp32" else None
        self.dense = dense_seconds(self.machine, demand, costs.samples)
        self.dense_bytes = demand.workload.dense_parameter_bytes
        self.dense_memory = 4 * self.dense_bytes  # in each device: weights, gradients and two floats of Adam
        self._number: dict[tuple[str, int, int], int] = {}
        self.graph = self._build(overlap)
        self._keys = {task: key for key, task in self._number.items()}
        self._touched = self._tasks_of_sums()

    def with_layers(self, layers: Sequence[SplitLayer]) -> "StepModel":
        """Return the step model with other divided layers."""
        other = copy(self)
        other.layers = tuple(layers)
        return other

    # The graph

    def _build(self, overlap: bool) -> TaskGraph:
        count, hosts, groups = self.layout.count, self.layout.hosts, self.layout.groups
        names = [device.name for device in self.machine.devices]
        resources = [f"device {name}" for name in names]
        resources += [f"link of {name}" for name in names] + [f"network of host {host}" for host in range(hosts)]
        link = 0 if self.machine.computes_messages else count
        tasks: list[Task] = []

        def add(phase: str, group: int, place: int, resource: int, waits_for: Iterable[int]) -> int:
            kind = groups[group].replace("_", "-") + " " if group >= 0 else ""
            where = f" on {names[place]}" if 0 <= resource < 2 * count else ""
            self._number[phase, group, place] = len(tasks)
            tasks.append(Task(" ".join(f"{phase} {kind}{where}".split()), phase, resource, tuple(waits_for)))
            return len(tasks) - 1

        def exchange(phase: str, group: int, after: Sequence[int]) -> int:
            """Add a collective of all devices; return its final task. `after` has each device's dependencies."""
            parts = [add(phase, group, one, link + one, (after[one],) if after else ()) for one in range(count)]
            if hosts > 1:
                for host in range(hosts):
                    own = range(host * self.layout.per_host, (host + 1) * self.layout.per_host)
                    waits = [after[one] for one in own] if after else []
                    parts.append(add(f"{phase} across", group, host, 2 * count + host, waits))
            return add(f"{phase} done", group, 0, NO_RESOURCE, parts)

        def met(phase: str, after: Sequence[int]) -> list[int]:
            """Add a barrier of all devices if they exchange data through shared memory; return the new dependencies."""
            return list(after) if self.shared is None else [add(phase, -1, 0, NO_RESOURCE, after)]

        divided = [number for number, kind in enumerate(groups) if kind != "data_parallel"]
        copies = groups.index("data_parallel")
        arrived = {group: exchange("ids", group, []) for group in divided}
        own = [add("lookup", copies, one, one, ()) for one in range(count)]
        vectors = []
        for group in divided:
            # Ids that are sent a batch ahead delay no lookup: these are those of the next batch.
            after = () if self.machine.is_ahead else (arrived[group],)
            looked = [add("lookup", group, one, one, after) for one in range(count)]
            vectors.append(exchange("vectors", group, looked))
        vectors = met("meeting", vectors)
        ahead = [add("forward", -1, one, one, (own[one], *vectors)) for one in range(count)]
        split = exchange("split layers", -1, ahead)
        back = [add("backward", -1, one, one, (ahead[one], split)) for one in range(count)]
        updates: list[list[int]] = [[] for _ in range(count)]
        returned = [exchange("gradients", group, back) for group in divided]
        returned = met("meeting back", returned) * (len(divided) if self.shared is not None else 1)
        for group, there in zip(divided, returned, strict=True):
            for one in range(count):
                updates[one].append(add("update", group, one, one, (there,)))
        overlap = overlap or self.machine.is_ahead
        gathered = back if overlap else [add("updated", -1, one, NO_RESOURCE, updates[one]) for one in range(count)]
        reduced = exchange("reduce", -1, gathered)
        last = [add("update", copies, one, one, (reduced,)) for one in range(count)]
        ends = [add("optimizer", -1, one, one, (reduced, last[one], *updates[one])) for one in range(count)]
        add("end", -1, 0, NO_RESOURCE, [*ends, *(arrived.values() if self.machine.is_ahead else ())])
        return TaskGraph(tasks, resources)

    def _tasks_of_sums(self) -> list[tuple[int, ...]]:
        """Return for each cost summed over the tables (`planning.costs`) the tasks whose seconds depend on the sum."""
        layout, number = self.layout, self._number
        touched: list[set[int]] = [set() for _ in range(layout.size)]
        for (phase, group, place), task in number.items():
            if group >= 0 and phase in ("ids", "lookup", "vectors", "gradients", "update"):
                touched[layout.tables(group)].add(task)
                for field in SUMS_OF.get(phase, ("out", "in")):
                    touched[layout.of_device(field, group, place)].add(task)
            elif group >= 0 and phase.endswith(" across"):
                touched[layout.tables(group)].add(task)
                for field in ("ids_out", "ids_in") if phase.startswith("ids") else ("out", "in"):
                    touched[layout.of_host(field, group, place)].add(task)
            elif phase in ("reduce", "reduce across"):
                touched[layout.reduced].add(task)
        return [tuple(sorted(one)) for one in touched]

    # What tasks take

    def seconds(self, sums: Sequence[float]) -> list[float]:
        """Return the seconds of each task; `sums` are the costs summed over all tables, see `TableCosts.sums`."""
        return [self.calibration.seconds(amounts) for amounts in self.amounts(sums)]

    def changed(self, sums: Sequence[float], places: Iterable[int]) -> dict[int, float]:
        """Return the seconds, by task, of the tasks that depend on the sums at the indices `places`."""
        tasks = {task for place in places for task in self._touched[place]}
        return {task: self.calibration.seconds(self._task_amounts(self._keys[task], sums)) for task in tasks}

    def amounts(self, sums: Sequence[float]) -> list[Amounts]:
        """Return the parts of each task's duration by cause, in seconds, before they are calibrated by measurements."""
        taken: list[Amounts] = [{} for _ in self.graph.tasks]
        for key, task in self._number.items():
            taken[task] = self._task_amounts(key, sums)
        return taken

    def _task_amounts(self, key: tuple[str, int, int], sums: Sequence[float]) -> Amounts:
        phase, group, place = key
        if phase.endswith(" done") or phase in ("end", "updated"):
            return {}
        if phase.startswith("meeting"):
            assert self.shared is not None, "the devices exchange through shared memory"
            return {"starts": self.shared["all_to_all"].latency_seconds}
        if group >= 0:
            return self._group_amounts(phase, group, place, sums)
        if phase.startswith("reduce"):
            # Layers that are divided within hosts alone are added up over the hosts.
            alone = [one for one in self.layers if not (phase.endswith(" across") and one.kind in WITHIN_HOST)]
            split = sum(one.layer.parameter_bytes for one in alone)
            return {"sums": self._reduce_seconds(phase, sums[self.layout.reduced] + self.dense_bytes - split)}
        if phase.startswith("split layers"):
            return {"whole_vectors": self._split_seconds(phase)}
        share = {"forward": (1 - UPDATE_SHARE) / 3, "backward": 2 * (1 - UPDATE_SHARE) / 3, "optimizer": UPDATE_SHARE}
        amounts: Amounts = {"layers": share[phase] * self.dense[place]}
        if phase == "optimizer":
            amounts["step"] = STEP_OPERATORS * self._overhead(place)
        return amounts

    def _group_amounts(self, phase: str, group: int, place: int, sums: Sequence[float]) -> Amounts:
        """Return a group's uncalibrated seconds in a phase at a device or host, by term; empty without tables."""
        tables = sums[self.layout.tables(group)]
        if not tables:
            return {}
        kind = self.layout.groups[group]
        in_blocks = kind in BY_ROW
        if phase not in ("lookup", "update"):
            term: Term = "ids" if phase.startswith("ids") else "block_vectors" if in_blocks else "whole_vectors"
            starts, sending = self._exchange_seconds(phase, group, place, sums)
            return {"starts": starts, term: sending}
        own = sums[self.layout.of_device(phase, group, place)]
        dispatched = ONE_BY_ONE_OPERATORS if kind == "one_by_one" else GROUP_OPERATORS
        overhead, operators = self._overhead(place), dispatched[phase == "update"]
        if kind != "data_parallel":
            return {"block_rows" if in_blocks else "whole_rows": own, "groups": operators * overhead}
        each = COPY_OPERATORS * tables * overhead if phase == "update" else 0.0
        return {"copies": own, "groups": operators * overhead, "tables": each}

    def _overhead(self, place: int) -> float:
        device = self.machine.devices[place]
        crowd = 1.0
        if device.profile.accelerator.kind == "cpu":
            crowd = max(1.0, 1 / (device.share * device.profile.rated_cores))
        return device.profile.operator_overhead_seconds.value * crowd

    def _exchange_seconds(self, phase: str, group: int, place: int, sums: Sequence[float]) -> tuple[float, float]:
        """Return the seconds to start a phase's exchanges, and to send or receive the amounts of a device or host."""
        layout, across = self.layout, phase.endswith(" across")
        fields = ("ids_out", "ids_in") if phase.startswith("ids") else ("out", "in")
        of = layout.of_host if across else layout.of_device
        sent = max(sums[of(field, group, place)] for field in fields)
        kind = layout.groups[group]
        operation: Collective = "all_to_all"
        if kind in BY_ROW and not phase.startswith("ids"):
            operation = "reduce_scatter" if phase == "vectors" else "all_gather"
        rounds = 1
        if phase.startswith("ids"):
            rounds = 0 if self.machine.is_ahead else ID_ROUNDS  # nobody waits until ids of the next batch begin
        elif self.shared is not None and kind != "one_by_one":
            return 0.0, sent / self.shared[operation].bytes_per_second
        if kind == "one_by_one" and phase.startswith("gradients"):
            rounds += FREQUENT_ROUNDS
        if across:
            channel = self.machine.across
            assert channel is not None, "there are several hosts"
        else:
            channel = self.machine.within[operation]
        return rounds * channel.latency_seconds, sent / channel.bytes_per_second

    def _reduce_seconds(self, phase: str, message: float) -> float:
        """Return the seconds of a ring all-reduce: within each host, then of the hosts' sums across hosts."""
        if self.layout.count == 1:
            return 0.0
        if phase.endswith(" across"):
            channel, members = self.machine.across, self.layout.hosts
            assert channel is not None, "there are several hosts"
        else:
            channel, members = self.machine.within["all_reduce"], self.layout.per_host
        sent = message_share("all_reduce", members) * message
        return channel.seconds(sent) if members > 1 else 0.0

    def _split_seconds(self, phase: str) -> float:
        """Return the communication seconds of divided layers in a phase."""
        if not self.layers:
            return 0.0
        across, layout = phase.endswith(" across"), self.layout
        channel = self.machine.across if across else self.machine.within["all_gather"]
        assert channel is not None, "there are several hosts"
        traffic = traffic_of(self.layers, self.costs.batch_size / layout.count, layout.per_host, layout.hosts)
        sent = traffic.across_bytes if across else traffic.within_bytes
        return traffic.messages * channel.latency_seconds + sent / channel.bytes_per_second if sent else 0.0

    def parts_of_tasks(self) -> list[TaskParts]:
        """Return the seconds of each task as a function of the sums of the table costs."""

        def seconds(key: tuple[str, int, int], amounts: Mapping[int, float]) -> float:
            sums = [0.0] * self.layout.size
            for place, amount in amounts.items():
                sums[place] = amount
            return self.calibration.seconds(self._task_amounts(key, sums))

        parts = []
        touched: list[list[int]] = [[] for _ in self.graph.tasks]
        for place, tasks in enumerate(self._touched):
            for task in tasks:
                touched[task].append(place)
        for task, key in sorted(self._keys.items()):
            group = key[1]
            counted = None if group < 0 else self.layout.tables(group)
            one_table = {} if counted is None else {counted: 1.0}
            first = seconds(key, one_table)
            a_table = 0.0 if counted is None else seconds(key, {counted: 2.0}) - first
            slopes = [
                (place, (seconds(key, {**one_table, place: PROBED}) - first) / PROBED)
                for place in touched[task]
                if place != counted
            ]
            parts.append(TaskParts(group, first - a_table, a_table, tuple(slopes)))
        return parts

    # Memory

    def memory_bytes(self, sums: Sequence[float]) -> list[int]:
        """Return the bytes of tables, layers and exchanged vectors on each device."""
        layout, demand = self.layout, self.costs.demand
        absent = [
            one.layer.parameter_bytes * (1 - weights_share(one.kind, layout.per_host, layout.hosts))
            for one in self.layers
        ]
        held = self.dense_memory - 4 * sum(absent)
        activations = [samples * demand.workload.activation_bytes_per_sample for samples in self.costs.samples]
        buffers = [2 * sum(sums[place] for place in layout.buffers(one)) for one in range(layout.count)]
        return [round(sums[layout.memory(one)] + held + activations[one] + buffers[one]) for one in range(layout.count)]


class SimulatedPlan:
    """Plan that is edited table by table, with the simulator of its step."""

    def __init__(self, model: StepModel, choices: Sequence[Choice]) -> None:
        self.model, self.choices = model, list(choices)
        self.sums = model.costs.sums(self.choices)
        self.simulator = DeltaSimulator(model.graph, model.seconds(self.sums))

    @property
    def step_seconds(self) -> float:
        """Seconds of the step under the current plan."""
        return self.simulator.step_seconds

    def place(self, edits: Mapping[int, Choice]) -> float:
        """Change the placement of tables; return the seconds of the step."""
        costs, sums, places = self.model.costs, self.sums, set()
        for table, choice in edits.items():
            for sign, one in ((-1.0, self.choices[table]), (1.0, choice)):
                for place, amount in costs.contribution(table, one):
                    sums[place] += sign * amount
                    places.add(place)
            self.choices[table] = choice
        return self.simulator.change(self.model.changed(sums, places))

    def missing_bytes(self) -> int:
        """Return the memory that the devices lack under the current plan, in bytes, summed over devices."""
        used = zip(self.model.memory_bytes(self.sums), self.model.machine.devices, strict=True)
        return sum(max(0, own - device.memory_bytes) for own, device in used)


def step_of(model: StepModel, choices: Sequence[Choice]) -> tuple[float, Schedule]:
    """Simulate a plan from scratch; return its seconds and the schedule of its tasks."""
    schedule = simulate(model.graph, model.seconds(model.costs.sums(list(choices))))
    return schedule.end[-1], schedule
