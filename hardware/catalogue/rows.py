"""The catalogue: what makers publish about accelerators and processors, and what they cost, each row dated and sourced.

`accelerators.yaml` beside this file is shipped; a file of the user (`SHUNTER_CATALOGUE`, or `catalogue.yaml` in
Shunter's home) adds rows and changes fields of shipped ones by name.
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
from shunter.validation import clause, expected, own_words, sentence, shown
from shunter.yaml_file import YamlError, load_yaml, yaml_text

Dtype = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4"]

# Prices move within months; a specification is only ever corrected.
MAX_PRICE_AGE = datetime.timedelta(days=180)
MAX_SPECIFICATION_AGE = datetime.timedelta(days=730)

# Words that some systems put into a device's name and others leave out.
_NOISE = re.compile(
    r"\((r|tm)\)|@ [\d.]+ghz|\d+-core processor"
    r"|\b(nvidia|tesla|geforce|quadro|amd|instinct|intel|google|aws|cloud|cpu)\b"
)

Row = TypeVar("Row", bound=BaseModel)


def _number(value: object) -> object:
    """Read `80e9`, which YAML takes for text, as the number it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


Positive = Annotated[float, BeforeValidator(_number), Field(gt=0, allow_inf_nan=False)]
PositiveBytes = Annotated[int, BeforeValidator(_number), Field(gt=0)]


class AcceleratorRow(Frozen):
    """What is published about one accelerator; one row is one device as its software numbers it."""

    name: str
    aliases: tuple[str, ...] = Field(default=(), description="Other names, as drivers and price lists write them.")
    vendor: str
    kind: Literal["gpu", "tpu", "hpu", "cpu"]
    memory_bytes: PositiveBytes
    memory_bytes_per_second: Positive
    peak_flops_per_second: dict[Dtype, Positive] = Field(
        min_length=1, description="Dense rate of the fastest unit (matrix unit where there is one), by data type."
    )
    interconnect: str = Field(description="How the device reaches its peers in the same machine, in words.")
    interconnect_bytes_per_second: Positive | None = Field(description="One direction, all links; None if unpublished.")
    host_link_bytes_per_second: Positive | None = Field(description="One direction; None for a processor.")
    tdp_watts: Positive | None = Field(description="Thermal design power of the device; None if unpublished.")
    price_per_hour: Positive | None = Field(default=None, description="US dollars, host included; None if unknown.")
    price_date: datetime.date | None = Field(default=None, description="Day on which the price was valid or read.")
    price_source: str | None = Field(default=None, description="Key of `Catalogue.sources`.")
    skips_zeros: Literal["inputs", "outputs", "both"] | None = Field(
        default=None,
        description="What its matrix unit leaves out of a backward pass: operands that are zero, results that nobody "
        "needs, or both (simulated by the extension `stalls`); None where it multiplies zeros like all else.",
    )
    date: datetime.date = Field(description="Day on which the specification was checked.")
    source: str = Field(description="Key of `Catalogue.sources`.")

    @model_validator(mode="after")
    def _check_price(self) -> "AcceleratorRow":
        if self.price_per_hour is not None and (self.price_date is None or self.price_source is None):
            raise ValueError("price_per_hour needs price_date and price_source beside it")
        return self

    def staleness(self, today: datetime.date) -> str | None:
        """What of the row is too old to rely on, in words; None while it is fresh.

        Args:
            today: Day to judge by.
        """
        if self.price_date is not None and today - self.price_date > MAX_PRICE_AGE:
            return f"the price of {self.name} is of {self.price_date}, more than {MAX_PRICE_AGE.days} days old"
        if today - self.date > MAX_SPECIFICATION_AGE:
            return f"{self.name} was checked on {self.date}, more than {MAX_SPECIFICATION_AGE.days} days ago"
        return None


class CatalogueCpu(Frozen):
    """Power of a processor package, or of a generation of them, for the energy estimate."""

    title: str
    name: str | None = Field(default=None, description="Regular expression on the model name.")
    vendor: str | None = None
    family: int | None = None
    models: tuple[int, int] | None = Field(default=None, description="First and last model number of the generation.")
    tdp_watts: float = Field(gt=0, description="Thermal design power of one package.")
    cores: int = Field(gt=0, description="Physical cores of one package.")
    source: str = Field(description="Key of `Catalogue.sources`.")
    date: datetime.date = Field(description="Day on which the row was checked.")

    @model_validator(mode="after")
    def _check_match(self) -> "CatalogueCpu":
        if self.name is None and (self.vendor is None or self.family is None or self.models is None):
            raise ValueError(f"{self.title}: give either name, or vendor, family and models")
        return self

    def matches(self, cpu: "CpuIdentity") -> bool:
        """Whether the row describes `cpu`."""
        if self.name is not None:
            return re.search(self.name, cpu.model_name) is not None
        assert self.models is not None
        first, last = self.models
        return self.vendor == cpu.vendor and self.family == cpu.family and first <= cpu.model <= last


class CpuIdentity(Frozen):
    """How a processor introduces itself; numbers are -1 where it does not say."""

    model_name: str
    vendor: str = ""
    family: int = -1
    model: int = -1


class Catalogue(Frozen):
    """All rows; processors are tried in their order."""

    sources: dict[str, str] = Field(description="Where the rows' figures come from, in words.")
    cpus: tuple[CatalogueCpu, ...]
    accelerators: tuple[AcceleratorRow, ...] = ()

    @model_validator(mode="after")
    def _check_sources(self) -> "Catalogue":
        named = [(row.title, row.source) for row in self.cpus]
        named += [(row.name, row.source) for row in self.accelerators]
        named += [(row.name, row.price_source) for row in self.accelerators if row.price_source is not None]
        unknown = sorted({title for title, source in named if source not in self.sources})
        if unknown:
            raise ValueError(f"rows whose source is not named: {unknown}")
        return self

    @model_validator(mode="after")
    def _check_names(self) -> "Catalogue":
        owners: dict[str, str] = {}
        for row in self.accelerators:
            for name in (row.name, *row.aliases):
                if owners.setdefault(_normalised(name), row.name) != row.name:
                    raise ValueError(f"the name {name!r} belongs to two rows: {owners[_normalised(name)]}, {row.name}")
        return self

    def find_accelerator(self, name: str) -> AcceleratorRow:
        """The row of this name or alias; case, spacing and the maker's name do not matter.

        Raises:
            RequestError: no such row; the message names the nearest ones.
        """
        rows = {_normalised(name): row for row in self.accelerators for name in (row.name, *row.aliases)}
        wanted = _normalised(name)
        if wanted in rows:
            return rows[wanted]
        near = dict.fromkeys(rows[name].name for name in difflib.get_close_matches(wanted, rows, n=5, cutoff=0.5))
        hint = f"give {' or '.join(list(near)[:3])}, or" if near else "no name resembles it, so"
        raise RequestError(
            f"The catalogue has no accelerator {name!r}: {hint} add a row to {settings().catalogue_path}."
        )

    def find_cpu(self, cpu: CpuIdentity) -> CatalogueCpu | None:
        """First row that describes `cpu`."""
        return next((row for row in self.cpus if row.matches(cpu)), None)


def load_catalogue(user_file: Path | None = None) -> Catalogue:
    """The shipped catalogue, with the user's rows merged in by name.

    Args:
        user_file: The user's file; if None, the one that the settings name, which need not exist.

    Raises:
        RequestError: a file cannot be read, or a row of it is wrong; the message names file, row and field.
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
    """The shipped rows under those of the user's file; the same text is parsed once, as a choice asks often."""
    shipped = _read(files("shunter.hardware.catalogue").joinpath("accelerators.yaml").read_text(), "accelerators.yaml")
    return _build(shipped if text is None else _merge(shipped, _read(text, name)), name)


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
        raise RequestError(f"The catalogue {name} must have no sections but `sources`, `cpus` and `accelerators`.")
    for section, key in (("cpus", "title"), ("accelerators", "name")):
        for number, row in enumerate(content.get(section, ()), start=1):
            if not isinstance(row, Mapping) or not isinstance(row.get(key), str):
                raise RequestError(f"The catalogue {name}, {section}, row {number} has no {key}: add `{key}: ...`.")
    return dict(content)


def _merge(shipped: Mapping[str, Any], user: Mapping[str, Any]) -> dict[str, Any]:
    """The user's fields over those of the shipped row of the same name; new rows of processors are tried first."""
    rows = {_normalised(row["name"]): dict(row) for row in shipped["accelerators"]}
    for row in user.get("accelerators", ()):
        rows.setdefault(_normalised(row["name"]), {}).update(row)
    titles = {row["title"] for row in user.get("cpus", ())}
    return {
        "sources": {**shipped["sources"], **user.get("sources", {})},
        "cpus": [*user.get("cpus", ()), *(row for row in shipped["cpus"] if row["title"] not in titles)],
        "accelerators": list(rows.values()),
    }


def _build(content: Mapping[str, Any], name: str) -> Catalogue:
    """Check row by row, so that a message can say which one is wrong."""
    try:
        return Catalogue(
            sources=content["sources"],
            cpus=tuple(_row(CatalogueCpu, row, row["title"], name) for row in content["cpus"]),
            accelerators=tuple(_row(AcceleratorRow, row, row["name"], name) for row in content["accelerators"]),
        )
    except ValidationError as error:
        raise RequestError(
            sentence([f"The catalogue {name} is wrong: {clause(error.errors()[0], Catalogue)}"])
        ) from error


def _row(kind: type[Row], row: Mapping[str, Any], title: str, file: str) -> Row:
    try:
        return kind.model_validate(row)
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(str(part) for part in fault["loc"])
        where = f"The catalogue {file}, row {title!r}" + (f", field {field!r}" if field else "")
        raise RequestError(f"{where}: {_advice(kind, field, fault)}.") from error


def _advice(kind: type[BaseModel], field: str, fault: Any) -> str:
    """What to do about a wrong field, in the words of someone who edits the file."""
    if fault["type"] == "extra_forbidden":
        near = [name for name in kind.model_fields if name.startswith(field)]
        near = near or difflib.get_close_matches(field, kind.model_fields, n=1, cutoff=0.4)
        known = " or ".join(near or kind.model_fields)
        return f"there is no such field, since each bears its unit in its name: give {known}"
    if fault["type"] == "missing":
        return f"it is missing, add {kind.model_fields[field].description or 'it'}"
    if fault["type"] == "value_error":
        message = own_words(fault, "")
        return f"{message[0].lower()}{message[1:]}, correct the value"
    return f"it is {shown(fault['input'])}, give {expected(fault)}"


def _normalised(name: str) -> str:
    """Letters, digits and plus signs of a name without the words that some systems add."""
    return re.sub(r"[^a-z0-9+]", "", _NOISE.sub(" ", name.casefold()))
