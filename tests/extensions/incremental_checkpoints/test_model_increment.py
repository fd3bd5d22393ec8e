"""A model comes back bit by bit from an earlier one and its increment, and near it in few bits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.checkpoint.warm_start import SharedRows, tables_by_name
from shunter.errors import CheckpointError
from shunter.extensions.incremental_checkpoints.model_increment import apply_delta, difference
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model, build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features

WIDTH = 4
SPEC = model_spec(embedding_dim=WIDTH, bottom_widths=(4,), top_widths=(4,))


def features(users: int, items: int = 6) -> Features:
    fields = CategoricalFeature(name="user", rows=users), CategoricalFeature(name="item", rows=items)
    return Features(dense=("price",), categorical=fields)


def model(users: int, seed: int, **options: object) -> Model:
    return build_model(model_spec(**{**vars(SPEC), **options}), features(users), seed=seed).eval()


def gone_on(former: Model, users: int, shared: dict[str, SharedRows], touched: list[int]) -> Model:
    """A model with the former rows where they mean the same, but for those that were trained."""
    now = model(users, 9)
    with torch.no_grad():
        for name, table in tables_by_name(now).items():
            rows = shared[name].of_tables(len(table), len(tables_by_name(former)[name]))
            table[torch.from_numpy(rows.now)] = tables_by_name(former)[name][torch.from_numpy(rows.former)]
        tables_by_name(now)["user"][touched] += 0.5
    return now


def same_ids(users: int, order: list[int]) -> dict[str, SharedRows]:
    """The users known before stand in another order now, and the items in the same."""
    known = np.array(order[:users], np.int64)
    return {"user": SharedRows(np.arange(len(known)), known), "item": SharedRows(np.arange(6), np.arange(6))}


def states_equal(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(name == again and torch.equal(a, b) for (name, a), (again, b) in pairs)


@settings(max_examples=15, deadline=None)
@given(data=st.data(), users=st.integers(1, 12), before=st.integers(1, 12))
def test_it_comes_back_bit_by_bit_and_holds_the_rows_that_differ(data: st.DataObject, users: int, before: int) -> None:
    former = model(before, 1)
    shared = same_ids(users, data.draw(st.permutations(range(before))))
    touched = sorted(data.draw(st.sets(st.integers(0, users - 1))))
    now, built = gone_on(former, users, shared, touched), model(users, 3)
    increment, figures = difference(now, former, shared)
    apply_delta(former, built, shared, increment)
    assert states_equal(built, now)
    assert figures.changed_rows == len(set(touched) | set(range(min(users, before), users)))
    assert figures.rows == users + 6


@pytest.mark.parametrize("bits", [8, 4, 3, 2])
def test_few_bits_come_near_and_are_not_sent_a_second_time(bits: int) -> None:
    former, shared = model(8, 1), same_ids(8, [3, 1, 2, 0, 4, 5, 6, 7])
    now, first, second = gone_on(former, 8, shared, [0, 2, 5]), model(8, 3), model(8, 4)
    increment, figures = difference(now, former, shared, bits)
    apply_delta(former, first, shared, increment)
    near, exact = tables_by_name(first)["user"], tables_by_name(now)["user"]
    assert torch.equal(near[[1, 3, 4, 6, 7]], exact[[1, 3, 4, 6, 7]])
    assert (near - exact).abs().max() <= (exact.max() - exact.min()) / (2**bits - 1)
    assert 0 < figures.row_error < 0.5
    same = same_ids(8, list(range(8)))
    again, figures = difference(now, first, same, bits)
    apply_delta(first, second, same, again)
    assert figures.changed_rows == 0
    assert states_equal(first, second)


def test_one_model_goes_on_from_the_member_of_an_ensemble_that_it_was_made_of() -> None:
    members = [model(8, seed) for seed in (1, 2)]
    shared = same_ids(8, list(range(8)))
    now, built = gone_on(members[1], 8, shared, [3]), model(8, 5)
    increment, figures = difference(now, Ensemble(members, [1.0, 1.0]), shared)
    assert increment.origins == [{"user": 1, "item": 1}]
    assert figures.changed_rows == 1
    apply_delta(Ensemble(members, [1.0, 1.0]), built, shared, increment)
    assert states_equal(built, now)


def test_tables_that_ids_share_and_tables_of_other_widths() -> None:
    narrow = {"embedding_dim": 8, "bottom_widths": (8,), "table_dims": (4, 8), "table_shares": (0.4, 1.0)}
    former, now, built = model(8, 1, **narrow), model(9, 2, **narrow), model(9, 3, **narrow)
    shared = same_ids(9, list(range(8)))
    for earlier in (former, model(8, 1)):
        apply_delta(earlier, built, shared, difference(now, earlier, shared)[0])
        assert states_equal(built, now)


@pytest.mark.parametrize("before", ["fp32", "fp16"])
@pytest.mark.parametrize("bits", [32, 8])
def test_tables_in_fp16_come_back_whatever_those_before_were_kept_in(before: str, bits: int) -> None:
    former, shared = model(8, 1, table_precision=before), same_ids(8, [3, 1, 2, 0, 4, 5, 6, 7])
    now, built = (model(8, seed, table_precision="fp16") for seed in (9, 3))
    with torch.no_grad():
        for name, table in tables_by_name(now).items():
            rows = shared[name].of_tables(len(table), len(table))
            table[torch.from_numpy(rows.now)] = tables_by_name(former)[name][torch.from_numpy(rows.former)].half()
        tables_by_name(now)["user"][[0, 5]] += 0.5
    increment, figures = difference(now, former, shared, bits)
    apply_delta(former, built, shared, increment)
    assert figures.changed_rows == 2
    assert states_equal(built, now) == (bits == 32)
    assert built.embeddings.weight.dtype == torch.float16
    assert figures.row_error < 0.01


def test_an_increment_of_other_models_is_refused() -> None:
    former, shared = model(8, 1), same_ids(8, list(range(8)))
    increment, _ = difference(model(8, 2), former, shared)
    with pytest.raises(CheckpointError, match="belongs to other models"):
        apply_delta(former, model(4, 3), shared, increment)
