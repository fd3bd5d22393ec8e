"""The catalogue of processors: what a maker publishes, each row with its source and date."""

import datetime
import re
import statistics
from importlib.resources import files

import yaml
from pydantic import Field, model_validator

from hardware.types import Frozen


class CatalogueCpu(Frozen):
    """One row of `catalogue.yaml`: a processor, or a generation of them."""

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
    """All rows, in the order in which they are tried."""

    sources: dict[str, str] = Field(description="Where the rows' figures come from, in words.")
    cpus: tuple[CatalogueCpu, ...]

    @model_validator(mode="after")
    def _check_sources(self) -> "Catalogue":
        unknown = {row.title for row in self.cpus if row.source not in self.sources}
        if unknown:
            raise ValueError(f"rows whose source is not named: {sorted(unknown)}")
        return self

    def find_cpu(self, cpu: CpuIdentity) -> CatalogueCpu | None:
        """First row that describes `cpu`."""
        return next((row for row in self.cpus if row.matches(cpu)), None)

    def median_watts_per_core(self) -> float:
        """Watts per core of the middle row: what is assumed of a processor that no row describes."""
        return statistics.median(row.tdp_watts / row.cores for row in self.cpus)


def load_catalogue() -> Catalogue:
    """Read the catalogue that lies beside this file."""
    return Catalogue.model_validate(yaml.safe_load(files("hardware").joinpath("catalogue.yaml").read_text()))
