"""Measurements and reports of stalls with round figures."""

from collections.abc import Mapping

import numpy as np

from shunter.extensions.distributed.links.communication import Link
from shunter.extensions.stalls.differences import find_stalls, run_times
from shunter.extensions.stalls.plan import StallMeasurements, Traffic
from shunter.extensions.stalls.report import StallReport

# Compute 10 ms, contention 1, all-reduce 2, exchange 3, prep 4, fetch 5, network 6, slow memory 7.
SECONDS = {
    "S0": 0.008,
    "S1": 0.010,
    "S1g": 0.011,
    "S2": 0.016,
    "S3": 0.025,
    "S4": 0.020,
    "S5": 0.022,
    "S6": 0.013,
    "S7": 0.017,
    "L3": 0.017,
    "L4": 0.008,
}


def make_measurements(
    seconds: Mapping[str, float] = SECONDS,
    *,
    noise: float = 0.0,
    seed: int = 0,
    rounds: int = 5,
    steps: int = 20,
    missing: Mapping[str, str] | None = None,
) -> StallMeasurements:
    """Steps of the given means, each with a relative noise that is never below zero seconds."""
    generator = np.random.default_rng(seed)
    missing = missing or {}
    drawn = {
        name: (mean * np.exp(noise * generator.normal(size=(rounds, steps)))).tolist()
        for name, mean in seconds.items()
        if name not in missing
    }
    return StallMeasurements(
        seconds=drawn,
        not_measurable=dict(missing),
        traffic=Traffic(calls={"all_reduce": 2, "all_to_all": 4}, message_bytes={"all_reduce": 1e5, "all_to_all": 3e5}),
        sharding={"table_wise": 3},
        slow_tier_rows=(100, 1000),
        communication=[],
    )


def make_report(measurements: StallMeasurements | None = None, **changes: object) -> StallReport:
    """100,000 samples of 50 MB on two processes of one thread with 500 samples each: 100 steps an epoch."""
    measurements = measurements or make_measurements()
    times, replicates = run_times(measurements)
    traffic = measurements.traffic
    assert traffic is not None
    values = {
        "data_name": "clicks",
        "model": "dlrm",
        "accelerator": "cpu",
        "devices": 2,
        "threads": 1,
        "batch_size": 500,
        "precision": "fp32",
        "train_samples": 100_000,
        "data_bytes": 50_000_000,
        "runs": times,
        "stalls": find_stalls(measurements, times, replicates),
        "sharding": measurements.sharding,
        "collective_bytes": traffic.message_bytes,
        "collective_calls": traffic.calls,
        "link": Link(bytes_per_second=1.25e8, latency_seconds=1e-4, machines=2),
        "slow_tier_rows": measurements.slow_tier_rows,
        "communication": None,
        "communication_note": "not measured",
    }
    return StallReport.model_validate({**values, **changes})
