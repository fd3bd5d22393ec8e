"""What is settled before the first night: the model's name, a look at the newest day, and what nights may read."""

from pathlib import Path

import pytest

from shunter.errors import DataError, RequestError
from shunter.ingestion.sources import guard
from shunter.retraining.day_files import check_days, find_days, model_name_of, open_days

HEAD = "click,price,user,item\n"


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """A folder of two days and their schema."""
    folder = tmp_path / "srv" / "shop"
    folder.mkdir(parents=True)
    for day in (1, 2):
        rows = "".join(f"{row % 2},{row},u{row % 3},i{row % 4}\n" for row in range(20))
        (folder / f"day_2026-05-0{day}.csv").write_text(HEAD + rows)
    (tmp_path / "schema.yaml").write_text("label: click\nnumeric: [price]\ncategorical: [user, item]\n")
    return folder


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ("/srv/shop/day_{date}.parquet", "shop-day"),
        ("/srv/shop/{date:%Y/%m/%d}/*.csv", "srv-shop"),
        ("logs/clicks_{date}.csv.gz", "logs-clicks"),
        ("/data/2026 click logs", "data-2026-click-logs"),
        ("{date}.csv", "shunter"),
    ],
)
def test_the_name_of_the_model_follows_from_the_data_and_suits_the_registry(data: str, name: str) -> None:
    assert model_name_of(data) == name


def test_the_newest_day_is_read_once_and_what_is_wrong_is_said(days: Path, tmp_path: Path) -> None:
    pattern, schema = str(days / "day_{date}.csv"), str(tmp_path / "schema.yaml")
    assert "2 day(s) are there" in check_days(pattern, schema)
    assert "2026-05-02, the newest, can be read." in check_days(pattern, schema)
    with pytest.raises(DataError, match="cannot be read"):
        check_days(pattern, str(tmp_path / "absent.yaml"))
    (tmp_path / "schema.yaml").write_text("label: bought\nnumeric: [price]\ncategorical: [user, item]\n")
    with pytest.raises(DataError, match="bought"):
        check_days(pattern, schema)
    with pytest.raises(RequestError, match="write it exactly once"):
        check_days(str(days / "{date}_{date}.csv"), schema)


def test_days_that_are_still_to_come_are_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    assert check_days(str(folder / "day_{date}.csv"), None).startswith("There is no day for the nightly retraining")


def test_a_mistyped_path_of_the_days_is_an_error(days: Path) -> None:
    with pytest.raises(DataError):
        check_days(str(days.parent / "shpo" / "day_{date}.csv"), None)
    with pytest.raises(DataError):
        check_days(str(days / "dya_{date}.csv"), None)


def test_nights_may_read_the_days_they_were_set_up_for_and_nothing_beside_them(
    days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_FOREIGN", [lambda: True])
    pattern = str(days / "day_{date}.csv")
    with pytest.raises(RequestError, match="outside the folders"):
        find_days(pattern)
    open_days("srv/shop/day_{date}.csv", "schema.yaml", tmp_path)
    assert len(find_days(pattern).days) == 2
    guard.check_paths([tmp_path / "schema.yaml"])
    for beside in (tmp_path / "srv" / "other.csv", tmp_path / "schema.yaml.old", Path("/etc/passwd")):
        with pytest.raises(RequestError, match="outside the folders"):
            guard.check_paths([beside])
    monkeypatch.setenv("SHUNTER_DATA_ROOTS", str(tmp_path / "named"))
    assert len(find_days(pattern).days) == 2
    guard.open_to_deployments([tmp_path / "one"], data=True)
    guard.open_to_deployments([tmp_path / "two"], data=True)
    open_days("srv/shop/day_{date}.csv", None, tmp_path)
    guard.check_paths([tmp_path / "one" / "a.csv", tmp_path / "two" / "b.csv"])
    assert guard.roots_of_deployments()[0] == tmp_path / "named", "where relative paths count from"
