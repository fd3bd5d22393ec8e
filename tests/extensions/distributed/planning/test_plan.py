"""Plans are written, read again, refused for other models, and compared."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from shunter.errors import RequestError
from shunter.extensions.distributed.planning.plan import (
    Plan,
    TablePlacement,
    check_fits,
    differences,
    plan_text,
    read_plan,
)
from shunter.extensions.distributed.tables.sharding_types import SHARDING_TYPES, ShardingType
from shunter.flows.command import cli
from shunter.flows.command.cli import app
from shunter.requests import TrainRequest
from shunter.tasks.training_plans import processes_of

PER_HOST = 2


@st.composite
def placements(draw: st.DrawFn) -> TablePlacement:
    kind: ShardingType = draw(st.sampled_from([one for one in SHARDING_TYPES if one != "table_column_wise"]))
    rows = draw(st.integers(1, 10**9))
    devices = {
        "data_parallel": (),
        "row_wise": (),
        "table_wise": (draw(st.integers(0, 3)),),
        "column_wise": draw(st.sampled_from([(0, 1), (3, 3), (0, 1, 2, 3)])),
        "table_row_wise": draw(st.sampled_from([(0, 1), (2, 3)])),
        "grid_shard": (0, 1, 2, 3),
    }[kind]
    copies = 0 if kind not in ("table_wise", "row_wise") or rows == 1 else draw(st.integers(0, rows - 1))
    return TablePlacement(rows=rows, width=16, kind=kind, devices=devices, replicated_rows=copies)


def plan_of(tables: dict[str, TablePlacement]) -> Plan:
    return Plan(
        model="dlrm",
        data="log",
        fingerprint="f",
        batch_size=512,
        devices=("a", "b", "c", "d"),
        devices_per_host=PER_HOST,
        tables=tables,
    )


@given(st.dictionaries(st.text(min_size=1, max_size=8), placements(), min_size=1, max_size=5))
def test_a_plan_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, tables: dict) -> None:
    plan, path = plan_of(tables), tmp_path_factory.mktemp("plan") / "plan.yaml"
    path.write_text(plan_text(plan), encoding="utf-8")
    assert read_plan(path) == plan


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("{rows: 9, width: 4, kind: table_wise, devices: [4]}", "names device 4, but the devices are 0 to 3"),
        ("{rows: 9, width: 4, kind: table_wise}", "names 0 devices: name exactly one"),
        ("{rows: 9, width: 4, kind: row_wise, devices: [0]}", "leave its devices out"),
        ("{rows: 9, width: 5, kind: column_wise, devices: [0, 1]}", "number of devices that divides its width 5"),
        ("{rows: 9, width: 4, kind: table_row_wise, devices: [1, 2]}", "devices of one whole host"),
        ("{rows: 9, width: 4, kind: grid_shard, devices: [0, 1, 2]}", "devices of whole hosts"),
        ("{rows: 9, width: 4, kind: row_wise, replicated_rows: 9}", "replicates 9 of its 9 rows"),
        (
            "{rows: 9, width: 8, kind: column_wise, devices: [0, 1], replicated_rows: 2}",
            "make it table_wise or row_wise",
        ),
        ("{rows: 9, width: 4, kind: sideways}", "kind"),
        ("{rows: 0, width: 4, kind: row_wise}", "rows"),
        ("{rows: 9, width: 4, kind: row_wise, colour: red}", "there is no key colour"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused_in_one_sentence(tmp_path: Path, table: str, told: str) -> None:
    path = tmp_path / "plan.yaml"
    text = plan_text(plan_of({"x": TablePlacement(rows=9, width=4, kind="row_wise")}))
    path.write_text(text.replace("{rows: 9, width: 4, kind: row_wise}", table))
    with pytest.raises(RequestError, match=r"plan\.yaml") as error:
        read_plan(path)
    assert told in str(error.value)


def test_a_plan_of_another_model_is_refused_by_the_first_difference() -> None:
    plan = plan_of({"x": TablePlacement(rows=9, width=4, kind="row_wise")})
    check_fits(plan, [("x", 9, 4)])
    with pytest.raises(RequestError, match="'x'"):
        check_fits(plan, [("x", 10, 4)])
    with pytest.raises(RequestError, match="'y'"):
        check_fits(plan, [("x", 9, 4), ("y", 1, 1)])
    with pytest.raises(RequestError, match="'x'"):
        check_fits(plan, [])


def test_the_command_shows_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "prepare_environment", lambda *, debug: None)  # it is for a whole process
    first = plan_of({"x": TablePlacement(rows=9, width=4, kind="row_wise")})
    second = plan_of({"x": TablePlacement(rows=9, width=4, kind="table_wise", devices=(3,))})
    assert list(differences(first, second)) == [("table x", "row-wise", "table-wise on 3")]
    paths = [tmp_path / name for name in "ab"]
    for path, plan in zip(paths, (first, second), strict=True):
        path.write_text(plan_text(plan))
    result = CliRunner().invoke(app, ["plan", "diff", *map(str, paths)])
    assert result.exit_code == 0
    assert "table-wise on 3" in result.output
    assert "equal" in CliRunner().invoke(app, ["plan", "diff", str(paths[0]), str(paths[0])]).output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--out", "plan.png"], "the path of the plan's picture"),
        (["--out", "."], "is a folder: name a file in it"),
        (["--max-device-gib", "inf"], "--max-device-gib"),
        (["--max-device-gib", "1e300"], "--max-device-gib"),
        (["--network-gbit", "inf"], "--network-gbit"),
    ],
)
def test_what_cannot_be_written_or_counted_is_refused_before_anything_is_searched(
    options: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["plan", *options])
    assert found.exit_code != 0
    assert told in " ".join(found.output.split())
    assert isinstance(found.exception, SystemExit)


def test_processes_are_those_of_the_plan(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(plan_text(plan_of({"t": TablePlacement(rows=9, width=16, kind="row_wise")})))
    assert processes_of(TrainRequest(plan=str(tmp_path / "plan.yaml"))) == 4
    assert processes_of(TrainRequest(processes=3)) == 3
