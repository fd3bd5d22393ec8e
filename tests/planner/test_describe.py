"""The workload, counted; and the size of the job, estimated upwards."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.engine.data.dataset import Dataset
from shunter.errors import RequestError
from shunter.models.registry import model_spec
from shunter.models.spec import CategoricalFeature
from shunter.planner.describe import (
    REDUCTION_FACTOR,
    access_curve,
    describe,
    expected_share,
    hyperband_epochs,
    hyperband_finishers,
    job_size,
    members_to_train,
)
from shunter.requests import JobRequest, TrainRequest
from tests.engine.synthetic import write_dataset


class WithoutSearch(JobRequest, frozen=True):
    searches: ClassVar[bool] = False


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "data", rows=1000, dense=2, single=3, bags=1)


def test_lookups_are_counted_with_the_mean_length_of_bags(dataset: Dataset) -> None:
    workload = describe(dataset, model_spec(embedding_dim=8))
    ids = (dataset.directory / "train.bag3.values.npy").stat().st_size - 128  # int32 after the header of the file
    assert workload.lookups_per_sample == pytest.approx(3 + ids / 4 / 700)
    assert workload.lookup_bytes_per_sample == pytest.approx(workload.lookups_per_sample * 8 * 4)
    assert workload.train_samples == 700


def test_a_wider_model_asks_for_more(dataset: Dataset) -> None:
    narrow, wide = (describe(dataset, model_spec(embedding_dim=dim)) for dim in (8, 32))
    assert wide.matmul_flops_per_sample > narrow.matmul_flops_per_sample
    assert wide.parameter_bytes > narrow.parameter_bytes


def test_a_history_is_looked_up_in_the_table_of_its_items(dataset: Dataset) -> None:
    bag = dataset.features.categorical[-1]
    own = replace(bag, length=4)
    item = CategoricalFeature(name=bag.name.upper(), rows=bag.rows)
    fields = tuple(replace(field, name=bag.name, access_curve=((0.1, 0.7), (1.0, 1.0))) for field in dataset.fields[:1])
    curves = {}
    for name, shared in (("own", own), ("shared", replace(own, table=item.name))):
        features = replace(dataset.features, categorical=(item, shared))
        data, ids = replace(dataset, features=features, fields=fields), {item.name: 1, bag.name: 3}
        curves[name] = access_curve(data, model_spec(embedding_dim=8), ids)
    expected = [(180, 0.7 * 3 / 4), (1800, 3 / 4), (3600, 1)]  # (bytes, lookups): hot and cold of the bag, the item
    np.testing.assert_allclose(curves["own"], expected)
    np.testing.assert_allclose(curves["shared"], [(1800, 1)])


def test_narrow_tables_and_shared_rows_ask_for_less(dataset: Dataset) -> None:
    dims, shares = (4, 8, 8, 8), (1.0, 0.5, 1.0, 1.0)
    whole = describe(dataset, model_spec(embedding_dim=8))
    less = describe(dataset, model_spec(embedding_dim=8, table_dims=dims, table_shares=shares))
    narrow, shared, *_ = (field.rows for field in dataset.features.categorical)
    spared = shared // 2  # of its rows
    assert whole.parameter_bytes - less.parameter_bytes == 4 * (4 * narrow + 8 * spared)
    assert whole.optimizer_bytes - less.optimizer_bytes == 4 * spared
    assert whole.lookup_bytes_per_sample - less.lookup_bytes_per_sample == 4 * 4
    assert less.matmul_flops_per_sample == whole.matmul_flops_per_sample
    assert less.access_curve[-1] == (
        less.parameter_bytes
        - less.dense_parameter_bytes
        + 4 * (sum(f.rows for f in dataset.features.categorical) - spared),
        1,
    )


def test_an_unknown_model_is_refused(dataset: Dataset) -> None:
    with pytest.raises(RequestError, match="unheard"):
        describe(dataset, model_spec(family="unheard"))


@pytest.mark.parametrize(
    ("trials", "max_epochs", "epochs"),
    [
        pytest.param(1, 9, 9, id="the first to arrive passes every rung"),
        pytest.param(9, 1, 9, id="nothing can be cut from one epoch"),
        # Three brackets of 3 settings. First rung at 1: 3 train 1 epoch, 2 go on to 3, and 2 to 9; first rung at 3:
        # 3 train 3 epochs, 2 go on to 9; first rung at 9: 3 train 9.
        pytest.param(9, 9, (3 + 2 * 2 + 2 * 6) + (9 + 2 * 6) + 27, id="three brackets"),
    ],
)
def test_hyperband_epochs(trials: int, max_epochs: int, epochs: int) -> None:
    assert hyperband_epochs(trials, max_epochs) == epochs


@given(st.integers(1, 200), st.integers(1, 100))
def test_hyperband_spends_at_least_an_epoch_and_at_most_all_on_a_setting(trials: int, max_epochs: int) -> None:
    assert trials <= hyperband_epochs(trials, max_epochs) <= trials * max_epochs


def test_optuna_itself_spends_less_on_average_than_is_estimated() -> None:
    import optuna

    spent = []
    for seed in range(6):
        scores = np.random.default_rng(seed)
        pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=9, reduction_factor=REDUCTION_FACTOR)
        study = optuna.create_study(pruner=pruner, study_name=str(seed))
        for _ in range(9):
            trial, quality, epoch = study.ask(), scores.random(), 0
            while epoch < 9 and not (epoch and trial.should_prune()):
                epoch += 1
                trial.report(quality, epoch)
            study.tell(trial, quality)
            spent.append(epoch)
    mean = sum(spent) / 6
    assert 9 < mean <= hyperband_epochs(9, 9)


@pytest.mark.parametrize(
    ("request_", "left"),
    [
        pytest.param(TrainRequest(trials=1, ensemble_size=1), 0, id="the only trial"),
        pytest.param(TrainRequest(trials=9, max_epochs=1, ensemble_size=3), 0, id="all trials end"),
        pytest.param(TrainRequest(trials=1, ensemble_size=1, processes=2), 1, id="many processes train anew"),
        pytest.param(TrainRequest(trials=9, ensemble_size=3, cluster="auto"), 3, id="a cluster keeps no model"),
        pytest.param(TrainRequest(search_minutes=5, trials=None, ensemble_size=2), 2, id="trials are not known"),
        pytest.param(
            WithoutSearch.model_validate({"trials": 9, "ensemble_size": 3}), 3, id="without a search all are trained"
        ),
    ],
)
def test_members_that_trials_have_trained_are_not_planned_again(request_: JobRequest, left: int) -> None:
    assert members_to_train(request_) == left


@given(st.integers(1, 200), st.integers(1, 100))
def test_finishers_take_no_more_than_what_hyperband_spends(trials: int, max_epochs: int) -> None:
    finishers = hyperband_finishers(trials, max_epochs)
    assert 1 <= finishers <= trials
    assert finishers * max_epochs <= hyperband_epochs(trials, max_epochs)


@pytest.mark.parametrize(
    ("options", "epochs", "share"),
    [
        pytest.param({"trials": 1, "ensemble_size": 1, "max_epochs": 8}, 4.0, 0.5, id="patience ends the only trial"),
        pytest.param({"trials": 1, "ensemble_size": 1, "max_epochs": 3}, 4.0, 1.0, id="shorter than patience"),
        pytest.param({"search_minutes": 5, "ensemble_size": 3, "max_epochs": 8}, 2.0, 0.25, id="the members alone"),
        pytest.param({"model": "lightgcn", "trials": 1, "max_epochs": 8}, 4.0, 1.0, id="rankings are not modelled"),
    ],
)
def test_expected_share_follows_patience(options: dict[str, Any], epochs: float, share: float) -> None:
    assert expected_share(TrainRequest(**options), epochs) == pytest.approx(share)


def test_trials_that_a_rung_ends_are_not_made_longer_by_patience() -> None:
    request = TrainRequest(trials=9, ensemble_size=1, max_epochs=9)
    by_rungs = expected_share(request, 9.0)
    assert by_rungs == pytest.approx(1.0)
    assert expected_share(request, 3.0) > 1 / 3  # the short trials are as long as before
    assert expected_share(request, 3.0) < by_rungs


def test_the_job_is_tuning_members_and_their_validation(dataset: Dataset) -> None:
    job = job_size(dataset, TrainRequest(trials=1, max_epochs=9, ensemble_size=3))
    assert (job.tuning_epochs, job.final_epochs) == (9, 18)  # the trial is a member
    assert job.epochs == pytest.approx(27 * (1 + 150 / 700 / 3))


def test_a_search_by_its_own_budget_is_sized_by_it(dataset: Dataset) -> None:
    job = job_size(dataset, TrainRequest(search_minutes=30, search_kwh=0.5, max_epochs=4, ensemble_size=2))
    assert (job.tuning_epochs, job.final_epochs) == (0, 4)  # the second member within the search's minutes
    assert (job.tuning_seconds, job.tuning_joules) == (1_800, 1.8e6)
    both = job_size(dataset, TrainRequest(trials=9, search_minutes=30, max_epochs=1))
    assert (both.tuning_epochs, both.tuning_seconds) == (9, None)
