"""Data types of the hardware package, with units in the field names."""

from typing import Any, Literal, Self

from pydantic import Field

from shunter.frozen import Frozen

Source = Literal["measured", "catalogue", "estimated"]
Precision = Literal["fp32", "bf16"]
# Smallest measured share of the joules for which the mean power is used for learning. Set before any GPU was measured
# beside a processor without counters; on the first such machine (H100) the share was about two thirds.
LEAST_MEASURED_SHARE = 0.5


class Quantity(Frozen):
    """Number with its source and, if repeated, its spread."""

    value: float
    source: Source
    low: float | None = Field(
        default=None, description="10th percentile of repeated measurements; None without repetitions."
    )
    high: float | None = Field(
        default=None, description="90th percentile of repeated measurements; None without repetitions."
    )


class MatmulRate(Frozen):
    """Rate of one matrix product `[m, k] x [k, n]`."""

    m: int
    n: int
    k: int
    flops_per_second: Quantity = Field(description="Rate of a matrix product in FLOP/s; a multiply-add counts as two.")


class RowRate(Frozen):
    """Rate of reading or updating random rows of one width, in a table too large for the caches."""

    row_bytes: int
    bytes_per_second: Quantity = Field(
        description="Payload rate of table rows in bytes per second: each row counts once, even if it is read and "
        "written."
    )


class StepCosts(Frozen):
    """Costs of a training step besides arithmetic and copies, for one number of threads; fitted to short probes."""

    threads: int
    start_seconds: float = Field(
        description="Fixed time of a training step in seconds, without the cost of its operators."
    )
    memory_factor: float = Field(
        default=1.0,
        description="Factor on the predicted time of tables, memory traffic and small matrix products within a step.",
    )
    bag_seconds: float = Field(description="Seconds to look up, pool and update one bag of embedding rows.")
    lookup_seconds: float = Field(description="Seconds for each row of a bag, independent of its width.")
    cached_byte_seconds: float = Field(description="Seconds for each byte of a table row that is in a cache.")
    byte_seconds: float = Field(description="Seconds for each byte of a table row that is not in a cache.")


class DiskRates(Frozen):
    """Read rates of a file that is not in the page cache."""

    sequential_bytes_per_second: Quantity
    random_reads_per_second: Quantity = Field(
        description="Rate of reading 4 KiB at random offsets, one read at a time."
    )


Collective = Literal["all_reduce", "all_to_all", "reduce_scatter", "all_gather"]
# Collectives that an exchange through shared memory replaces: vectors of whole tables both ways, partial sums of
# row-wise tables, and their gradients.
SHARED_OPERATIONS: tuple[Collective, ...] = ("all_to_all", "reduce_scatter", "all_gather")


class CollectivePoint(Frozen):
    """Time of one collective operation."""

    message_bytes: int
    seconds: Quantity


class CollectiveCost(Frozen):
    """Cost of a collective operation: `latency_seconds + message_bytes / bytes_per_second`, fitted to `points`.

    The message is the contribution of one process. For all-reduce, all-to-all and reduce-scatter it is the whole input
    of a process; for all-gather it is the process's part of the result.
    """

    operation: Collective
    processes: int
    link: str = Field(description="Backend and transport of the collective, such as `gloo over loopback`.")
    latency_seconds: float
    bytes_per_second: float
    r2: float = Field(description="R squared of the line fitted to times over message sizes.")
    points: tuple[CollectivePoint, ...]

    def seconds(self, message_bytes: float) -> float:
        """Return the seconds of one collective operation on messages of a given size, from the fitted line."""
        return self.latency_seconds + message_bytes / self.bytes_per_second


class Cache(Frozen):
    """Level and kind of a processor's caches."""

    level: int
    kind: str = Field(description="`data`, `instruction` or `unified`.")
    size_bytes: int = Field(description="Size of one cache of this level and type, in bytes.")
    shared_by_threads: int = Field(description="Number of hardware threads that share one cache.")
    count: int = Field(description="Number of such caches in the machine.")


class CpuTopology(Frozen):
    """Topology of the whole machine's processor, including parts that a process may not use."""

    sockets: int
    physical_cores: int
    threads: int = Field(description="Number of logical processors that are online.")
    numa_nodes: int
    caches: tuple[Cache, ...] = ()
    instruction_sets: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Return a line such as `2 sockets, 64 cores, 128 threads, 2 NUMA nodes, L3 8 x 32 MiB`."""
        last = max(self.caches, key=lambda cache: cache.level, default=None)
        cache = f", L{last.level} {last.count} x {last.size_bytes / 2**20:g} MiB" if last else ""
        counts = {"socket": self.sockets, "core": self.physical_cores, "thread": self.threads}
        counts["NUMA node"] = self.numa_nodes
        return ", ".join(f"{count} {noun}{'s' if count != 1 else ''}" for noun, count in counts.items()) + cache


class Accelerator(Frozen):
    """Device of this machine that can run a training job."""

    name: str = Field(description="Name that is unique on the machine: `cpu`, `cuda:0`, ...")
    model: str = Field(description="Product name given by the vendor.")
    kind: Literal["cpu", "cuda"]
    cores: int = Field(
        description="Number of physical cores usable by this process; of a GPU, the number of multiprocessors."
    )
    memory_bytes: int
    instruction_sets: tuple[str, ...] = Field(
        default=(), description="Instruction sets such as avx2, avx512f, amx_bf16; or the CUDA capability."
    )
    topology: CpuTopology | None = Field(
        default=None, description="Sockets, cores and caches of the machine; None for a GPU."
    )


class HardwareProfile(Frozen):
    """Measured or estimated rates and power of one accelerator."""

    accelerator: Accelerator
    host: str = Field(description="Fingerprint of the kind of machine: the cache key of the profile.")
    measured_at: str = Field(description="UTC time, ISO 8601.")
    matmul_flops_per_second: dict[Precision, Quantity] = Field(
        description="FLOP/s of a large matrix product, by data type."
    )
    copy_bytes_per_second: Quantity = Field(
        description="Memory bandwidth of a large copy: bytes read plus bytes written, per second."
    )
    gather_bytes_per_second: Quantity = Field(
        description="Payload bytes per second when 64-byte rows are gathered at random."
    )
    operator_overhead_seconds: Quantity = Field(description="Seconds to run one small operator within a training step.")
    idle_watts: Quantity | None = Field(
        description="Idle power of the accelerator and its host processor, in watts; None if unknown."
    )
    busy_watts: Quantity | None = Field(
        description="Power of the accelerator and its host processor with all cores of the accelerator busy, in watts; "
        "None if unknown."
    )
    energy_method: str = Field(description="How energy is measured or estimated on this machine, as text.")
    price_per_hour: Quantity | None = Field(
        default=None, description="Price per hour in the user's currency; None if unknown."
    )
    matmul_curve: dict[Precision, tuple[MatmulRate, ...]] = Field(
        default={},
        description="Rates of matrix products with the shapes of dense layers, small to large; empty if unknown.",
    )
    gather_curve: tuple[RowRate, ...] = Field(
        default=(), description="Rates of looking up embedding rows, by row width."
    )
    scatter_curve: tuple[RowRate, ...] = Field(
        default=(), description="Rates of row-wise Adagrad updates of embedding rows, by row width."
    )
    step_costs: tuple[StepCosts, ...] = Field(
        default=(), description="Step costs fitted to short probes, by number of threads; empty without probes."
    )
    cache_bytes: int = Field(default=0, description="Size of the last-level cache in bytes; 0 when unknown.")
    host_to_device_bytes_per_second: Quantity | None = Field(
        default=None, description="Copy rate from page-locked host memory to the GPU; None for a CPU."
    )
    disk: DiskRates | None = Field(
        default=None, description="Read rates of the disk with Shunter's cache folder; None if not measured."
    )
    collectives: tuple[CollectiveCost, ...] = Field(
        default=(),
        description="Costs of collective operations between processes on accelerators of this kind; empty if not "
        "measured.",
    )
    shared_vectors: tuple[CollectiveCost, ...] | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Costs of exchanging pooled rows through shared memory, by the collective operation that it "
        "replaces; None if not measured, empty if processes cannot share memory.",
    )
    machine: str = Field(default="", description="Identifier of the machine; empty if unknown.")
    skips_zeros: Literal["inputs", "outputs", "both"] | None = Field(
        default=None,
        description="Zeros that the matrix unit skips in a backward pass: inputs (operands that are zero), outputs "
        "(results that are not needed) or both; None if it skips none.",
    )
    measured_cores: int | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Number of cores that were measured, if a job may use fewer than all; None: all cores of the "
        "accelerator.",
    )

    @property
    def rated_cores(self) -> int:
        """Return the number of cores that the figures refer to; 1 for a GPU."""
        if self.accelerator.kind == "cuda":
            return 1
        return self.measured_cores or self.accelerator.cores

    def with_cores(self, cores: int) -> Self:
        """Return the profile of a CPU that offers at most this number of cores; the figures stay those of all cores."""
        if self.accelerator.kind == "cuda" or cores >= self.accelerator.cores:
            return self
        offered = self.accelerator.model_copy(update={"cores": cores})
        return self.model_copy(update={"accelerator": offered, "measured_cores": self.rated_cores})


class PowerSample(Frozen):
    """Mean power since the previous sample."""

    seconds: float = Field(description="Seconds since the start of the measurement.")
    watts: float


class EnergyReading(Frozen):
    """Energy of a period; only values of a counter or a power sensor count as measured."""

    joules: float | None = Field(description="Energy used, in joules; None if no meter or estimate is available.")
    seconds: float
    mean_watts: float | None
    method: Literal["measured", "estimated", "unavailable"]
    source: str = Field(description="Meters or power model used, and why no better source is available, as text.")
    uncertainty_joules: float | None = Field(
        default=None, description="Half-width of the error interval of the energy, in joules; None if unknown."
    )
    uncertainty: str = Field(default="", description="Origin of the error interval of the energy, as text.")
    idle_joules: float | None = Field(
        default=None, description="Part of the energy that the idle machine would use too, in joules; None if unknown."
    )
    power: tuple[PowerSample, ...] = Field(default=(), description="Power over time, as at most a few hundred points.")
    measured_joules: float = Field(
        default=0.0,
        description="Part of the energy that counters and sensors measured, in joules, such as the GPU's part of a "
        "partial estimate.",
    )

    @classmethod
    def of(
        cls, joules: float, seconds: float, method: Literal["measured", "estimated"], source: str, **more: Any
    ) -> Self:
        """Create a reading and compute its mean power; `more` sets other fields of the reading."""
        mean_watts = joules / seconds if seconds > 0 else None
        fields = {"measured_joules": joules if method == "measured" else 0.0, **more}
        return cls(joules=joules, seconds=seconds, mean_watts=mean_watts, method=method, source=source, **fields)

    @property
    def teaches_power(self) -> bool:
        """Return True if the mean power may be used to learn a power model, because it was measured.

        A virtual machine exposes the counters of its GPUs but not of its processor. The processor's part is then
        estimated by the same model as predictions.
        """
        if self.joules is None or self.method == "unavailable":
            return False
        return self.method == "measured" or self.measured_joules >= LEAST_MEASURED_SHARE * self.joules


class Placement(Frozen):
    """Accelerator and execution settings of one training job."""

    accelerator: str = Field(
        description="Name of the accelerator, such as `cpu` or `cuda:0`; `cpu@node` is the processor of a cluster's "
        "node."
    )
    threads: int = Field(ge=1, description="Intra-operator threads.")
    precision: Precision
    batch_size: int = Field(ge=1, description="Samples per step.")
    prefetch_depth: int = Field(default=2, ge=1, description="Number of batches that are prefetched.")
    processes: int = Field(
        default=1,
        ge=1,
        description="Number of processes that share each batch, the CPU threads and the embedding tables.",
    )
    power_limit_watts: float | None = Field(
        default=None, gt=0, description="Power limit of a GPU during training, in watts; None for no change."
    )
    embedding_memory_bytes: int | None = Field(
        default=None,
        gt=0,
        exclude_if=lambda value: value is None,  # keeps the stored form of placements without this field
        description="Memory for the embedding tables, in bytes; larger tables are stored in a file. None: all in "
        "memory.",
    )

    @property
    def device(self) -> str:
        """Return the accelerator's name without a cluster node, such as `cuda:0` for `cuda:0@NODE`."""
        return self.accelerator.partition("@")[0]

    @property
    def node(self) -> str | None:
        """Return the cluster node of the accelerator; None for this machine."""
        return self.accelerator.partition("@")[2] or None

    @property
    def label(self) -> str:
        """Return a short text for tables: `cpu x2 fp32 b512`, `p2` for two processes, `250W` for a power limit.

        If tables are in a file, the text ends with the memory for them: `e64MiB`.
        """
        processes = f" p{self.processes}" if self.processes > 1 else ""
        watts = "" if self.power_limit_watts is None else f" {self.power_limit_watts:g}W"
        tables = ""
        if self.embedding_memory_bytes is not None:
            unit, suffix = (2**30, "GiB") if self.embedding_memory_bytes >= 2**30 else (2**20, "MiB")
            tables = f" e{self.embedding_memory_bytes / unit:.3g}{suffix}"
        return f"{self.accelerator} x{self.threads} {self.precision} b{self.batch_size}{processes}{watts}{tables}"

    def __hash__(self) -> int:
        """Return a hash, so that placements can be dict keys; type checkers do not see pydantic's own `__hash__`."""
        return hash(tuple(self.__dict__.values()))


class Matmul(Frozen):
    """Matrix product `[m, k] x [k, n]` of a training step, computed `count` times; sizes are for one sample."""

    count: int
    m: int
    n: int
    k: int
    batch_axis: Literal["count", "m", "n", "k", "none"] = Field(
        description="Dimension of the matrix product that the batch size multiplies; `none` for a product over all "
        "nodes of a graph."
    )
    half: bool = Field(description="Whether the product is computed in bf16 if the placement has that precision.")

    def sizes(self, batch_size: int) -> tuple[int, int, int, int]:
        """Return (count, m, n, k) in a step of `batch_size` samples."""
        count, m, n, k = (
            getattr(self, axis) * (batch_size if axis == self.batch_axis else 1) for axis in ("count", "m", "n", "k")
        )
        return count, m, n, k


class DenseDemand(Frozen):
    """Demand of the dense part of a step in one precision, without its matrix products."""

    traffic_bytes_per_sample: float = Field(
        description="Bytes of memory traffic per sample of all operators other than matrix products."
    )
    traffic_bytes_per_step: float = Field(
        description="Bytes of memory traffic per step to cast and update weights, independent of the batch size."
    )
    operators_per_step: int
    peak_bytes_per_sample: float = Field(description="Peak memory per sample beyond weights and input, in bytes.")
    peak_bytes_per_step: float


class Workload(Frozen):
    """Demand of one sample and of one step, counted from the model and the data; no value is guessed.

    The fields with defaults refine the required fields. If they are empty, the cost model uses the required fields
    alone.
    """

    matmul_flops_per_sample: float = Field(
        description="Floating-point operations of forward plus backward pass; a multiply-add counts as two."
    )
    lookups_per_sample: float
    lookup_bytes_per_sample: float = Field(
        description="Bytes of embedding rows read in the forward pass; the update reads and writes as much."
    )
    input_bytes_per_sample: float
    parameter_bytes: int
    optimizer_bytes: int
    activation_bytes_per_sample: float
    operators_per_step: int = Field(description="Number of operators dispatched in one training step.")
    train_samples: int = Field(description="Number of training samples in one epoch.")
    dense_parameter_bytes: int = Field(
        default=0, description="Bytes of the dense layers' weights, which are part of `parameter_bytes`."
    )
    table_bytes: int = Field(
        default=0, description="Bytes of weights and optimizer state of the tables that may be stored in a file."
    )
    working_bytes_per_sample: float = Field(
        default=0.0, description="Bytes per sample of the fp32 copies that a step makes of rows of fp16 tables."
    )
    tables: int = Field(
        default=0, description="Number of embedding bags per sample, usually one for each table; 0: unknown."
    )
    matmuls: tuple[Matmul, ...] = Field(default=(), description="Matrix products of a training step.")
    dense: dict[Precision, DenseDemand] = Field(
        default={}, description="Demand of the operators of the dense layers other than matrix products, by precision."
    )
    access_curve: tuple[tuple[float, float], ...] = Field(
        default=(),
        description="Access skew as ascending points (bytes of the most frequent rows, their share of all lookups).",
    )
    mapped_bytes: int = Field(default=0, description="Bytes of the data set's arrays, which training maps into memory.")
    backward_speedups: dict[str, float] = Field(
        default={},
        description="Speed-up of the backward matrix products when zeros are skipped, by kind of zeros; simulated from "
        "the zeros counted by `shunter profile --data`; empty if not counted.",
    )

    def cached_share(self, cache_bytes: float) -> float:
        """Return the share of lookups served by a cache of this size with the most frequent rows; 0 if unknown."""
        if not self.access_curve:
            return 0.0
        before = (0.0, 0.0)
        for size, share in self.access_curve:
            if size >= cache_bytes:
                grown = (cache_bytes - before[0]) / (size - before[0])
                return before[1] + grown * (share - before[1])
            before = (size, share)
        return 1.0


class Prediction(Frozen):
    """Predicted or measured time, energy and memory of one epoch at a placement."""

    step_seconds: float
    epoch_seconds: float
    epoch_joules: float | None
    memory_bytes: int
    samples_per_second: float
    step_seconds_source: Literal["measured", "estimated"] = Field(
        description="Whether a probe of the real model measured the values, or the cost model estimated them."
    )
    energy_source: Literal["measured", "estimated", "unavailable"]
    memory_source: Literal["measured", "estimated"] = "estimated"
    step_seconds_interval: tuple[float, float] | None = Field(
        default=None,
        description="Central 90 % interval of the step time in seconds, from the probe's steps or the known errors of "
        "the cost model; None if unknown.",
    )
    parts: dict[str, float] = Field(
        default={},
        description="Seconds of a step by part: dense, embedding, communication, input, overhead; empty if the step "
        "was measured as a whole.",
    )

    @property
    def step_seconds_spread(self) -> tuple[float, float] | None:
        """Return low and high end of the step time's prediction interval, divided by the step time; None if unknown."""
        if self.step_seconds_interval is None:
            return None
        low, high = self.step_seconds_interval
        return low / self.step_seconds, high / self.step_seconds
