"""Hardware profile of an accelerator that is not available: published peaks times the share that training reaches.

A data sheet gives the peak; a training step reaches a share of the peak. The shares assumed here are round numbers, not
measurements. Every figure made with them is therefore marked as estimated, and predictions carry a wide interval. If a
profile of the same kind was measured on this machine and its catalogue row is known, the measured shares are used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shunter.hardware.catalogue.design_power import IDLE_SHARE
from shunter.hardware.catalogue.rows import AcceleratorRow, Catalogue, CpuIdentity, load_catalogue
from shunter.hardware.types import Accelerator, CollectiveCost, HardwareProfile, Precision, Quantity, Source

HOST = "catalogue"  # in place of a fingerprint: no machine was measured
# Memory traffic of a random 64-byte row, as a multiple of its payload: whole sectors and page-table look-ups.
GATHER_WASTE = 4.0
# Host seconds to launch a CUDA kernel in PyTorch's eager mode; seconds to dispatch an operator on a CPU.
LAUNCH_SECONDS, CPU_OPERATOR_SECONDS = 6e-6, 4e-6
COLLECTIVE_START_SECONDS = 20e-6
CPU_FLOPS_PER_CORE = 80e9  # for a processor whose number of cores is not known: AVX2 at 2.5 GHz


@dataclass(frozen=True, kw_only=True)
class ReachedShares:
    """Shares of the published peaks that a training job reaches.

    Attributes:
        matmul: Share of the arithmetic of a large product.
        copy: Share of the memory's bandwidth in a large copy.
        gather: Share of the memory's bandwidth in payload of random 64-byte rows.
        origin: Origin of the shares, as text.
    """

    matmul: float
    copy: float
    gather: float
    origin: str


ASSUMED = ReachedShares(
    matmul=0.7, copy=0.85, gather=0.85 / GATHER_WASTE, origin="assumed shares of the published peaks"
)


def measured_shares(profile: HardwareProfile, row: AcceleratorRow) -> ReachedShares:
    """Return the shares of its published peaks that an accelerator reaches; a CPU's peaks are scaled to its used cores.

    Args:
        profile: Profile measured on this machine.
        row: Catalogue row of the accelerator.
    """
    part = 1.0 if row.kind != "cpu" else min(1.0, profile.accelerator.cores / row_cores(row))
    matmul = profile.matmul_flops_per_second["fp32"].value / (peak_flops(row, "fp32")[0] * part)
    # A few cores can use more than their proportional share of the memory bandwidth, so the shares are capped at 1.
    bandwidth = row.memory_bytes_per_second
    return ReachedShares(
        matmul=min(1.0, matmul),
        copy=min(1.0, profile.copy_bytes_per_second.value / (bandwidth * part)),
        gather=min(1.0, profile.gather_bytes_per_second.value / (bandwidth * part)),
        origin=f"the shares of the published peaks that {profile.accelerator.model} was measured to reach",
    )


def catalogue_profile(
    row: AcceleratorRow,
    local: Sequence[tuple[HardwareProfile, AcceleratorRow]] = (),
    catalogue: Catalogue | None = None,
) -> HardwareProfile:
    """Return the estimated hardware profile of a catalogue accelerator.

    Args:
        row: Row of the accelerator.
        local: Measured profiles with their catalogue rows; the first of the same kind gives the shares of the peaks.
        catalogue: Catalogue with the processors' core counts; loaded if None.
    """
    alike = [(profile, its_row) for profile, its_row in local if (its_row.kind == "cpu") == (row.kind == "cpu")]
    shares = measured_shares(*alike[0]) if alike else ASSUMED
    is_cpu = row.kind == "cpu"
    cores = row_cores(row, catalogue) if is_cpu else 1
    # The device's host is unknown, so its launch overhead is never taken to be smaller than this machine's.
    overhead = max([CPU_OPERATOR_SECONDS if is_cpu else LAUNCH_SECONDS, *_operator_seconds(alike or local)])
    return HardwareProfile(
        accelerator=Accelerator(
            name=row.name,
            model=row.name,
            kind="cpu" if is_cpu else "cuda",
            cores=cores,
            memory_bytes=row.memory_bytes,
        ),
        host=HOST,
        measured_at=f"{row.date.isoformat()}T00:00:00+00:00",
        matmul_flops_per_second=_matmul_rates(row, shares),
        copy_bytes_per_second=_estimated(row.memory_bytes_per_second * shares.copy),
        gather_bytes_per_second=_estimated(row.memory_bytes_per_second * shares.gather),
        operator_overhead_seconds=_estimated(overhead),
        idle_watts=None if row.tdp_watts is None else _estimated(row.tdp_watts * IDLE_SHARE),
        busy_watts=None if row.tdp_watts is None else Quantity(value=row.tdp_watts, source="catalogue"),
        energy_method=f"estimated: {row.tdp_watts or 'unknown'} W of the catalogue at work, {IDLE_SHARE:.0%} at rest",
        price_per_hour=None if row.price_per_hour is None else Quantity(value=row.price_per_hour, source="catalogue"),
        host_to_device_bytes_per_second=(
            None if row.host_link_bytes_per_second is None else _estimated(row.host_link_bytes_per_second * shares.copy)
        ),
        collectives=_collectives(row, shares),
        skips_zeros=row.skips_zeros,
    )


def row_cores(row: AcceleratorRow, catalogue: Catalogue | None = None) -> int:
    """Return a CPU's physical cores; estimated from its peak FLOP/s if no row of processor power matches its name."""
    known = (catalogue or load_catalogue()).find_cpu(CpuIdentity(model_name=row.name))
    if known is not None:
        return known.cores
    return max(1, round(peak_flops(row, "fp32")[0] / CPU_FLOPS_PER_CORE))


def peak_flops(row: AcceleratorRow, precision: Precision) -> tuple[float, Source]:
    """Return the published peak FLOP/s of a precision, and whether the value is published or estimated.

    fp32 means plain fp32, which is slower than TF32 on a GPU. Without a published bf16 rate, bf16 runs emulated at the
    fp32 rate. If only bf16 is published, fp32 is estimated as a quarter of the bf16 rate.
    """
    peaks = row.peak_flops_per_second
    if precision == "bf16":
        return (peaks["bf16"], "catalogue") if "bf16" in peaks else (peak_flops(row, "fp32")[0], "estimated")
    if "fp32" in peaks:
        return peaks["fp32"], "catalogue"
    if "bf16" in peaks:
        return peaks["bf16"] / 4, "estimated"
    return min(peaks.values()), "estimated"


def _matmul_rates(row: AcceleratorRow, shares: ReachedShares) -> dict[Precision, Quantity]:
    """Return FLOP/s by precision; bf16 is included only if the accelerator publishes it."""
    precisions: list[Precision] = ["fp32", "bf16"] if "bf16" in row.peak_flops_per_second else ["fp32"]
    return {precision: _estimated(peak_flops(row, precision)[0] * shares.matmul) for precision in precisions}


def _operator_seconds(local: Sequence[tuple[HardwareProfile, AcceleratorRow]]) -> list[float]:
    return [profile.operator_overhead_seconds.value for profile, _ in local]


def _collectives(row: AcceleratorRow, shares: ReachedShares) -> tuple[CollectiveCost, ...]:
    """Return the cost of collectives of two devices over the published link; empty if no link rate is published."""
    rate = row.interconnect_bytes_per_second or row.host_link_bytes_per_second
    if rate is None:
        return ()
    costs = [("all_reduce", 1.0), ("all_to_all", 2.0)]  # how much of a message each device keeps for itself, inverted
    return tuple(
        CollectiveCost.model_validate(
            {
                "operation": operation,
                "processes": 2,
                "link": f"{row.interconnect}, from the catalogue",
                "latency_seconds": COLLECTIVE_START_SECONDS,
                "bytes_per_second": rate * shares.copy * gain,
                "r2": 0.0,
                "points": (),
            }
        )
        for operation, gain in costs
    )


def _estimated(value: float) -> Quantity:
    return Quantity(value=value, source="estimated")
