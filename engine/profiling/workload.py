"""Conversion of a model's operation and byte counts to the workload of the hardware cost model."""

from collections.abc import Sequence
from dataclasses import asdict

from shunter.hardware.types import DenseDemand, Matmul, Workload
from shunter.models.counts import ModelCounts, PrecisionCounts


def workload_of(
    counts: ModelCounts,
    *,
    train_samples: int,
    access_curve: Sequence[tuple[float, float]] = (),
    mapped_bytes: int = 0,
) -> Workload:
    """Return the workload of training a model on a data set, for the hardware cost model.

    Args:
        counts: Operations, lookups and bytes of the model per sample and per step.
        train_samples: Number of samples in one epoch.
        access_curve: Skew of the accesses to table rows; see `Workload`.
        mapped_bytes: Bytes of the arrays that a training run memory-maps.
    """
    return Workload(
        matmul_flops_per_sample=counts.matmul_flops_per_sample,
        lookups_per_sample=counts.lookups_per_sample,
        lookup_bytes_per_sample=counts.lookup_bytes_per_sample,
        input_bytes_per_sample=counts.input_bytes_per_sample,
        parameter_bytes=counts.parameter_bytes,
        optimizer_bytes=counts.optimizer_bytes,
        activation_bytes_per_sample=counts.activation_bytes_per_sample,
        operators_per_step=counts.operators_per_step,
        train_samples=train_samples,
        dense_parameter_bytes=counts.dense_parameter_bytes,
        tables=counts.tables,
        matmuls=tuple(Matmul.model_validate(asdict(product)) for product in counts.matmuls),
        dense={"fp32": _dense_demand(counts.fp32), "bf16": _dense_demand(counts.bf16)},
        access_curve=tuple(access_curve),
        mapped_bytes=mapped_bytes,
        table_bytes=counts.table_bytes,
        working_bytes_per_sample=counts.working_bytes_per_sample,
    )


def _dense_demand(counts: PrecisionCounts) -> DenseDemand:
    return DenseDemand(
        traffic_bytes_per_sample=counts.traffic_bytes_per_sample,
        traffic_bytes_per_step=counts.traffic_bytes_per_step,
        operators_per_step=counts.operators_per_step,
        peak_bytes_per_sample=counts.peak_bytes_per_sample,
        peak_bytes_per_step=counts.peak_bytes_per_step,
    )
