"""Choices of a placement on machines with given figures, with every row of the table."""

from pathlib import Path
from typing import Any

from shunter.engine.data.dataset import Dataset
from shunter.hardware.types import Accelerator, HardwareProfile, Quantity
from shunter.planner.assessment import Assessment
from shunter.planner.choose import choose
from shunter.planner.decide import Decision, NoFeasiblePlacementError
from shunter.requests import ALL_OFFERS, LOCAL_OFFERS, JobRequest, Limits, SelectRequest
from tests.engine.synthetic import write_dataset
from tests.golden.homes import at_home
from tests.hardware.profiles import make_profile

FILE = "decision.json"
KEPT_DECISION = "kept_decision.json"
COMPARED_ROWS = 40  # of a table with the offers of the catalogue
PRICE = 1.5
# Name of the case: what is asked, and among what is chosen.
CASES: dict[str, tuple[JobRequest, str]] = {
    "least time": (SelectRequest(), LOCAL_OFFERS),
    "least energy": (SelectRequest(objective="energy"), LOCAL_OFFERS),
    "weights": (SelectRequest(objective="time=1,energy=0.5,cost=0.2", price_per_hour=PRICE), LOCAL_OFFERS),
    "within limits": (SelectRequest(limits=Limits(max_watts=25, max_memory_gib=4), price_per_hour=PRICE), LOCAL_OFFERS),
    "least cost of all offers": (SelectRequest(objective="cost", price_per_hour=PRICE), ALL_OFFERS),
    "with confidence": (SelectRequest(limits=Limits(max_hours=2, confidence=0.9)), LOCAL_OFFERS),
    "towers": (SelectRequest(model="dmt", towers=2, trials=3), LOCAL_OFFERS),
    "any family": (SelectRequest(model="auto"), LOCAL_OFFERS),
    "none is feasible": (SelectRequest(limits=Limits(max_hours=1e-6)), LOCAL_OFFERS),
}


def data(folder: Path) -> Dataset:
    """What is decided for: large enough for several batch sizes."""
    return write_dataset(folder / "data", rows=40_000)


def profiles() -> list[HardwareProfile]:
    """A processor and a fast GPU of round figures."""

    def figure(value: float) -> Quantity:
        return Quantity(value=value, source="measured")

    gpu = make_profile(
        name="cuda:0",
        accelerator=Accelerator(name="cuda:0", model="test", kind="cuda", cores=1, memory_bytes=8 * 2**30),
        matmul_flops_per_second={"fp32": figure(2e12), "bf16": figure(8e12)},
        copy_bytes_per_second=figure(200e9),
        gather_bytes_per_second=figure(50e9),
        operator_overhead_seconds=figure(8e-6),
        idle_watts=figure(40.0),
        busy_watts=figure(250.0),
    )
    return [make_profile(cores=4), gpu]


def decided(case: str, folder: Path, dataset: Dataset) -> dict[str, Any]:
    """Make one choice, without any measurement and without past runs."""
    asked, offers = CASES[case]
    with at_home(folder / "home"):
        try:
            return outcome(choose(dataset, asked, profiles(), offers=offers, probe_seconds=0))
        except NoFeasiblePlacementError as error:
            return {"error": type(error).__name__}


def outcome(decision: Decision) -> dict[str, Any]:
    """Return the figures of a choice that are compared.

    A prediction of memory counts what this very process has used so far, so that only differences are compared.
    """
    prediction = decision.prediction.model_dump(mode="json")
    return {
        "placement": decision.placement.model_dump(mode="json"),
        "prediction": {name: value for name, value in prediction.items() if name != "memory_bytes"},
        "totals": [decision.hours, decision.kwh, decision.cost],
        "considered": [decision.considered, decision.feasible],
        "binds": decision.binds,
        "rows": [_row(row) for row in decision.table[:COMPARED_ROWS]],
        "memory_above_least": _memory_above_least(decision)[:COMPARED_ROWS],
    }


def _row(row: Assessment) -> dict[str, Any]:
    return {
        "placement": row.candidate.placement.label,
        "totals": [row.hours, row.kwh, row.cost, row.watts],
        "excluded_by": [miss.limit for miss in row.excluded_by],
        "on_front": row.on_front,
    }


def _memory_above_least(decision: Decision) -> list[int]:
    """Bytes of each row above the least on the same accelerator."""
    candidates = [row.candidate for row in decision.table]
    least: dict[str, int] = {}
    for one in candidates:
        name, count = one.placement.accelerator, one.prediction.memory_bytes
        least[name] = min(count, least.get(name, count))
    return [one.prediction.memory_bytes - least[one.placement.accelerator] for one in candidates]


def whole_decision(folder: Path, dataset: Dataset) -> dict[str, Any]:
    """A choice as an interrupted run keeps it."""
    asked, offers = CASES["least time"]
    with at_home(folder / "home"):
        return choose(dataset, asked, profiles(), offers=offers, probe_seconds=0).model_dump(mode="json")
