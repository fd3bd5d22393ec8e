"""A user or an item is one, however it is written: nobody is recommended what they have, nor anything twice."""

from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import polars as pl
import pytest

from shunter.flows.command.top import best_items_of_file
from shunter.tracking.registry.models import load_champion
from tests.flows.test_top import log  # noqa: F401 - a log, and a registered model "shop" that ranks
from tests.serving.conftest import running

TOP = 6


def written_anew(values: list[int], random: np.random.Generator) -> list[str]:
    """The values in writings drawn for each row."""
    writings = ("{}", "{}.0", " {} ", "+{}", "0{}")
    return [writings[random.integers(len(writings))].format(value) for value in values]


@pytest.fixture
def respelt(log: pd.DataFrame, tmp_path: Path) -> pl.DataFrame:  # noqa: F811
    """Rows of the log beside those of unknown users and items, each in several writings."""
    random = np.random.default_rng(1)
    users, items = [int(user) for user in log["user"][:100]], log["item"].tolist()[:100]
    users = users * 2 + random.integers(50, 53, 60).tolist()
    items = items * 2 + items[:30] + random.integers(0, 3, 30).tolist()
    frame = pl.DataFrame({"user": written_anew(users, random), "item": written_anew(items, random)})
    frame.write_csv(tmp_path / "respelt.csv")
    return frame


def pairs(frame: pl.DataFrame) -> list[tuple[int, int]]:
    users, items = (map(float, frame["user"]), (text.strip().removesuffix(".0") for text in frame["item"]))
    return [(int(user), int(item)) for user, item in zip(users, items, strict=True)]


def test_a_file_of_several_writings_gives_each_user_one_list_of_new_items(
    respelt: pl.DataFrame, tmp_path: Path
) -> None:
    done = best_items_of_file("shop", tmp_path / "respelt.csv", str(tmp_path / "best.parquet"), TOP)
    found = pairs(pl.read_parquet(tmp_path / "best.parquet"))
    assert done.rows == len({user for user, _ in pairs(respelt)})
    assert len(found) == len(set(found)) > 3 * TOP
    assert not set(found) & set(pairs(respelt))
    assert {user for user, _ in found} >= {50, 51, 52}


def test_the_server_knows_a_user_in_every_writing(respelt: pl.DataFrame, tmp_path: Path) -> None:
    had = set(pairs(respelt))
    item = respelt["item"][0]
    with running("shop", items=tmp_path / "respelt.csv", follow_seconds=0) as server:
        url = f"http://127.0.0.1:{server.port}/invocations"

        def ask(*rows: dict[str, object]) -> list[int]:
            answer = httpx.post(url, json={"dataframe_records": rows, "params": {"top": TOP}}).json()
            return [item for _, item in pairs(pl.DataFrame(answer["predictions"]))]

        for user in (3, 51):
            expected = ask({"user": str(user)})
            assert len(set(expected)) == len(expected) > 0
            assert not {(user, item) for item in expected} & had
            for writing in (user, float(user), f"{user}.0", f" {user} ", f"0{user}"):
                assert ask({"user": writing}) == expected
            left_out = f" +{expected[0]}.0"
            assert expected[0] not in ask({"user": float(user), "item": left_out}, {"user": str(user), "item": item})


def test_the_champion_scores_a_pair_alike(log: pd.DataFrame) -> None:  # noqa: F811
    item = log["item"].tolist()[0]
    users = [3, 3.0, "3", " 3 ", "3.0", "003"]
    scores = [np.asarray(load_champion("shop").predict(pd.DataFrame({"user": [one], "item": [item]}))) for one in users]
    assert len({float(score[0]) for score in scores}) == 1
