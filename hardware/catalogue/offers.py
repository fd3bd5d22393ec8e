"""Estimated hardware profile of an accelerator that cannot be measured: published peaks times reached shares.

A data sheet gives the peak; a training step reaches a share of the peak. The shares of GPUs and the time of a launch
were measured on one GPU (an H200, `benchmarks/results/train_step_gpu.json`); the shares of processors are round
numbers. Every figure made with them is marked as estimated, and predictions carry a wide interval. If a profile of the
same kind was measured on this machine and its catalogue row is known, its shares are used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shunter.hardware.catalogue.rows import IDLE_SHARE, AcceleratorRow, Catalogue, CpuIdentity, load_catalogue
from shunter.hardware.types import Accelerator, Collective, CollectiveCost, HardwareProfile, Precision, Quantity, Source

HOST = "catalogue"  # in place of a fingerprint: no machine was measured
# Memory traffic of a random 64-byte row, as a multiple of its payload: whole sectors and page-table look-ups.
GATHER_WASTE = 4.0
# Seconds of one operator: of a step recorded as a CUDA graph, as on the H200; dispatched on a CPU.
LAUNCH_SECONDS, CPU_OPERATOR_SECONDS = 1.5e-6, 4e-6
# Power of a GPU at rest and while it computes, as shares of its design power: the H200 drew 130 to 165 W in steps that
# waited for launches, and 290 to 360 W in recorded ones.
GPU_IDLE_SHARE, GPU_BUSY_SHARE = 0.15, 0.6
COLLECTIVE_START_SECONDS = 20e-6
CPU_FLOPS_PER_CORE = 80e9  # for a processor whose number of cores is not known: AVX2 at 2.5 GHz


@dataclass(frozen=True, kw_only=True)
class ReachedShares:
    """Shares of the published peaks that a training job reaches.

    Attributes:
        matmul: Share of the peak FLOP/s of a CPU, or of a GPU's vector units, in a large matrix product.
        matrix_unit: Share of the peak FLOP/s of a GPU's matrix units, in TF32 or bf16, in a large matrix product.
        copy: Share of the memory bandwidth in a large copy.
        gather: Share of the memory bandwidth when random 64-byte rows are read; only bytes of rows count.
        origin: Text that names the source of the shares, such as a measurement.
    """

    matmul: float
    matrix_unit: float
    copy: float
    gather: float
    origin: str

    def of_products(self, row: AcceleratorRow, precision: Precision) -> float:
        """Return the share of an accelerator's peak FLOP/s that large matrix products reach in a precision."""
        on_matrix_unit = row.kind != "cpu" and (precision == "bf16" or "tf32" in row.peak_flops_per_second)
        return self.matrix_unit if on_matrix_unit else self.matmul


ASSUMED = ReachedShares(
    matmul=0.7,
    matrix_unit=0.4,
    copy=0.85,
    gather=0.85 / GATHER_WASTE,
    origin="assumed shares of the published peaks",
)
# The H200 reached 221 TFLOP/s in TF32, 396 in bf16, and 97.7 GB/s of payload in a gather: .45, .40 and .020.
OF_GPUS = ReachedShares(
    matmul=0.7, matrix_unit=0.42, copy=0.85, gather=0.02, origin="the shares of the published peaks of an H200"
)


def measured_shares(profile: HardwareProfile, row: AcceleratorRow) -> ReachedShares:
    """Return the shares of its published peaks that an accelerator reaches; of a CPU's, by its used cores alone."""
    part = 1.0 if row.kind != "cpu" else min(1.0, profile.accelerator.cores / row_cores(row))
    # A few cores can use more than their proportional share of the memory bandwidth, so the shares are capped at 1.
    rates = {
        precision: min(1.0, rate.value / (peak_flops(row, precision)[0] * part))
        for precision, rate in profile.matmul_flops_per_second.items()
    }
    of_fp32, has_tf32 = rates["fp32"], row.kind != "cpu" and "tf32" in row.peak_flops_per_second
    bandwidth = row.memory_bytes_per_second
    return ReachedShares(
        matmul=OF_GPUS.matmul if has_tf32 else of_fp32,
        matrix_unit=of_fp32 if has_tf32 else rates.get("bf16", OF_GPUS.matrix_unit),
        copy=min(1.0, profile.copy_bytes_per_second.value / (bandwidth * part)),
        gather=min(1.0, profile.gather_bytes_per_second.value / (bandwidth * part)),
        origin=f"the shares of the published peaks that {profile.accelerator.model} was measured to reach",
    )


def catalogue_profile(
    row: AcceleratorRow,
    local: Sequence[tuple[HardwareProfile, AcceleratorRow]] = (),
    catalogue: Catalogue | None = None,
    *,
    here: Sequence[HardwareProfile] = (),
) -> HardwareProfile:
    """Return the estimated hardware profile of a catalogue accelerator.

    Args:
        row: Row of the accelerator.
        local: Measured profiles with their catalogue rows; the first of the same kind gives the shares of the peaks.
        catalogue: Catalogue with the processors' core counts; loaded if None.
        here: Measured profiles of accelerators without a catalogue row.
    """
    alike = [(profile, its_row) for profile, its_row in local if (its_row.kind == "cpu") == (row.kind == "cpu")]
    is_cpu = row.kind == "cpu"
    shares = measured_shares(*alike[0]) if alike else ASSUMED if is_cpu else OF_GPUS
    cores = row_cores(row, catalogue) if is_cpu else 1
    # The device's host is unknown, so its launch overhead is never taken to be smaller than this machine's.
    measured = [profile for profile, _ in alike] or [*(profile for profile, _ in local), *here]
    overhead = max(
        [CPU_OPERATOR_SECONDS if is_cpu else LAUNCH_SECONDS]
        + [profile.operator_overhead_seconds.value for profile in measured]
    )
    idle_share, busy_share = (IDLE_SHARE, 1.0) if is_cpu else (GPU_IDLE_SHARE, GPU_BUSY_SHARE)
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
        idle_watts=None if row.tdp_watts is None else _estimated(row.tdp_watts * idle_share),
        busy_watts=None if row.tdp_watts is None else _estimated(row.tdp_watts * busy_share),
        energy_method=(
            f"estimated: {row.tdp_watts or 'unknown'} W of the catalogue, {busy_share:.0%} of it at work and "
            f"{idle_share:.0%} at rest"
        ),
        price_per_hour=None if row.price_per_hour is None else Quantity(value=row.price_per_hour, source="catalogue"),
        host_to_device_bytes_per_second=(
            None if row.host_link_bytes_per_second is None else _estimated(row.host_link_bytes_per_second * shares.copy)
        ),
        collectives=_collectives(row, shares),
        skips_zeros=row.skips_zeros,
    )


def row_cores(row: AcceleratorRow, catalogue: Catalogue | None = None) -> int:
    """Return a CPU's physical cores; estimated from its peak FLOP/s if no processor row of the catalogue matches."""
    known = (catalogue or load_catalogue()).find_cpu(CpuIdentity(model_name=row.name))
    if known is not None:
        return known.cores
    return max(1, round(peak_flops(row, "fp32")[0] / CPU_FLOPS_PER_CORE))


def peak_flops(row: AcceleratorRow, precision: Precision) -> tuple[float, Source]:
    """Return the published peak FLOP/s of a precision, and whether the value is published or estimated.

    On a GPU with TF32, fp32 means TF32, because training computes products in TF32. Without a published bf16 rate, bf16
    is emulated at the fp32 rate. If only bf16 is published, fp32 is estimated as a quarter of the bf16 rate.
    """
    peaks = row.peak_flops_per_second
    if precision == "bf16":
        return (peaks["bf16"], "catalogue") if "bf16" in peaks else (peak_flops(row, "fp32")[0], "estimated")
    if row.kind != "cpu" and "tf32" in peaks:
        return peaks["tf32"], "catalogue"
    if "fp32" in peaks:
        return peaks["fp32"], "catalogue"
    if "bf16" in peaks:
        return peaks["bf16"] / 4, "estimated"
    return min(peaks.values()), "estimated"


def _matmul_rates(row: AcceleratorRow, shares: ReachedShares) -> dict[Precision, Quantity]:
    """Return FLOP/s by precision; bf16 is included only if the accelerator publishes it."""
    precisions: list[Precision] = ["fp32", "bf16"] if "bf16" in row.peak_flops_per_second else ["fp32"]
    return {
        precision: _estimated(peak_flops(row, precision)[0] * shares.of_products(row, precision))
        for precision in precisions
    }


def _collectives(row: AcceleratorRow, shares: ReachedShares) -> tuple[CollectiveCost, ...]:
    """Return the cost of collectives of two devices over the published link; empty if no link rate is published."""
    rate = row.interconnect_bytes_per_second or row.host_link_bytes_per_second
    if rate is None:
        return ()
    # The factor is the inverse of the share of a message that a device exchanges.
    costs: list[tuple[Collective, float]] = [("all_reduce", 1.0), ("all_to_all", 2.0)]
    return tuple(
        CollectiveCost(
            operation=operation,
            processes=2,
            link=f"{row.interconnect}, from the catalogue",
            latency_seconds=COLLECTIVE_START_SECONDS,
            bytes_per_second=rate * shares.copy * gain,
            r2=0.0,
            points=(),
        )
        for operation, gain in costs
    )


def _estimated(value: float) -> Quantity:
    return Quantity(value=value, source="estimated")
