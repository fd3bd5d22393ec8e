"""Analytical model of a training step's time, by part, from the workload's demand and the accelerator's measured rates.

The step is a roofline with overheads (after Williams et al., "Roofline", CACM 52(4), 2009), applied to each operation.
With B samples a step on a share s of the cores:

    dense          each matrix product by `MatmulModel`; other operators read and write at the rate of a copy, times the
                   factor by which a measured step of a small model was slower than its traffic alone
    embedding      bags, rows and bytes by the costs of the short probes, where the skew of the lookups gives the share
                   of rows in the caches; without probes, lookups B (seconds of a row's lookup + of its update), by row
                   width and times the same factor
    overhead       the start of a step, and operators x operator overhead
    communication  of several processes: all-reduce of the layers' gradients, exchange of pooled rows and their
        gradients
    input          time to prepare a batch, beyond the part that overlaps with the step

Dense layers, embeddings and collectives run one after the other, as in `shunter.engine.loop.step`. A separate thread
prepares batches during the step. Preparation costs only the time beyond the step, and the share of the cores that the
thread uses.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shunter.hardware.cost.matmul_model import MatmulModel
from shunter.hardware.types import (
    Collective,
    CollectiveCost,
    HardwareProfile,
    Placement,
    Precision,
    RowRate,
    StepCosts,
    Workload,
)

# Without measured collectives: start of a message over the kernel's loopback in seconds, and its share of a copy's rate
# (two copies each way, in both processes).
LOOPBACK_SECONDS = 100e-6
LOOPBACK_SHARE = 1 / 8
# Loader operators of each batch, and random reads of each sample: one for each array of the data set.
LOADER_OPERATORS = 20
LOADER_READS = 3


def link_bytes_per_second(profile: HardwareProfile, processes: int) -> float:
    """Return the bytes per second that each process sends to the other processes of its machine.

    The rate is measured at the nearest number of processes; without a measurement it is a share of the copy rate.
    """
    measured = [cost for cost in profile.collectives if cost.operation == "all_to_all"]
    if not measured:
        return profile.copy_bytes_per_second.value * LOOPBACK_SHARE
    return min(measured, key=lambda cost: abs(cost.processes - processes)).bytes_per_second


@dataclass(frozen=True, kw_only=True)
class StepParts:
    """Seconds of one step by part."""

    dense: float
    embedding: float
    communication: float
    input: float
    overhead: float

    @property
    def total(self) -> float:
        """Return the seconds of the whole step."""
        return self.dense + self.embedding + self.communication + self.input + self.overhead


@dataclass(frozen=True, kw_only=True)
class RawParts:
    """Seconds of each kind of work in a step, each kind as if it ran alone.

    Attributes:
        products: Large matrix products, whose size grows with the batch.
        traffic: Small products, whose number grows with the batch, and operators that only read and write.
        tables: Look-up and update of the tables.
        operators: Dispatch of the operators.
    """

    products: float
    traffic: float
    tables: float
    operators: float


class StepModel:
    """Step-time model of one accelerator; fits to the profile's curves are made once and cached."""

    def __init__(self, profile: HardwareProfile) -> None:
        self.profile = profile
        self._matmul: dict[Precision, MatmulModel] = {}
        self._cores = profile.rated_cores

    def parts(self, workload: Workload, placement: Placement) -> StepParts:
        """Return the seconds of one step by part, by the formulas in the module docstring."""
        raw = self.raw_parts(workload, placement)
        share = busy_share(placement, self.profile)
        factor = self._scaled([(costs.threads, costs.memory_factor) for costs in self.profile.step_costs], share) or 1.0
        dense, embedding = raw.products + factor * raw.traffic, factor * raw.tables
        starts = [(costs.threads, costs.start_seconds) for costs in self.profile.step_costs]
        overhead = raw.operators + self._scaled(starts, share)
        communication = self._communication_seconds(workload, placement)
        waiting = self._input_seconds(workload, placement, dense + embedding + overhead + communication)
        return StepParts(
            dense=dense, embedding=embedding, communication=communication, input=waiting, overhead=overhead
        )

    def raw_parts(self, workload: Workload, placement: Placement) -> RawParts:
        """Return the seconds of each kind of work alone; `parts` combines them."""
        # Processes on one CPU share its cores and count as one device.
        devices = placement.processes if self.profile.accelerator.kind == "cuda" else 1
        samples = math.ceil(placement.batch_size / devices)
        share = busy_share(placement, self.profile)
        products, traffic = self._dense_seconds(workload, placement.precision, samples, share)
        return RawParts(
            products=products * share_of_products(workload, self.profile),
            traffic=traffic,
            tables=self._embedding_seconds(workload, samples, share),
            operators=operators(workload, placement.precision) * self.profile.operator_overhead_seconds.value,
        )

    def _scaled(self, by_threads: Sequence[tuple[int, float]], share: float) -> float:
        return scaled_seconds([(threads / self._cores, value) for threads, value in by_threads], share)

    def _dense_seconds(
        self, workload: Workload, precision: Precision, samples: int, share: float
    ) -> tuple[float, float]:
        """Return the seconds of large matrix products, and those of small products and other operators."""
        copy_rate = self.profile.copy_bytes_per_second.value * min(1.0, 2 * share)
        if not workload.matmuls:
            flops = workload.matmul_flops_per_sample * samples
            compute = flops * self._matmul_model(precision).seconds_per_flop / share
            return compute, max(0.0, 2 * workload.activation_bytes_per_sample * samples / copy_rate - compute)
        large = small = 0.0
        for product in workload.matmuls:
            seconds = self._matmul_model(precision if product.half else "fp32").seconds(
                *product.sizes(samples), share=share
            )
            if product.batch_axis == "count":
                small += seconds
            else:
                large += seconds
        rest = workload.dense[precision]
        traffic = rest.traffic_bytes_per_step + rest.traffic_bytes_per_sample * samples
        return large, small + traffic / copy_rate

    def _matmul_model(self, precision: Precision) -> MatmulModel:
        if precision not in self._matmul:
            self._matmul[precision] = MatmulModel.of(self.profile, precision)
        return self._matmul[precision]

    def _embedding_seconds(self, workload: Workload, samples: int, share: float) -> float:
        if not workload.lookups_per_sample:
            return 0.0
        if self.profile.step_costs:
            costs, cache_bytes = self.profile.step_costs, self.profile.cache_bytes
            seconds = [(one.threads, table_seconds(one, workload, samples, cache_bytes)) for one in costs]
            return self._scaled(seconds, share)
        row_bytes = workload.lookup_bytes_per_sample / workload.lookups_per_sample
        gather = self.profile.gather_bytes_per_second.value
        lookup = row_seconds(self.profile.gather_curve, row_bytes) or row_bytes / gather
        update = row_seconds(self.profile.scatter_curve, row_bytes) or 2 * row_bytes / gather
        return samples * workload.lookups_per_sample * (lookup + update) / share

    def _communication_seconds(self, workload: Workload, placement: Placement) -> float:
        """Return the seconds of one all-reduce of gradients and two exchanges of pooled rows (forward and backward)."""
        if placement.processes == 1:
            return 0.0
        samples = math.ceil(placement.batch_size / placement.processes)
        tables = workload.tables or workload.lookups_per_sample
        row_bytes = workload.lookup_bytes_per_sample / max(workload.lookups_per_sample, 1e-9)
        gradients = workload.dense_parameter_bytes or 0
        exchange = self._collective_seconds("all_to_all", samples * tables * row_bytes, placement.processes)
        return self._collective_seconds("all_reduce", gradients, placement.processes) + 2 * exchange

    def _collective_seconds(self, operation: Collective, message_bytes: float, processes: int) -> float:
        known = [cost for cost in self.profile.collectives if cost.operation == operation]
        if known:
            return scaled_collective_seconds(known, message_bytes, processes)
        rate = link_bytes_per_second(self.profile, processes)
        return LOOPBACK_SECONDS + message_share(operation, processes) * message_bytes / rate

    def _input_seconds(self, workload: Workload, placement: Placement, step_seconds: float) -> float:
        """Return the seconds that batch preparation adds to a step: the wait for it, or the core time that it takes."""
        overhead = self.profile.operator_overhead_seconds.value
        read_seconds = 64 / self.profile.gather_bytes_per_second.value
        making = LOADER_OPERATORS * overhead + placement.batch_size * LOADER_READS * read_seconds
        making += placement.batch_size * workload.input_bytes_per_sample / self.profile.copy_bytes_per_second.value
        copying = 0.0
        if self.profile.host_to_device_bytes_per_second is not None:
            rate = self.profile.host_to_device_bytes_per_second.value
            copying = placement.batch_size * workload.input_bytes_per_sample / rate
        wait = max(0.0, making + copying - step_seconds)
        if self.profile.accelerator.kind == "cuda":
            return wait
        free_cores = self.profile.accelerator.cores - placement.threads
        return wait if free_cores >= 1 else max(wait, making / placement.threads)


def table_seconds(costs: StepCosts, workload: Workload, samples: int, cache_bytes: int) -> float:
    """Return the seconds to look up and update the tables once, with the thread count of `costs`.

    Args:
        costs: Costs of bags, rows and bytes.
        workload: Demand, whose skew gives the share of the rows that comes from the caches.
        samples: Samples of the step.
        cache_bytes: Size of the last-level cache.
    """
    bags = workload.tables or workload.lookups_per_sample
    cached = workload.cached_share(cache_bytes)
    byte_seconds = cached * costs.cached_byte_seconds + (1 - cached) * costs.byte_seconds
    a_sample = (
        bags * costs.bag_seconds
        + workload.lookups_per_sample * costs.lookup_seconds
        + workload.lookup_bytes_per_sample * byte_seconds
    )
    return samples * a_sample


def scaled_seconds(measured: Sequence[tuple[float, float]], share: float) -> float:
    """Return the seconds at a share of the cores, by power-law interpolation; 0 without measurements.

    `measured` has pairs (share of the cores, seconds), ascending by share.
    """
    if not measured:
        return 0.0
    if len(measured) == 1 or min(seconds for _, seconds in measured) <= 0:
        return min(measured, key=lambda point: abs(point[0] - share))[1]
    shares, seconds = np.log(measured).T
    return float(np.exp(np.interp(np.log(share), shares, seconds)))


def operators(workload: Workload, precision: Precision) -> int:
    """Return the number of operators dispatched in one step."""
    return workload.dense[precision].operators_per_step if workload.dense else workload.operators_per_step


def share_of_products(workload: Workload, profile: HardwareProfile) -> float:
    """Return the share of the matrix products' time that remains on an accelerator that skips zeros; 1 on all others.

    The zeros shorten only the backward pass, which has two thirds of the products.
    """
    speedup = workload.backward_speedups.get(profile.skips_zeros or "", 1.0)
    return (1 + 2 / speedup) / 3


def busy_share(placement: Placement, profile: HardwareProfile) -> float:
    """Return the share of the accelerator's cores that the placement keeps busy; 1 for a GPU."""
    if profile.accelerator.kind == "cuda":
        return 1.0
    return min(1.0, placement.threads / profile.rated_cores)


def row_seconds(curve: Sequence[RowRate], row_bytes: float) -> float | None:
    """Return the seconds to look up one embedding row, interpolated between measured widths; None if unknown.

    Rows wider than the widest measured row take time in proportion. Rows narrower than the narrowest measured row take
    the same time as that row.
    """
    if not curve:
        return None
    widths = [rate.row_bytes for rate in curve]
    seconds = [rate.row_bytes / rate.bytes_per_second.value for rate in curve]
    if row_bytes > widths[-1]:
        return seconds[-1] * row_bytes / widths[-1]
    return float(np.interp(row_bytes, widths, seconds))


def scaled_collective_seconds(known: Sequence[CollectiveCost], message_bytes: float, processes: int) -> float:
    """Return the seconds of a collective, scaled from the nearest measured number of processes.

    Latency grows with the logarithm of the processes, traffic as `message_share` (Thakur, Rabenseifner and Gropp,
    "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005).
    """
    nearest = min(known, key=lambda cost: abs(math.log(cost.processes / processes)))
    latency = nearest.latency_seconds * math.log2(processes) / math.log2(nearest.processes)
    share = message_share(nearest.operation, processes) / message_share(nearest.operation, nearest.processes)
    return latency + share * message_bytes / nearest.bytes_per_second


def message_share(operation: Collective, processes: int) -> float:
    """Return how many times its message size a process sends: 2 (g - 1) / g in an all-reduce of g processes."""
    once = (processes - 1) / processes
    return {"all_reduce": 2 * once, "reduce_scatter": once, "all_to_all": once, "all_gather": float(processes - 1)}[
        operation
    ]
