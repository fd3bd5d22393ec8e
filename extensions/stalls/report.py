"""Report of the stall profiler on one training run on this machine."""

from collections.abc import Mapping, Sequence

from shunter.errors import HardwareError
from shunter.extensions.distributed.links.communication import CommunicationModel, CommunicationSample, Link
from shunter.extensions.stalls.differences import (
    RunTime,
    Stall,
    StallName,
    cache_what_if,
    find_stalls,
    median_difference,
    run_times,
)
from shunter.extensions.stalls.plan import CommunicationMeasurement, StallMeasurements, StallPlan
from shunter.extensions.stalls.useful_share import UsefulShare
from shunter.frozen import Frozen
from shunter.hardware.types import HardwareProfile, Precision

NOMINAL_BYTES_PER_SECOND = 1e9  # if no collective was measured; the fitted factors then refer to this bandwidth


class StallReport(Frozen):
    """Stalls of one training step, and the measurements that they were computed from.

    Attributes:
        data_name: Name of the data set.
        model: Family of the model.
        accelerator: Accelerator of the training.
        devices: Number of processes of the training, with one device each.
        threads: Threads of each device.
        batch_size: Samples per device.
        precision: Precision of the dense part.
        train_samples: Rows of one epoch.
        data_bytes: Bytes of the training part's files.
        runs: Seconds per step by run.
        stalls: All differences of runs.
        sharding: Number of tables by kind of sharding.
        collective_bytes: Bytes of a process's inputs to collective operations in a step, by operation.
        collective_calls: Number of operations in a step, by operation.
        link: Simulated network link between machines.
        slow_tier_rows: Embedding rows that run S7, with the tables in a file, kept in memory; and all rows.
        communication: Communication model fitted to the measured models; None if the fit was rejected.
        communication_note: Quality of the fit, or why it was rejected.
        cache_what_if: Share of the data in memory and estimated seconds per step; empty if disk or reader are unknown.
        useful: Share of multiplications that are useful; None without linear layers, and in reports of older versions.
    """

    data_name: str
    model: str
    accelerator: str
    devices: int
    threads: int
    batch_size: int
    precision: Precision
    train_samples: int
    data_bytes: int
    runs: dict[str, RunTime]
    stalls: tuple[Stall, ...]
    sharding: dict[str, int]
    collective_bytes: dict[str, float]
    collective_calls: dict[str, float]
    link: Link
    slow_tier_rows: tuple[int, int] | None
    communication: CommunicationModel | None
    communication_note: str
    cache_what_if: tuple[tuple[float, float], ...] = ()
    useful: UsefulShare | None = None

    def stall(self, name: StallName) -> Stall:
        """Return the stall with a given name."""
        return next(stall for stall in self.stalls if stall.name == name)

    @property
    def samples_per_step(self) -> int:
        """Number of samples per step on all devices."""
        return self.devices * self.batch_size

    @property
    def steps_per_epoch(self) -> float:
        """Number of steps of one pass over the training part."""
        return self.train_samples / self.samples_per_step


def build_report(plan: StallPlan, measurements: StallMeasurements, profile: HardwareProfile) -> StallReport:
    """Build the report from the measurements.

    Args:
        plan: Plan of the measurements.
        measurements: Measurements of the stall profiler.
        profile: Profile of the accelerator, with its collectives if they were measured.
    """
    times, replicates = run_times(measurements)
    model, note = _communication(plan, measurements, profile)
    data_bytes = sum(path.stat().st_size for path in plan.dataset.directory.glob("train.*.npy"))
    return StallReport(
        data_name=plan.dataset.name,
        model=plan.spec.family,
        accelerator=plan.execution.device,
        devices=plan.processes,
        threads=plan.execution.threads,
        batch_size=plan.execution.batch_size,
        precision=plan.execution.precision,
        train_samples=plan.dataset.splits["train"].rows,
        data_bytes=data_bytes,
        runs=times,
        stalls=find_stalls(measurements, times, replicates),
        sharding=measurements.sharding,
        collective_bytes=measurements.traffic.message_bytes if measurements.traffic else {},
        collective_calls=measurements.traffic.calls if measurements.traffic else {},
        link=plan.link,
        slow_tier_rows=measurements.slow_tier_rows,
        communication=model,
        communication_note=note,
        cache_what_if=_cache_what_if(plan, times, profile, data_bytes),
    )


def _cache_what_if(
    plan: StallPlan, times: Mapping[str, RunTime], profile: HardwareProfile, data_bytes: int
) -> tuple[tuple[float, float], ...]:
    if profile.disk is None or not {"L4", "S4"} <= times.keys():
        return ()
    rows = plan.dataset.splits["train"].rows
    return tuple(
        cache_what_if(
            warm_step_seconds=times["S4"].seconds,
            warm_read_seconds=times["L4"].seconds,
            batch_bytes=data_bytes * plan.execution.batch_size / rows,
            disk_bytes_per_second=profile.disk.sequential_bytes_per_second.value / plan.processes,
        )
    )


def _communication(
    plan: StallPlan, measurements: StallMeasurements, profile: HardwareProfile
) -> tuple[CommunicationModel | None, str]:
    if plan.processes == 1:
        return None, "one device sends nothing"
    try:
        model = CommunicationModel.fit(communication_samples(plan, measurements, profile))
    except HardwareError as error:
        return None, str(error)
    return model, f"explains {model.r2:.0%} of the differences between {model.samples} measured models"


def communication_samples(
    plan: StallPlan, measurements: StallMeasurements, profile: HardwareProfile
) -> list[CommunicationSample]:
    """Return the communication time and bytes per step of each measured model, including the profiled one."""
    bandwidth = next(
        (measured.bytes_per_second for measured in profile.collectives if measured.operation == "all_reduce"),
        NOMINAL_BYTES_PER_SECOND,
    )
    measured = list(measurements.communication)
    if measurements.traffic is not None:
        seconds = measurements.seconds
        own = CommunicationMeasurement(
            model="profiled", together=seconds["S2"], apart=seconds["S1g"], traffic=measurements.traffic
        )
        measured.append(own)
    return [_sample(measurement, plan.processes, bandwidth) for measurement in measured]


def _sample(one: CommunicationMeasurement, processes: int, bandwidth: float) -> CommunicationSample:
    sent = one.traffic.message_bytes
    # Reduce-scatter and all-gather count as an all-to-all of as many bytes on the wire.
    others = sent.get("all_to_all", 0.0) + sent.get("reduce_scatter", 0.0)
    return CommunicationSample(
        model=one.model,
        buckets=round(sum(one.traffic.calls.values())),
        allreduce_bytes=sent.get("all_reduce", 0.0),
        alltoall_bytes=others + processes * sent.get("all_gather", 0.0),
        processes=processes,
        bytes_per_second=bandwidth,
        seconds=median_difference(one.together, one.apart),
    )


def detected(stalls: Sequence[Stall]) -> list[Stall]:
    """Return the stalls that were detected, by measurement or simulation."""
    return [stall for stall in stalls if stall.seconds is not None]
