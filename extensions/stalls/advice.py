"""Advice on each detected stall: one sentence on what to change and the estimated saving, from the measured figures."""

from collections.abc import Callable

from shunter.extensions.distributed.links.communication import transfer_seconds, wire_bytes
from shunter.extensions.stalls.differences import Stall, StallName
from shunter.extensions.stalls.report import StallReport, detected
from shunter.hardware.types import HardwareProfile

TOLERABLE_SHARE = 0.1  # largest acceptable share of a step for network communication


def advise(report: StallReport, profile: HardwareProfile) -> tuple[str, ...]:
    """Return advice on every detected stall, the largest stall first.

    Args:
        report: Report of the stalls.
        profile: Profile of the accelerator, whose memory may hold the data.
    """
    found = sorted(detected(report.stalls), key=lambda stall: stall.seconds or 0.0, reverse=True)
    sentences = [ADVICE[stall.name](report, stall, profile) for stall in found]
    return tuple(sentence for sentence in sentences if sentence)


def _interconnect(report: StallReport, stall: Stall, profile: HardwareProfile) -> str:
    """Advise one process with all threads or several processes, by their measured throughput."""
    together = report.samples_per_step / report.runs["S2"].seconds
    alone = report.batch_size / report.runs["S0"].seconds
    saved = report.train_samples * (1 / together - 1 / alone)
    if saved > 0:
        return (
            f"Train in one process: with all {report.devices * report.threads} threads it reached {alone:,.0f} "
            f"samples/s (measured), {report.devices} processes {together:,.0f} (measured), which saves {saved:.1f} s "
            f"an epoch."
        )
    return (
        f"Keep the {report.devices} processes, whose {together:,.0f} samples/s (measured) beat the {alone:,.0f} of one "
        f"process (measured), although {_share(stall)} of their step is waiting for each other."
    )


def _contention(report: StallReport, stall: Stall, profile: HardwareProfile) -> str:
    return (
        f"Use fewer processes with more threads each, or leave cores free: computing at the same time, "
        f"{report.devices} processes slow each other by {_milliseconds(stall)} a step (measured), up to "
        f"{_epoch(report, stall)} an epoch."
    )


def _all_reduce(report: StallReport, stall: Stall, profile: HardwareProfile) -> str:
    saved = report.steps_per_epoch * (stall.seconds or 0.0) / 2
    return (
        f"Double the batch of each process to {2 * report.batch_size}: averaging the dense gradients takes "
        f"{_milliseconds(stall)} a step (measured) whatever the batch, so half as many steps would save {saved:.1f} s "
        f"an epoch (estimated); quality has to be checked."
    )


def _embedding_exchange(report: StallReport, stall: Stall, profile: HardwareProfile) -> str:
    exchanged = sum(size for name, size in report.collective_bytes.items() if name != "all_reduce")
    return (
        f"Keep a copy of small tables in every process (sharding type data_parallel): exchanging "
        f"{exchanged / 1e3:,.0f} kB of ids, rows and gradients takes {_milliseconds(stall)} a step (measured), so up "
        f"to {_epoch(report, stall)} an epoch could be saved."
    )


def _prep(report: StallReport, stall: Stall, profile: HardwareProfile) -> str:
    total = stall.total_seconds or 0.0
    cause = (
        "the reader alone is slower than the step, so more readers help"
        if total > report.runs[stall.fast_run].seconds
        else f"the reader alone needs only {1e3 * total:.2f} ms, so it lacks a core: leave one free for it"
    )
    return (
        f"Speed up the reading of batches: it delays each step by {_milliseconds(stall)} (measured), "
        f"{_epoch(report, stall)} an epoch; {cause}."
    )


def _fetch(report: StallReport, stall: Stall, profile: HardwareProfile) -> str:
    size = f"{report.data_bytes / 2**20:,.0f} MiB"
    if report.data_bytes < profile.accelerator.memory_bytes / 2:
        return (
            f"Read the files once before training (they are {size} and fit into memory): from disk a step takes "
            f"{_milliseconds(stall)} longer (measured), but only in the first epoch, {_epoch(report, stall)} in all."
        )
    share = smallest_cached_share(report)
    if share is None:
        return (
            f"Put the files ({size}) on a faster disk: reading delays each step by {_milliseconds(stall)} (measured)."
        )
    return (
        f"Keep {share:.0%} of the files ({size}) in memory or on a faster disk: then reading is no longer slower than "
        f"the step (estimated), which saves {_milliseconds(stall)} a step, {_epoch(report, stall)} an epoch."
    )


def smallest_cached_share(report: StallReport) -> float | None:
    """Estimate the least share of the data in memory at which reading is as fast as the step; None if unknown."""
    warm = report.runs["S4"].seconds
    return next((share for share, seconds in report.cache_what_if if seconds <= warm), None)


def _network(report: StallReport, stall: Stall, profile: HardwareProfile) -> str:
    gbit = report.link.bytes_per_second * 8 / 1e9
    found = (
        f"between {report.link.machines} machines at {gbit:g} Gbit/s and {1e6 * report.link.latency_seconds:g} µs "
        f"(simulated) a step takes {_milliseconds(stall)} longer, {_share(stall)} of it, {_epoch(report, stall)} an "
        f"epoch; by its messages alone it would be {1e3 * link_seconds(report):.2f} ms (computed)"
    )
    latency = latency_seconds(report)
    if latency > (stall.seconds or 0.0) / 2:
        return (
            f"Send fewer and larger messages, by a larger batch or fewer divided tables: {found}, of which "
            f"{1e3 * latency:.2f} ms is the latency of {sum(report.collective_calls.values()):.0f} operations "
            f"(computed)."
        )
    needed = required_bandwidth(report) * 8 / 1e9
    return (
        f"Connect the machines by at least {needed:,.1f} Gbit/s, so that bytes on the network take at most "
        f"{TOLERABLE_SHARE:.0%} of a step (computed): {found}."
    )


def link_seconds(report: StallReport) -> float:
    """Return the computed (not measured) time that a step's messages take between machines."""
    return sum(
        calls * transfer_seconds(name, report.collective_bytes[name] / calls, report.devices, report.link)
        for name, calls in report.collective_calls.items()
    )


def latency_seconds(report: StallReport) -> float:
    """Return the computed (not measured) latency of a step's messages between machines: time without payload."""
    return sum(
        calls * transfer_seconds(name, 0.0, report.devices, report.link)
        for name, calls in report.collective_calls.items()
    )


def required_bandwidth(report: StallReport) -> float:
    """Return the bytes per second at which a step's messages take a tolerable share of the step, without latency."""
    sent = sum(wire_bytes(name, size, report.devices) for name, size in report.collective_bytes.items())
    return sent / (TOLERABLE_SHARE * report.runs["S2"].seconds)


def _slow_memory(report: StallReport, stall: Stall, profile: HardwareProfile) -> str:
    kept, rows = report.slow_tier_rows or (0, 0)
    return (
        f"Keep the embedding tables in memory while they fit: in a file, with {kept:,} of {rows:,} rows in memory, "
        f"each step takes {_milliseconds(stall)} longer, {_share(stall)} of it (measured), {_epoch(report, stall)} an "
        f"epoch."
    )


def _milliseconds(stall: Stall) -> str:
    return f"{1e3 * (stall.seconds or 0.0):.2f} ms"


def _share(stall: Stall) -> str:
    return f"{stall.share_of_slow_run or 0.0:.0%}"


def _epoch(report: StallReport, stall: Stall) -> str:
    return f"{report.steps_per_epoch * (stall.seconds or 0.0):.1f} s"


ADVICE: dict[StallName, Callable[[StallReport, Stall, HardwareProfile], str]] = {
    "interconnect": _interconnect,
    "contention": _contention,
    "all_reduce": _all_reduce,
    "embedding_exchange": _embedding_exchange,
    "prep": _prep,
    "fetch": _fetch,
    "network": _network,
    "slow_memory": _slow_memory,
}
