"""The catalogue that is shipped, and what it says about processors."""

import datetime
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from shunter.errors import RequestError
from shunter.hardware.catalogue.rows import (
    MAX_PRICE_AGE,
    MAX_SPECIFICATION_AGE,
    AcceleratorRow,
    Catalogue,
    CatalogueCpu,
    CpuIdentity,
    load_catalogue,
)


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tdp_watts": 0}, "greater than 0"),
        ({"name": None}, "give either name"),
        ({"watts": 5}, "Extra inputs"),
        ({"source": "hearsay"}, "name no known source"),
    ],
)
def test_a_wrong_row_is_refused(change: dict[str, object], message: str) -> None:
    row = {"title": "X", "name": "X", "tdp_watts": 100, "cores": 8, "source": "maker", "date": "2026-01-01"}
    with pytest.raises(ValidationError, match=message):
        Catalogue.model_validate({"sources": {"maker": "the maker"}, "cpus": [{**row, **change}]})
    assert CatalogueCpu.model_validate(row).cores == 8


TODAY = datetime.datetime.now(datetime.UTC).date()
NEW_ROW = {
    "name": "Acme X1",
    "vendor": "Acme",
    "kind": "gpu",
    "memory_bytes": "16e9",
    "memory_bytes_per_second": "500e9",
    "peak_flops_per_second": {"fp32": "10e12"},
    "interconnect": "PCIe 4.0 x16",
    "interconnect_bytes_per_second": None,
    "host_link_bytes_per_second": "31.5e9",
    "tdp_watts": 200,
    "date": "2026-01-01",
    "source": "acme",
}


def user_file(path: Path, *rows: dict[str, object]) -> Path:
    path.write_text(yaml.safe_dump({"sources": {"acme": "Acme's datasheet"}, "accelerators": list(rows)}))
    return path


class TestAccelerators:
    def test_the_shipped_rows_cover_every_vendor_and_kind(self) -> None:
        rows = load_catalogue().accelerators
        assert len(rows) >= 40
        assert {row.kind for row in rows} == {"gpu", "tpu", "hpu", "cpu"}
        assert {"NVIDIA", "AMD", "Google", "Intel", "AWS"} <= {row.vendor for row in rows}

    def test_every_figure_is_of_a_plausible_size_and_dated(self) -> None:
        for row in load_catalogue().accelerators:
            assert 5e9 < row.memory_bytes < 2e12, row.name
            assert 5e10 < row.memory_bytes_per_second < 1e13, row.name
            assert all(5e11 < peak < 2e16 for peak in row.peak_flops_per_second.values()), row.name
            assert row.tdp_watts is None or 50 < row.tdp_watts < 2000, row.name
            assert row.date <= TODAY, row.name
            assert row.price_per_hour is None or 0.05 < row.price_per_hour < 20, row.name

    def test_narrower_types_are_never_slower_than_wider_ones(self) -> None:
        for row in load_catalogue().accelerators:
            peaks = [row.peak_flops_per_second.get(dtype) for dtype in ("fp32", "tf32", "bf16", "fp8", "fp4")]
            known = [peak for peak in peaks if peak is not None]
            assert known == sorted(known), row.name

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("v100", "NVIDIA Tesla V100 SXM2 16GB"),
            ("Tesla V100-SXM2-32GB", "NVIDIA Tesla V100 SXM2 32GB"),
            ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 SXM4 80GB"),
            ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM5 80GB"),
            ("tpu  V5E", "Google TPU v5e"),
            ("gaudi 3", "Intel Gaudi 3"),
            ("AMD EPYC 7763 64-Core Processor", "AMD EPYC 7763"),
            ("Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz", "Intel Xeon E5-2690 v4"),
        ],
    )
    def test_names_of_drivers_and_price_lists_find_their_row(self, name: str, expected: str) -> None:
        assert load_catalogue().find_accelerator(name).name == expected

    @pytest.mark.parametrize(("name", "near"), [("A1000", "A100"), ("H10O", "H100"), ("MI300", "MI300X")])
    def test_an_unknown_name_is_refused_with_the_nearest_ones(self, name: str, near: str) -> None:
        with pytest.raises(RequestError, match=f"no accelerator '{name}': give .*{near}.*catalogue.yaml"):
            load_catalogue().find_accelerator(name)

    def test_a_name_like_no_other_is_refused_with_the_way_out(self) -> None:
        with pytest.raises(RequestError, match="no similar name exists: add a row to"):
            load_catalogue().find_accelerator("?")

    def test_old_prices_and_old_rows_are_stale(self) -> None:
        row = load_catalogue().find_accelerator("L40S")
        assert row.price_date is not None
        assert row.staleness(row.price_date + MAX_PRICE_AGE) is None
        late = row.price_date + MAX_PRICE_AGE + datetime.timedelta(days=1)
        assert "price" in (row.staleness(late) or "")
        unpriced = load_catalogue().find_accelerator("T4")
        assert unpriced.staleness(unpriced.date + MAX_SPECIFICATION_AGE) is None
        assert unpriced.staleness(unpriced.date + MAX_SPECIFICATION_AGE + datetime.timedelta(days=1)) is not None

    def test_a_price_without_its_date_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="price_per_hour"):
            AcceleratorRow.model_validate({**NEW_ROW, "price_per_hour": 1.0})


class TestUserFile:
    def test_the_file_in_the_home_adds_rows_and_changes_single_fields(self, shunter_home: Path) -> None:
        shunter_home.mkdir(parents=True)
        price = {"price_per_hour": 0.5, "price_date": "2026-10-01", "price_source": "acme"}
        user_file(shunter_home / "catalogue.yaml", NEW_ROW, {"name": "nvidia t4", **price})
        catalogue, shipped = load_catalogue(), load_catalogue(user_file(shunter_home / "empty.yaml"))
        added = catalogue.find_accelerator("acme x1")
        assert (added.memory_bytes, added.peak_flops_per_second["fp32"]) == (16_000_000_000, 10e12)
        changed, before = catalogue.find_accelerator("T4"), shipped.find_accelerator("T4")
        assert (changed.price_per_hour, before.price_per_hour) == (0.5, None)
        assert changed.memory_bytes == before.memory_bytes
        assert len(catalogue.accelerators) == len(shipped.accelerators) + 1

    def test_a_file_that_the_settings_name_must_exist(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SHUNTER_CATALOGUE", str(tmp_path / "mine.yaml"))
        with pytest.raises(RequestError, match="SHUNTER_CATALOGUE"):
            load_catalogue()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"memory": "16e9"}, "field 'memory': there is no such field.*use memory_bytes"),
            ({"tdp": 300}, "field 'tdp': .*use tdp_watts"),
            ({"colour": "red"}, "field 'colour': there is no such field"),
            ({"memory_bytes": "16 GB"}, "field 'memory_bytes': .*give a whole number"),
            ({"memory_bytes": 0}, "field 'memory_bytes': .*give a number above 0"),
            ({"tdp_watts": -5}, "field 'tdp_watts': .*give a number above 0"),
            ({"memory_bytes_per_second": float("inf")}, "field 'memory_bytes_per_second': .*finite"),
            ({"peak_flops_per_second": {"fp32": "fast"}}, "field 'peak_flops_per_second.fp32': .*give a number"),
            ({"peak_flops_per_second": {}}, "field 'peak_flops_per_second'"),
            ({"source": "hearsay"}, "name no known source.*Acme X1"),
            ({"aliases": ["H100"]}, "'H100' belongs to two catalogue rows"),
        ],
    )
    def test_a_wrong_row_is_refused_by_file_row_and_field(
        self, tmp_path: Path, change: dict[str, object], message: str
    ) -> None:
        path = user_file(tmp_path / "mine.yaml", {**NEW_ROW, **change})
        with pytest.raises(RequestError, match=f"mine.yaml.*{message}"):
            load_catalogue(path)

    def test_a_missing_field_is_named(self, tmp_path: Path) -> None:
        row = {key: value for key, value in NEW_ROW.items() if key != "tdp_watts"}
        with pytest.raises(RequestError, match="'tdp_watts'"):
            load_catalogue(user_file(tmp_path / "mine.yaml", row))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("accelerators: [{memory_bytes: 5}]", "accelerators, row 1 has no name"),
            ("accelerators: 5", "unknown section"),
            ("gpus: []", "unknown section"),
            ("- a\n- b", "unknown section"),
            ("accelerators: [", "not valid YAML"),
        ],
    )
    def test_a_file_of_another_shape_is_refused(self, tmp_path: Path, text: str, message: str) -> None:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        with pytest.raises(RequestError, match=message):
            load_catalogue(path)
