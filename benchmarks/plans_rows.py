"""Tables whose rows travel one by one, frequent ones copied, beside the pooled exchange of the same tables.

Two processes of this machine train each plan on a log in Criteo's shape, whose large fields have one skewed value a
row. The small tables are copied everywhere; the large ones are exchanged pooled, whole or by row (TorchRec), or row by
row, with one row or with the most frequent rows copied. Rows and bytes are counted: rows by the tables themselves,
bytes on the loopback interface during the whole training, with the layers' gradients and evaluations among them. All
goes through sockets, as between machines; within one, pooled vectors go through shared memory by themselves.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import report
from benchmarks.optimizers import ingest_planted
from benchmarks.plans_executed import EPOCHS, ROWS, THREADS, trained
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.job import TrainingJob
from shunter.engine.profiling.profiles import machine_profiles
from shunter.extensions.distributed.planning.calibration import typical_step_seconds
from shunter.extensions.distributed.planning.demand import TableDemand, demand_of
from shunter.extensions.distributed.tables.sharding_types import Choice
from shunter.models.registry import model_spec

WIDTH, BATCH, PROCESSES = 64, 4096, 2
LARGE = 1_000  # rows
COPIED_SHARES = (0.2, 0.5, 0.8)  # of a table's lookups that the copied rows get


def rows_one_by_one(*, quick: bool) -> list[dict[str, Any]]:
    """Step, rows and bytes of each plan."""
    profile, lines = machine_profiles()[0], []
    with TemporaryDirectory() as name:
        dataset = ingest_planted(ROWS // 3 if quick else ROWS, Path(name))
        spec = model_spec(embedding_dim=WIDTH, bottom_widths=(64,), top_widths=(128, 64))
        execution = replace(Execution(), threads=THREADS, batch_size=BATCH)
        job = TrainingJob(dataset, spec, Hyperparameters(), execution, Schedule(max_epochs=EPOCHS, patience=EPOCHS))
        for plan, choices in _plans(demand_of(dataset, spec).tables).items():
            before = _loopback_bytes()
            result = trained(job, choices, profile, PROCESSES, shares_memory=False)
            sent = _loopback_bytes() - before
            traffic = result.row_traffic
            lines.append(
                {
                    "plan": plan,
                    "step_seconds": typical_step_seconds(result.history),
                    "loopback_bytes": sent,
                    "rows_per_lookup": None if traffic is None else traffic.rows_per_lookup,
                    "sent_bytes_of_rows": None if traffic is None else traffic.sent_bytes,
                    "copied_rows": sum(choice.replicated_rows for choice in choices),
                }
            )
    return lines


def figures(lines: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The headline: the share that sends least of those with copies, beside pooled vectors and rows without copies."""
    if not lines:
        return {}
    report.table(
        "rows one by one",
        ("plan", "step, ms", "MiB on the loopback", "rows fetched a batch"),
        [
            (
                one["plan"],
                f"{1e3 * one['step_seconds']:.1f}",
                f"{one['loopback_bytes'] / 2**20:.0f}",
                "" if one["rows_per_lookup"] is None else f"{one['rows_per_lookup']:,.0f}",
            )
            for one in lines
        ],
    )
    by_plan = {one["plan"]: one for one in lines}
    pooled = min((by_plan["whole"], by_plan["by row"]), key=lambda one: one["loopback_bytes"])
    fastest = min((by_plan["whole"], by_plan["by row"]), key=lambda one: one["step_seconds"])
    without = by_plan["one by one"]
    copied = min((one for one in lines if one["plan"].endswith("copied")), key=lambda one: one["loopback_bytes"])
    return {
        "oper_bytes_ratio": copied["loopback_bytes"] / pooled["loopback_bytes"],
        "oper_rows_ratio": copied["rows_per_lookup"] / without["rows_per_lookup"],
        "oper_step_ratio": copied["step_seconds"] / fastest["step_seconds"],
    }


def _plans(tables: Sequence[TableDemand]) -> dict[str, list[Choice]]:
    large = [table.rows >= LARGE for table in tables]

    def plan(of_large: dict[int, Choice]) -> list[Choice]:
        return [of_large[place] if is_large else Choice("data_parallel") for place, is_large in enumerate(large)]

    places = [place for place, is_large in enumerate(large) if is_large]
    found = {
        "whole": plan({place: Choice("table_wise", (turn % PROCESSES,)) for turn, place in enumerate(places)}),
        "by row": plan({place: Choice("row_wise") for place in places}),
        "one by one": plan({place: Choice("row_wise", replicated_rows=1) for place in places}),
    }
    for share in COPIED_SHARES:
        copies = {place: Choice("row_wise", replicated_rows=_rows_of(tables[place], share)) for place in places}
        found[f"one by one, rows of {share:.0%} of the lookups copied"] = plan(copies)
    return found


def _rows_of(table: TableDemand, share: float) -> int:
    """So many of the first rows that they get this share of the lookups, and at most half of all."""
    rows = next((int(rows) for rows, reached in table.in_order if reached >= share), table.rows)
    return min(max(rows, 1), table.rows // 2)


def _loopback_bytes() -> int:
    """Bytes that were sent over the loopback interface since the machine was started."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[8])
    raise OSError("/proc/net/dev does not list the loopback interface")
