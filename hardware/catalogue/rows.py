"""Accelerator catalogue: published specifications and prices of accelerators and processors, dated and sourced.

`accelerators.yaml` in this folder is shipped. A file of the user (`SHUNTER_CATALOGUE`, or `catalogue.yaml` in Shunter's
home) adds rows and changes fields of shipped rows by name.
"""

import datetime
import difflib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from shunter.errors import RequestError
from shunter.frozen import Frozen
from shunter.settings import settings
from shunter.validation import clause, expected, own_text, sentence, shown
from shunter.yaml_file import YamlError, load_yaml, yaml_text

Dtype = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4"]

# Prices move within months; a specification is only ever corrected.
MAX_PRICE_AGE = datetime.timedelta(days=180)
MAX_SPECIFICATION_AGE = datetime.timedelta(days=730)

# Assumed idle power of a processor, as a share of its thermal design power. A server processor at rest draws somewhat
# less than a third of its peak: Barroso and Hoelzle, "The Case for Energy-Proportional Computing", IEEE Computer
# 40(12), 2007. Today's servers are between the two bounds.
IDLE_SHARE = 0.3
IDLE_SHARE_BOUNDS = (0.1, 0.5)

# Parts of a device's name that some systems write and others omit.
_NOISE = re.compile(
    r"\((r|tm)\)|@ [\d.]+ghz|\d+-core processor"
    r"|\b(nvidia|tesla|geforce|quadro|amd|instinct|intel|google|aws|cloud|cpu)\b"
)

Row = TypeVar("Row", bound=BaseModel)


def _number(value: object) -> object:
    """Convert text such as `80e9`, which YAML reads as a string, to a number."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


Positive = Annotated[float, BeforeValidator(_number), Field(gt=0, allow_inf_nan=False)]
PositiveBytes = Annotated[int, BeforeValidator(_number), Field(gt=0)]


class AcceleratorRow(Frozen):
    """Published specification of one accelerator: one device, as the vendor's software counts devices."""

    name: str
    aliases: tuple[str, ...] = Field(
        default=(), description="Other names of the accelerator, as in drivers and price lists."
    )
    vendor: str
    kind: Literal["gpu", "tpu", "hpu", "cpu"]
    memory_bytes: PositiveBytes
    memory_bytes_per_second: Positive
    peak_flops_per_second: dict[Dtype, Positive] = Field(
        min_length=1,
        description="Peak FLOP/s without sparsity of the fastest unit (matrix unit if there is one), by data type.",
    )
    interconnect: str = Field(description="Connection to the other accelerators of the same machine, as text.")
    interconnect_bytes_per_second: Positive | None = Field(
        description="Bandwidth to the other accelerators in one direction over all links; None if unpublished."
    )
    host_link_bytes_per_second: Positive | None = Field(
        description="Bandwidth to the host in one direction; None for a processor."
    )
    tdp_watts: Positive | None = Field(
        description="Thermal design power of the accelerator, in watts; None if unpublished."
    )
    price_per_hour: Positive | None = Field(default=None, description="Price per hour in US dollars; None if unknown.")
    price_includes_host: bool = Field(
        default=True, description="Whether the price includes a share of the host machine."
    )
    price_date: datetime.date | None = Field(default=None, description="Day on which the price was valid or was read.")
    price_source: str | None = Field(default=None, description="Key of `Catalogue.sources`.")
    skips_zeros: Literal["inputs", "outputs", "both"] | None = Field(
        default=None,
        description="Zeros that the matrix unit skips in a backward pass: inputs (operands that are zero), outputs "
        "(results that are not needed) or both, as simulated by the extension `stalls`; None if it skips "
        "none.",
    )
    tried: bool = Field(
        default=True, description="Whether Shunter has trained on an accelerator of the same kind and vendor."
    )
    date: datetime.date = Field(description="Day on which the specification was checked.")
    source: str = Field(description="Key of `Catalogue.sources`.")

    @model_validator(mode="after")
    def _check_price(self) -> "AcceleratorRow":
        if self.price_per_hour is not None and (self.price_date is None or self.price_source is None):
            raise ValueError("price_per_hour also needs price_date and price_source")
        return self

    def comparable_price(self, newest: datetime.date) -> float | None:
        """Return the hourly price; None without the host, or if it is `MAX_PRICE_AGE` older than the day `newest`."""
        if self.price_date is None or not self.price_includes_host or newest - self.price_date > MAX_PRICE_AGE:
            return None
        return self.price_per_hour

    def staleness(self, today: datetime.date) -> str | None:
        """Return a message that names the price or specification outdated on a day; None if both are recent enough."""
        if self.price_date is not None and today - self.price_date > MAX_PRICE_AGE:
            return f"the price of {self.name} is of {self.price_date}, more than {MAX_PRICE_AGE.days} days old"
        if today - self.date > MAX_SPECIFICATION_AGE:
            return f"{self.name} was checked on {self.date}, more than {MAX_SPECIFICATION_AGE.days} days ago"
        return None


class CatalogueCpu(Frozen):
    """Power of a processor package, or of a processor generation, for the energy estimate."""

    title: str
    name: str | None = Field(default=None, description="Regular expression on the model name.")
    vendor: str | None = None
    family: int | None = None
    models: tuple[int, int] | None = Field(default=None, description="First and last model number of the generation.")
    tdp_watts: float = Field(gt=0, description="Thermal design power of one processor package, in watts.")
    cores: int = Field(gt=0, description="Number of physical cores of one processor package.")
    source: str = Field(description="Key of `Catalogue.sources`.")
    date: datetime.date = Field(description="Day on which the catalogue row was checked.")

    @model_validator(mode="after")
    def _check_match(self) -> "CatalogueCpu":
        if self.name is None and (self.vendor is None or self.family is None or self.models is None):
            raise ValueError(f"the catalogue row {self.title}: give either name, or vendor, family and models")
        return self

    def matches(self, cpu: "CpuIdentity") -> bool:
        """Return True if the row describes `cpu`."""
        if self.name is not None:
            return re.search(self.name, cpu.model_name) is not None
        assert self.models is not None
        first, last = self.models
        return self.vendor == cpu.vendor and self.family == cpu.family and first <= cpu.model <= last


class CpuIdentity(Frozen):
    """Identity of a processor as the kernel reports it; unreported numbers are -1."""

    model_name: str
    vendor: str = ""
    family: int = -1
    model: int = -1


class Catalogue(Frozen):
    """All catalogue rows; the first processor row that matches is used."""

    sources: dict[str, str] = Field(description="Source of each row's figures, as text.")
    cpus: tuple[CatalogueCpu, ...]
    accelerators: tuple[AcceleratorRow, ...] = ()

    @model_validator(mode="after")
    def _check_sources(self) -> "Catalogue":
        named = [(row.title, row.source) for row in self.cpus]
        named += [(row.name, row.source) for row in self.accelerators]
        named += [(row.name, row.price_source) for row in self.accelerators if row.price_source is not None]
        unknown = sorted({title for title, source in named if source not in self.sources})
        if unknown:
            raise ValueError(f"catalogue rows that name no known source: {unknown}; add the source to `sources`")
        return self

    @model_validator(mode="after")
    def _check_names(self) -> "Catalogue":
        owners: dict[str, str] = {}
        for row in self.accelerators:
            for name in (row.name, *row.aliases):
                if owners.setdefault(_normalised(name), row.name) != row.name:
                    raise ValueError(
                        f"the name {name!r} belongs to two catalogue rows: {owners[_normalised(name)]}, {row.name}"
                    )
        return self

    def find_accelerator(self, name: str) -> AcceleratorRow:
        """Return the row of this name or alias; case, spacing and the vendor's name do not matter.

        Raises:
            RequestError: no row has the name; the message names the most similar rows.
        """
        rows = {_normalised(name): row for row in self.accelerators for name in (row.name, *row.aliases)}
        wanted = _normalised(name)
        if wanted in rows:
            return rows[wanted]
        near = dict.fromkeys(rows[name].name for name in difflib.get_close_matches(wanted, rows, n=5, cutoff=0.5))
        hint = f"give {' or '.join(list(near)[:3])}, or" if near else "no similar name exists:"
        raise RequestError(
            f"The catalogue has no accelerator {name!r}: {hint} add a row to {settings().catalogue_path}."
        )

    def find_cpu(self, cpu: CpuIdentity) -> CatalogueCpu | None:
        """Return the first row that describes `cpu`; None if there is none."""
        return next((row for row in self.cpus if row.matches(cpu)), None)


def load_catalogue(user_file: Path | None = None) -> Catalogue:
    """Load the shipped catalogue and merge the user's rows into it by name.

    Args:
        user_file: The user's file; if None, the file named in the settings, which need not exist.

    Raises:
        RequestError: a file cannot be read, or a row is wrong; the message names file, row and field.
    """
    path = user_file or settings().catalogue_path
    if user_file is None and settings().catalogue is None and not path.is_file():
        return _catalogue(None, "accelerators.yaml")
    try:
        return _catalogue(yaml_text(path), str(path))
    except YamlError as error:
        raise RequestError(f"The catalogue {path} is not valid YAML: it {error}.") from error
    except OSError as error:
        raise RequestError(
            f"The catalogue {path} cannot be read ({error.strerror}): correct SHUNTER_CATALOGUE or the file."
        ) from error


@lru_cache(maxsize=4)
def _catalogue(text: str | None, name: str) -> Catalogue:
    """Merge the user's file into the shipped rows; cached by text, because planning loads the catalogue often."""
    shipped = _read(files("shunter.hardware.catalogue").joinpath("accelerators.yaml").read_text(), "accelerators.yaml")
    content = shipped if text is None else _merge(shipped, _read(text, name))
    try:
        return Catalogue(
            sources=content["sources"],
            # Each row is validated on its own, so that the error message names the wrong row.
            cpus=tuple(_row(CatalogueCpu, row, row["title"], name) for row in content["cpus"]),
            accelerators=tuple(_row(AcceleratorRow, row, row["name"], name) for row in content["accelerators"]),
        )
    except ValidationError as error:
        raise RequestError(
            sentence([f"The catalogue {name} is wrong: {clause(error.errors()[0], Catalogue)}"])
        ) from error


def _read(text: str, name: str) -> dict[str, Any]:
    """Return the sections of one file, each row a mapping."""
    try:
        content = load_yaml(text) or {}
    except YamlError as error:
        raise RequestError(f"The catalogue {name} is not valid YAML: it {error}.") from error
    sections = {"sources": Mapping, "cpus": Sequence, "accelerators": Sequence}
    if not isinstance(content, Mapping) or any(
        key not in sections or not isinstance(value, sections[key]) for key, value in content.items()
    ):
        raise RequestError(
            f"The catalogue {name} has an unknown section: use only `sources`, `cpus` and `accelerators`."
        )
    for section, key in (("cpus", "title"), ("accelerators", "name")):
        for number, row in enumerate(content.get(section, ()), start=1):
            if not isinstance(row, Mapping) or not isinstance(row.get(key), str):
                raise RequestError(f"The catalogue {name}, {section}, row {number} has no {key}: add `{key}: ...`.")
    return dict(content)


def _merge(shipped: Mapping[str, Any], user: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the user's rows into shipped rows of the same name; the user's processor rows come first."""
    rows = {_normalised(row["name"]): dict(row) for row in shipped["accelerators"]}
    for row in user.get("accelerators", ()):
        rows.setdefault(_normalised(row["name"]), {}).update(row)
    titles = {row["title"] for row in user.get("cpus", ())}
    return {
        "sources": {**shipped["sources"], **user.get("sources", {})},
        "cpus": [*user.get("cpus", ()), *(row for row in shipped["cpus"] if row["title"] not in titles)],
        "accelerators": list(rows.values()),
    }


def _row(kind: type[Row], row: Mapping[str, Any], title: str, file: str) -> Row:
    try:
        return kind.model_validate(row)
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(str(part) for part in fault["loc"])
        where = f"The catalogue {file}, row {title!r}" + (f", field {field!r}" if field else "")
        raise RequestError(f"{where}: {_advice(kind, field, fault)}.") from error


def _advice(kind: type[BaseModel], field: str, fault: Any) -> str:
    """Return what to correct in a wrong field, for the user who edits the file."""
    if fault["type"] == "extra_forbidden":
        near = [name for name in kind.model_fields if name.startswith(field)]
        near = near or difflib.get_close_matches(field, kind.model_fields, n=1, cutoff=0.4)
        known = " or ".join(near or kind.model_fields)
        return f"there is no such field; names of fields include the unit: use {known}"
    if fault["type"] == "missing":
        return f"it is missing, add {kind.model_fields[field].description or 'it'}"
    if fault["type"] == "value_error":
        message = own_text(fault, "")
        return f"{message[0].lower()}{message[1:]}, correct the value"
    return f"it is {shown(fault['input'])}, give {expected(fault)}"


def _normalised(name: str) -> str:
    """Return the name's letters, digits and plus signs, without the parts that match `_NOISE`."""
    return re.sub(r"[^a-z0-9+]", "", _NOISE.sub(" ", name.casefold()))
