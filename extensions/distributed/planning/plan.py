"""Plan: placement of each table and of the layers of a model, as a value that is written, read, edited and compared."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from shunter.errors import RequestError
from shunter.extensions.distributed.tables.sharding_types import (
    BY_COLUMN,
    OF_HOSTS,
    Choice,
    CommunicationPrecision,
    ShardingType,
)
from shunter.frozen import Frozen
from shunter.ingestion.sources.guard import check_text
from shunter.validation import clause, sentence
from shunter.yaml_file import read_yaml

SplitKind = Literal["output_split", "input_split", "host_output_split", "host_input_split", "sharded", "hybrid_sharded"]
LayerKind = Literal["data_parallel"] | SplitKind
EXAMPLE = "devices: [cpu.0, cpu.1]"
HEAD = """\
# Where each table goes; `shunter train --plan FILE` trains by it. Devices are counted from 0 in the order of `devices`.
# kind: data_parallel (a copy on every device), table_wise (devices: [one]), row_wise (blocks of rows on all),
# column_wise (devices: one for each block of columns), table_row_wise (devices: those of one host),
# table_column_wise (blocks of columns on one host), grid_shard (columns over hosts, rows within each).
# replicated_rows: so many of the first rows, which are the most frequent, are on every device besides; the others of a
# table_wise or row_wise table then travel one by one instead of pooled.
"""


class TablePlacement(Frozen):
    """Placement of one table.

    Attributes:
        rows: Number of rows of the table for which the plan was made.
        width: Number of floats in a row.
        kind: How the table is divided.
        devices: Devices that hold a part, in the order of the parts; empty if all devices hold a part.
        replicated_rows: Number of first rows that every device has a copy of; the other rows are divided by `kind` and
            sent one by one.
    """

    rows: int = Field(ge=1)
    width: int = Field(ge=1)
    kind: ShardingType
    devices: tuple[int, ...] = ()
    replicated_rows: int = Field(default=0, ge=0)

    @property
    def label(self) -> str:
        """Short text, such as `table-wise on 1` or `row-wise, 500 rows everywhere`."""
        where = f" on {', '.join(map(str, self.devices))}" if self.devices else ""
        copies = f", {self.replicated_rows:,} rows everywhere" if self.replicated_rows else ""
        return f"{self.kind.replace('_', '-')}{where}{copies}"


class Plan(Frozen):
    """Plan that places all tables and layers of a model.

    Attributes:
        fingerprint: Fingerprint of the names and shapes of the tables, because a plan fits no other model.
        batch_size: Samples per step, summed over all devices, for which the plan was searched.
        devices_per_host: Devices of each host; `devices` lists them host by host.
        precision: Precision in which pooled rows and their gradients are sent.
        layers: Layers that are not data parallel, by their names
            (`shunter.extensions.distributed.planning.dense_split`); only simulated.
        samples: Samples per step on each device, if unequal; only simulated.
        towers: Towers, one on each host, if the model has them; only simulated.
    """

    model: str
    data: str
    fingerprint: str
    batch_size: int = Field(ge=1)
    devices: tuple[str, ...] = Field(min_length=1)
    devices_per_host: int = Field(ge=1)
    precision: CommunicationPrecision = "fp32"
    tables: dict[str, TablePlacement]
    layers: dict[str, LayerKind] = Field(default={})
    samples: tuple[Annotated[int, Field(ge=1)], ...] = ()
    towers: int = Field(default=0, ge=0)

    @property
    def only_simulated(self) -> str | None:
        """Text on the part of the plan that can only be simulated; None if the plan can be executed."""
        if self.layers:
            return "has divided layers, which are only simulated: search with --space exact"
        if self.towers:
            told = f"train with --model dmt --towers {self.towers}, which places tables itself"
            return f"is of a model with towers, whose exchange is only simulated: {told}"
        if self.samples:
            return "gives devices unequal parts of the batch, which is only simulated: leave `samples` out"
        return None

    @property
    def divided_width(self) -> int | None:
        """Required width of the tables with divided columns; None if no table has divided columns."""
        return next((table.width for table in self.tables.values() if table.kind in BY_COLUMN), None)

    def choices(self, names: Iterable[str]) -> list[Choice]:
        """Return the placements of tables, in the order of their names."""
        tables = [self.tables[name] for name in names]
        return [Choice(one.kind, one.devices, one.replicated_rows) for one in tables]

    @model_validator(mode="after")
    def _check(self) -> "Plan":
        count = len(self.devices)
        if count % self.devices_per_host:
            raise ValueError(
                f"the number of devices, {count}, is not a multiple of devices_per_host {self.devices_per_host}"
            )
        if self.samples and (len(self.samples) != count or sum(self.samples) != self.batch_size):
            raise ValueError(
                f"the list `samples` must give a part of the batch to each of the {count} devices, "
                f"{self.batch_size} samples in all"
            )
        for name, table in self.tables.items():
            _check_table(name, table, count, self.devices_per_host)
        return self


def _check_table(name: str, table: TablePlacement, count: int, per_host: int) -> None:
    told = f"table {name!r}"
    if beyond := next((one for one in table.devices if not 0 <= one < count), None):
        raise ValueError(f"{told} names device {beyond}, but the devices are 0 to {count - 1}")
    if table.kind in ("data_parallel", "row_wise") and table.devices:
        raise ValueError(f"{told} is {table.kind} and therefore on all devices: leave its devices out")
    if table.kind == "table_wise" and len(table.devices) != 1:
        raise ValueError(f"{told} is table_wise but names {len(table.devices)} devices: name exactly one")
    if table.kind == "column_wise" and (not table.devices or table.width % len(table.devices)):
        raise ValueError(f"{told} is column_wise: name a number of devices that divides its width {table.width}")
    if table.kind in OF_HOSTS:
        hosts = {device // per_host for device in table.devices}
        whole = sorted(table.devices) == [host * per_host + one for host in sorted(hosts) for one in range(per_host)]
        if not table.devices or not whole or (table.kind != "grid_shard" and len(hosts) != 1):
            where = "whole hosts" if table.kind == "grid_shard" else "one whole host"
            raise ValueError(f"{told} is {table.kind}: list the indices of all devices of {where}")
    if table.replicated_rows and table.kind not in ("data_parallel", "table_wise", "row_wise"):
        raise ValueError(f"{told} has replicated_rows but is {table.kind}: make it table_wise or row_wise")
    if table.replicated_rows and (table.kind == "data_parallel" or table.replicated_rows >= table.rows):
        raise ValueError(
            f"{told} replicates {table.replicated_rows} of its {table.rows} rows: lower replicated_rows, "
            "or make the table data_parallel without replicated_rows"
        )


def tables_fingerprint(shapes: Sequence[tuple[str, int, int]]) -> str:
    """Fingerprint of tables by name, rows and width."""
    return hashlib.sha256(json.dumps(list(shapes)).encode()).hexdigest()[:16]


def plan_text(plan: Plan) -> str:
    """Return the plan as readable YAML; `read_plan` reads an equal plan."""
    values = plan.model_dump(mode="json", exclude_defaults=True)
    tables = values.pop("tables")
    layers = values.pop("layers", {})
    lines = [HEAD + yaml.safe_dump(values, sort_keys=False, width=float("inf"), default_flow_style=None)]
    for title, entries in (("tables", tables), ("layers", layers)):
        if entries:
            lines.append(f"{title}:\n")
            for name, value in entries.items():
                flow = yaml.safe_dump(value, sort_keys=False, width=float("inf"), default_flow_style=True)
                flow = flow.removesuffix("...\n").strip()
                lines.append(f"  {_key(name)}: {flow}\n")
    return "".join(lines)


def _key(name: str) -> str:
    """Return the name of a field as YAML, quoted if necessary."""
    if name.isascii() and name.replace("_", "a").isalnum() and yaml.safe_load(name) == name:
        return name
    return yaml.safe_dump(name, default_style='"', width=float("inf")).strip()


def read_plan(path: Path) -> Plan:
    """Read a plan that `plan_text` or a user has written.

    Raises:
        RequestError: The plan cannot be read, or is inconsistent.
    """
    check_text(str(path))
    values = read_yaml(path, "plan", EXAMPLE, RequestError)
    try:
        return Plan.model_validate(values)
    except ValidationError as error:
        told = sentence([clause(fault, Plan) for fault in error.errors()])
        raise RequestError(f"The plan {path} cannot be used: {told}") from error


def check_fits(plan: Plan, shapes: Sequence[tuple[str, int, int]], path: str = "", *, any_width: bool = False) -> None:
    """Check that a plan was made for tables of these names, rows and widths; `path` is its file, for the message.

    With `any_width`, tables whose columns are not divided may have another width.

    Raises:
        RequestError: The plan was made for another model; the message names the first difference.
    """
    told = f"The plan {path}".rstrip()
    wanted = {name: (rows, width) for name, rows, width in shapes}
    for name, (rows, width) in wanted.items():
        table = plan.tables.get(name)
        if table is None:
            raise RequestError(
                f"{told} was made for another model: it lacks the table {name!r}. Make a plan with `shunter plan`."
            )
        divides = table.kind in BY_COLUMN
        if table.rows != rows or (table.width != width and (divides or not any_width)):
            raise RequestError(
                f"{told} was made for another model: its table {name!r} has {table.rows:,} rows of "
                f"{table.width} numbers, that of the model has {rows:,} of {width}. Make a plan with "
                "`shunter plan`."
            )
    if more := next((name for name in plan.tables if name not in wanted), None):
        raise RequestError(
            f"{told} was made for another model, which has a table {more!r}. Make a plan with `shunter plan`."
        )


def differences(first: Plan, second: Plan) -> Iterator[tuple[str, str, str]]:
    """Yield the differences of two plans: name, value in the first, value in the second."""
    for name in Plan.model_fields:
        one, other = getattr(first, name), getattr(second, name)
        if one != other and name not in ("tables", "layers"):
            yield name, _shown(one), _shown(other)
    for name in dict.fromkeys((*first.tables, *second.tables)):
        tables = first.tables.get(name), second.tables.get(name)
        if tables[0] != tables[1]:
            is_same_shape = len({(table.rows, table.width) for table in tables if table is not None}) == 1
            one, other = (
                "absent"
                if table is None
                else table.label + ("" if is_same_shape else f" ({table.rows:,} x {table.width})")
                for table in tables
            )
            yield f"table {name}", one, other
    for name in dict.fromkeys((*first.layers, *second.layers)):
        kinds = [plan.layers.get(name, "data_parallel") for plan in (first, second)]
        if kinds[0] != kinds[1]:
            yield f"layer {name}", kinds[0], kinds[1]


def _shown(value: object) -> str:
    return (", ".join(map(str, value)) or "equal") if isinstance(value, tuple) else str(value)
