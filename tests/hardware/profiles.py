"""Profiles and workloads with round figures, for tests that compute the expected value by hand."""

from typing import Any

from shunter.hardware.types import Accelerator, HardwareProfile, Quantity, Workload


def make_profile(
    *, name: str = "cpu", cores: int = 4, memory_bytes: int = 16 * 2**30, **changes: Any
) -> HardwareProfile:
    """An accelerator of 100 GFLOP/s in fp32 and 200 in bf16, 10 GB/s copy, 1 GB/s gather, 1 us overhead, 10 to 30 W."""

    def figure(value: float) -> Quantity:
        return Quantity(value=value, source="measured")

    values: dict[str, Any] = {
        "accelerator": Accelerator(
            name=name,
            model="test",
            kind="cuda" if name.startswith("cuda") else "cpu",
            cores=cores,
            memory_bytes=memory_bytes,
        ),
        "host": "0123456789abcdef",
        "measured_at": "2026-01-01T00:00:00+00:00",
        "matmul_flops_per_second": {"fp32": figure(100e9), "bf16": figure(200e9)},
        "copy_bytes_per_second": figure(10e9),
        "gather_bytes_per_second": figure(1e9),
        "operator_overhead_seconds": figure(1e-6),
        "idle_watts": figure(10.0),
        "busy_watts": figure(30.0),
        "energy_method": "measured: test",
    }
    return HardwareProfile(**{**values, **changes})


def make_workload(**changes: Any) -> Workload:
    """One million samples of 1 MFLOP, ten rows of 64 bytes and 1 kB of activations each; 100 operators a step."""
    values: dict[str, Any] = {
        "matmul_flops_per_sample": 1e6,
        "lookups_per_sample": 10,
        "lookup_bytes_per_sample": 640,
        "input_bytes_per_sample": 100,
        "parameter_bytes": 10**8,
        "optimizer_bytes": 10**7,
        "activation_bytes_per_sample": 1000,
        "operators_per_step": 100,
        "train_samples": 10**6,
    }
    return Workload(**{**values, **changes})
