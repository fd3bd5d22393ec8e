"""The catalogue that is shipped, and what it says about processors."""

import datetime
import statistics

import pytest
from pydantic import ValidationError

from hardware.catalogue import Catalogue, CatalogueCpu, CpuIdentity, load_catalogue


@pytest.mark.parametrize(
    ("cpu", "title"),
    [
        (CpuIdentity(model_name="AMD EPYC 7763 64-Core Processor"), "AMD EPYC 7763"),
        (CpuIdentity(model_name="Intel(R) Xeon(R) Platinum 8480+"), "Intel Xeon Platinum 8480+"),
        (CpuIdentity(model_name="AMD EPYC", vendor="AuthenticAMD", family=25, model=17), "AMD EPYC 9004 (as 9654)"),
        (
            CpuIdentity(model_name="Intel Xeon Processor", vendor="GenuineIntel", family=6, model=106),
            "Intel Xeon 3rd generation (as 8380)",
        ),
        (CpuIdentity(model_name="AMD EPYC 77630", vendor="AuthenticAMD", family=99, model=1), None),
        (CpuIdentity(model_name="riscv64"), None),
    ],
)
def test_a_processor_finds_its_row_by_name_or_else_by_generation(cpu: CpuIdentity, title: str | None) -> None:
    row = load_catalogue().find_cpu(cpu)
    assert (row.title if row else None) == title


def test_every_row_is_plausible_and_dated() -> None:
    catalogue = load_catalogue()
    for row in catalogue.cpus:
        assert 1 < row.tdp_watts / row.cores < 20, row.title
        assert row.date <= datetime.datetime.now(datetime.UTC).date(), row.title
    per_core = [row.tdp_watts / row.cores for row in catalogue.cpus]
    assert catalogue.median_watts_per_core() == statistics.median(per_core)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tdp_watts": 0}, "greater than 0"),
        ({"name": None}, "give either name"),
        ({"watts": 5}, "Extra inputs"),
        ({"source": "hearsay"}, "source is not named"),
    ],
)
def test_a_wrong_row_is_refused(change: dict[str, object], message: str) -> None:
    row = {"title": "X", "name": "X", "tdp_watts": 100, "cores": 8, "source": "maker", "date": "2026-01-01"}
    with pytest.raises(ValidationError, match=message):
        Catalogue.model_validate({"sources": {"maker": "the maker"}, "cpus": [{**row, **change}]})
    assert CatalogueCpu.model_validate(row).cores == 8
