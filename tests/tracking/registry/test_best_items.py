"""Users and items are told apart by the encoder's keys, however they are written."""

import numpy as np
import polars as pl
import torch

from shunter.engine.ranking.storage import StoredRanker
from shunter.ingestion.encoding.columns import text_keys
from shunter.ingestion.encoding.encoder import CategoricalField, Encoder
from shunter.ingestion.encoding.value_counts import ValueFlag
from shunter.ingestion.encoding.vocabulary import HashedIds, IdMap, VocabularyIds
from shunter.ingestion.fields import TextForm
from shunter.models.graph import graph_spec
from shunter.models.graph.ranker import VectorRanker
from shunter.tracking.registry.best_items import BestItems, Seen
from shunter.tracking.registry.serving import RankingScorer

ITEMS = 6


def scorer_of(users: IdMap, *, are_texts: bool = False, missing: tuple[str, ...] = ()) -> RankingScorer:
    """A ranker of random vectors over items `0` to `5`."""
    torch.manual_seed(0)
    items = VocabularyIds(text_keys(pl.Series([str(item) for item in range(ITEMS)])))
    kind = "written" if are_texts else "value"
    fields = tuple(CategoricalField(*field, key_kind=kind) for field in [("user", users), ("item", items)])
    encoder = Encoder((), fields, text_form=TextForm(missing=missing))
    degrees = [torch.ones(users.rows, dtype=torch.int64), torch.ones(items.rows, dtype=torch.int64)]
    ranker = VectorRanker(torch.randn(users.rows, 4), torch.randn(items.rows, 4), *degrees)
    spec = graph_spec("twotower", embedding_dim=4)
    return RankingScorer(
        encoder, StoredRanker(ranker=ranker, spec=spec, features=encoder.features, user="user", item="item")
    )


KNOWN_USERS = VocabularyIds(text_keys(pl.Series(["5", "7"])))
LOG = pl.DataFrame({"user": ["5", "5.0", " 5 ", "new", "1e3", "1000"], "item": ["0", "01", "2.0", "0", "3", "+4"]})


def test_writings_of_a_value_are_one_user_and_one_item() -> None:
    seen = Seen.of(scorer_of(KNOWN_USERS), [LOG[:3], LOG[3:], LOG])
    assert seen.users["user"].to_list() == ["5", "new", "1e3"]
    assert seen.users["user_id"].to_list() == [1, 0, 0]
    assert seen.items["item"].to_list() == ["0", "01", "2.0", "3", "+4"]
    assert seen.pairs.height == LOG.height


def test_texts_on_purpose_stay_apart() -> None:
    users = VocabularyIds(text_keys(pl.Series(["5"]), "written"))
    assert Seen.of(scorer_of(users, are_texts=True), [LOG]).users["user"].to_list() == [
        "5",
        "5.0",
        "new",
        "1e3",
        "1000",
    ]


def test_a_text_that_stands_for_no_value_is_nobody() -> None:
    rows = pl.DataFrame({"user": ["NA", "5", None], "item": ["1", "NA", "2"]})
    seen = Seen.of(scorer_of(KNOWN_USERS, missing=("NA",)), [rows])
    assert seen.users["user_key"].to_list() == [0, int(KNOWN_USERS.keys[0])]
    assert seen.counts.shares(ValueFlag.UNKNOWN) == {}


def test_what_a_user_has_is_left_out_of_a_list_without_repeats() -> None:
    scorer = scorer_of(KNOWN_USERS)
    numbers = pl.DataFrame({"user": [5.0, 7.0], "item": [5, 4]})
    best = BestItems(scorer, "shop", Seen.of(scorer, [LOG]))
    asked = Seen.of(scorer, [numbers])
    [found] = best.of(asked.users, ITEMS, asked)
    items = {user: frame["item"].to_list() for (user,), frame in found.group_by("user", maintain_order=True)}
    assert items["5.0"] == ["3", "+4"] or items["5.0"] == ["+4", "3"]
    assert sorted(items["7.0"]) == ["0", "01", "2.0", "3", "5"]


def test_unknown_users_have_what_stands_beside_them() -> None:
    scorer = scorer_of(KNOWN_USERS)
    seen = Seen.of(scorer, [LOG])
    found = pl.concat(BestItems(scorer, "shop", seen).of(seen.users, ITEMS))
    assert sorted(found.filter(user="1e3")["item"]) == ["0", "01", "2.0"]
    assert sorted(found.filter(user="new")["item"]) == ["+4", "01", "2.0", "3"]


def test_values_that_share_a_hashed_id_stay_apart() -> None:
    seen = Seen.of(scorer_of(HashedIds(1)), [LOG])
    assert seen.users["user_id"].to_list() == [1, 1, 1]
    assert seen.users["user"].to_list() == ["5", "new", "1e3"]


def test_unknown_values_are_counted_and_a_missing_one_is_nobody() -> None:
    rows = pl.DataFrame({"user": ["5", "x", None, ""], "item": ["1", "9", "9", None]})
    scorer = scorer_of(KNOWN_USERS)
    seen = Seen.of(scorer, [rows])
    assert seen.counts.shares(ValueFlag.UNKNOWN) == {"item": 2 / 3, "user": 1 / 2}
    assert seen.users["user"].to_list() == ["5", "x", None]
    nobody = seen.users.filter(pl.col("user").is_null())
    [found] = BestItems(scorer, "shop", Seen.of(scorer, [rows, rows.with_columns(user=None)])).of(nobody, ITEMS)
    assert np.unique(found["item"].to_numpy()).tolist() == ["1"]
