"""Readers of the traces of Gavel, with the throughput table that they refer to, and of Shockwave."""

import ast
import json
import re
from pathlib import Path

from shunter.errors import DataError
from shunter.extensions.fleet.job import Iterations, Job
from shunter.extensions.fleet.traces.table import count, name, open_text, positive, read, seconds
from shunter.ingestion.sources.guard import check_text

RACK_SHARE = 0.5  # of the network's cost; an assumption, because the measurements have no rack level
TABLE = "simulation_throughputs.json"
FIELDS = ("job_type", "command", "directory", "steps_option", "needs_data", "steps", "scale_factor", "weight", "slo",
          "arrival")  # fmt: skip
SHOCKWAVE_FIELDS = ("job_type", "command", "directory", "steps_option", "needs_data", "steps", "scale_factor", "mode",
                    "weight", "slo", "duration", "arrival")  # fmt: skip


Throughputs = dict[str, dict[tuple[str, int], float]]


def read_trace(path: Path) -> list[Job]:
    """Read a tab-separated trace without a header, of Shockwave or of Gavel, which differ in their number of fields.

    A job of Shockwave (NSDI 2023) states its duration at the batch size that it begins with; the batch size stays
    constant, although most of these jobs change it. A job of Gavel states its steps; the throughput table is in the
    folder of the trace or one folder up.

    Raises:
        DataError: A line is invalid, a model is not in the table, or there is no table.
        RequestError: The table is outside the folders that a request may read.
    """
    with open_text(path) as file:
        lines = file.read().splitlines()
    is_shockwave = bool(lines) and len(lines[0].split("\t")) == len(SHOCKWAVE_FIELDS)
    names = SHOCKWAVE_FIELDS if is_shockwave else FIELDS
    together, apart = ({}, {}) if is_shockwave else _table_of(path)
    jobs = []
    for line, text in enumerate(lines, start=1):
        values = text.split("\t")
        if not is_shockwave and len(values) == len(FIELDS) - 1:  # older traces have no directory column
            values.insert(FIELDS.index("directory"), "")
        if len(values) != len(names):
            raise DataError(f"line {line} of {path}: {len(values)} fields, but should have {len(names)} between tabs")
        fields = dict(zip(names, values, strict=True))
        model, scale = fields["job_type"], read(path, line, "scale_factor", fields["scale_factor"], count)
        if is_shockwave:
            work = Iterations(read(path, line, "duration", fields["duration"], positive), {"": 1.0})
        else:
            steps = read(path, line, "steps", fields["steps"], positive)
            work = gavel_work(read(path, line, "job_type", model, name), scale, steps, together, apart)
        if work is None:
            raise DataError(f"line {line} of {path}: job_type is {model!r}, for which {TABLE} has no throughput")
        jobs.append(
            Job(
                name=f"job-{line}",
                arrival_seconds=read(path, line, "arrival", fields["arrival"], seconds),
                accelerators=scale,
                work=work,
                weight=read(path, line, "weight", fields["weight"], positive),
            )
        )
    return jobs


def _table_of(path: Path) -> tuple[Throughputs, Throughputs]:
    """Return the throughputs for a trace of Gavel, see `read_throughputs`."""
    table = next((folder / TABLE for folder in (path.parent, path.parent.parent) if (folder / TABLE).exists()), None)
    if table is None:
        raise DataError(
            f"The trace {path} needs the file {TABLE} with the speeds of its jobs, in the same folder or one folder up"
        )
    check_text(str(table))
    return read_throughputs(table)


def gavel_work(model: str, scale: int, steps: float, together: Throughputs, apart: Throughputs) -> Iterations | None:
    """Return the work of training a model for `steps`; None if the table has no throughput for `scale` accelerators."""
    model = re.sub(r" \(scale factor \d+\)$", "", model)
    compute, communication = {}, {}
    for accelerator, rates in together.items():
        rate = rates.get((model, scale), 0.0)
        if rate <= 0:  # too large for this type
            continue
        spread = min(apart.get(accelerator, {}).get((model, scale), rate) or rate, rate)
        compute[accelerator] = 1.0 / rate
        network = 1.0 / spread - 1.0 / rate
        communication[accelerator] = (0.0, RACK_SHARE * network, network)
    return Iterations(steps, compute, communication) if compute else None


def read_throughputs(path: Path) -> tuple[Throughputs, Throughputs]:
    """Read Gavel's table: steps per second by accelerator type, and by model with its number of accelerators.

    Returns:
        Throughputs of consolidated jobs, and of jobs with each accelerator on another machine.

    Raises:
        DataError: The file is not a throughput table.
    """
    try:
        table = json.loads(path.read_text())
        together: Throughputs = {}
        apart: Throughputs = {}
        for accelerator, models in table.items():
            is_apart = accelerator.endswith("_unconsolidated")
            target = (apart if is_apart else together).setdefault(accelerator.removesuffix("_unconsolidated"), {})
            for key, rates in models.items():
                target[ast.literal_eval(key)] = float(rates["null"])
    except (OSError, ValueError, KeyError, AttributeError, TypeError, SyntaxError, RecursionError) as error:
        raise DataError(f"{path} is not a table of throughputs such as Gavel's simulation_throughputs.json") from error
    return together, apart
