"""Workload and size of a training job, counted from model, data and request."""

import math
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any

from shunter.engine.config import Hyperparameters
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import mean_ids_per_sample
from shunter.engine.profiling.workload import workload_of
from shunter.hardware.types import Workload
from shunter.hardware.units import JOULES_PER_KWH
from shunter.model_families import PROBLEMS, is_ranking, is_solved, problem_of
from shunter.models.counting import count_model
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.graph import GraphSpec, graph_spec, solved_model
from shunter.models.registry import model_spec
from shunter.models.spec import ModelSpec
from shunter.planner.job_size import JobSize
from shunter.requests import EnsembleOf, JobRequest, SelectRequest, TrainRequest
from shunter.requests.support import ModelTrait, traits_of

# Hyperband's reduction factor in tuning: one in three settings continues to three times the epochs.
REDUCTION_FACTOR = 3
# Cost of a forward pass relative to a training step: a layer's backward pass is two products, its forward pass one.
EVALUATION_SHARE = 1 / 3


def describe(
    dataset: Dataset,
    spec: ModelSpec | GraphSpec,
    hyperparameters: Hyperparameters = Hyperparameters(),  # noqa: B008 - frozen
) -> Workload:
    """Return the demand of one sample of `dataset` in the model `spec`; in graph models a sample is a positive row.

    Args:
        dataset: Data to train on.
        spec: Architecture of the model.
        hyperparameters: Settings, for the size of the optimiser's state.

    Raises:
        RequestError: the model family is unknown, or cannot take these features.
        DataError: the graph of a graph model has no edge.
    """
    return PROBLEMS.load_part(problem_of(spec.family), "workload")(dataset, spec, hyperparameters)


def describe_clicks(dataset: Dataset, spec: ModelSpec, hyperparameters: Hyperparameters) -> Workload:
    """Return the demand of a click model."""
    ids_per_sample = mean_ids_per_sample(dataset)
    counts = count_model(
        spec, dataset.features, ids_per_sample=ids_per_sample, dense_optimizer=hyperparameters.dense_optimizer
    )
    return workload_of(
        counts,
        train_samples=dataset.splits["train"].rows,
        access_curve=access_curve(dataset, spec, ids_per_sample),
        mapped_bytes=sum(path.stat().st_size for path in dataset.directory.glob("*.npy")),
    )


def spec_of(
    family: str, towers: int | None = None, overrides: Mapping[str, Any] | None = None
) -> ModelSpec | GraphSpec:
    """Return the architecture for which a placement is chosen: the family's defaults with the user's overrides."""
    if is_ranking(family):
        return graph_spec(family, **(overrides or {}))
    own = {} if towers is None else {"towers": towers}
    return model_spec(family, **own, **(overrides or {}))


def access_curve(
    dataset: Dataset, spec: ModelSpec, ids_per_sample: Mapping[str, float]
) -> tuple[tuple[float, float], ...]:
    """Return the skew of the lookups over all tables: (bytes of the most frequent rows, share of lookups), ascending.

    Each field's own curve gives pieces of rows with about equal frequency. The pieces are sorted by lookups per byte,
    most frequent first, which gives the hit rate of a cache of each size. A field without a curve counts as uniform. If
    ids share rows, the curve of the ids is used for the rows.

    Args:
        dataset: Data with the curves of its fields.
        spec: Architecture, with rows and width of each table.
        ids_per_sample: Mean number of ids of each field.
    """
    tables = iter(spec.tables(dataset.features))
    curves = {field.name: field.access_curve for field in dataset.fields}
    pieces: list[tuple[float, float]] = []  # (bytes, lookups a sample) of each piece of each field
    lookups_of: dict[str, float] = {}
    for field in dataset.features.categorical:  # a history is looked up in its items' table
        table = field.table or field.name
        lookups_of[table] = lookups_of.get(table, 0.0) + ids_per_sample[field.name]
    for field in dataset.features.categorical:
        if field.table is not None:
            continue
        size = EmbeddingTables.count_bytes([next(tables)])
        table_bytes = size.weights + size.optimizer
        points = curves.get(field.name) or ((1.0, 1.0),)
        for (ids_before, share_before), (ids, share) in pairwise(((0.0, 0.0), *points)):
            if ids > ids_before:
                pieces.append(((ids - ids_before) * table_bytes, (share - share_before) * lookups_of[field.name]))
    pieces.sort(key=lambda piece: piece[1] / piece[0], reverse=True)
    sizes, lookups = zip(*pieces, strict=True)
    total = sum(lookups) or 1.0
    return tuple((size, served / total) for size, served in zip(accumulate(sizes), accumulate(lookups), strict=True))


def job_size(dataset: Dataset, request: JobRequest) -> JobSize:
    """Return the size of the whole job: trials or search budget, and members that train for `max_epochs` each.

    Trials that are expected to finish become members without a further training run. The epochs of the trials are those
    of successive halving (`hyperband_epochs`). A search without a number of trials counts by its time or energy budget,
    which it uses up on any machine. With `search_minutes`, the search and its members share this time.
    """
    train, validation = dataset.splits["train"].rows, dataset.splits["validation"].rows
    if is_ranking(request.model):  # all trials as if each finished, plus a final training
        share = EVALUATION_SHARE * validation / train
        is_one_pass = is_solved(request.model) and not solved_model(request.model).is_iterative
        passes = 1 if is_one_pass else request.longest_epochs
        trials = request.search.most_trials
        return JobSize(
            tuning_epochs=(trials or 0) * passes,
            final_epochs=passes,
            evaluation_share=share,
            tuning_seconds=_search_seconds(request) if trials is None else None,
            tuning_joules=_search_joules(request) if trials is None else None,
        )
    members = members_to_train(request)
    if request.search.search_minutes is not None:  # seeds of the best setting are trained within them
        members = min(members, 1)
    final_epochs = members * request.longest_epochs
    evaluation_share = EVALUATION_SHARE * validation / train
    if request.search.most_trials is None:
        return JobSize(
            tuning_epochs=0,
            final_epochs=final_epochs,
            evaluation_share=evaluation_share,
            tuning_seconds=_search_seconds(request),
            tuning_joules=_search_joules(request),
        )
    return JobSize(
        tuning_epochs=hyperband_epochs(request.search.most_trials, request.longest_epochs),
        final_epochs=final_epochs,
        evaluation_share=evaluation_share,
    )


def expected_share(request: JobRequest, training_epochs: float) -> float:
    """Return the epochs that a job is expected to train, as a share of the planned epochs.

    A trial that does not pass a rung of Hyperband ends there. Other trials, and members, end after `training_epochs` or
    the largest permitted number of epochs. For ranking models the share is 1.

    Args:
        request: Job.
        training_epochs: Expected epochs of a training run that only patience ends.
    """
    if ModelTrait.CLICKS not in traits_of(request.model):
        return 1.0
    most, trials = request.longest_epochs, request.search.most_trials
    length, members = min(training_epochs, most), members_to_train(request)
    planned, expected = float(members * most), members * length
    if trials is not None:
        planned += hyperband_epochs(trials, most)
        expected += min(
            trials * length,
            sum(
                settings * max(0.0, min(end, length) - begin)
                for stages in _brackets(trials, most)
                for settings, begin, end in stages
            ),
        )
    return min(1.0, expected / planned) if planned else 1.0


def _search_seconds(request: JobRequest) -> float | None:
    minutes = request.search.search_minutes
    return None if minutes is None else 60 * minutes


def _search_joules(request: JobRequest) -> float | None:
    kwh = request.search.search_kwh
    return None if kwh is None else kwh * JOULES_PER_KWH


def trainings_of(request: JobRequest) -> int:
    """Return the number of training runs of a job: trials, if their number is known, and members."""
    members = int(PROBLEMS.capability(problem_of(request.model), "members")) or members_to_train(request)
    return (request.search.most_trials or 0) + members


def members_to_train(request: JobRequest) -> int:
    """Return the number of ensemble members that no trial is expected to have trained fully."""
    if request.ensemble.ensemble_of is not EnsembleOf.MEMBERS:
        return 1
    members, search = request.ensemble.trained, request.search
    on_cluster = isinstance(request, TrainRequest | SelectRequest) and request.nodes.cluster is not None
    by_many = isinstance(request, TrainRequest) and (
        request.training.processes > 1 or request.training.plan is not None
    )
    if not request.searches or on_cluster or by_many or search.most_trials is None:
        return members
    return members - min(members, hyperband_finishers(search.most_trials, request.longest_epochs))


def hyperband_epochs(trials: int, max_epochs: int) -> int:
    """Return the epochs that Hyperband spends on `trials` settings of at most `max_epochs`, rounded up at every rung.

    Li et al., "Hyperband", JMLR 18, 2018, in the asynchronous form that Optuna runs. The brackets share the settings;
    bracket b has its first rung after 3^b epochs and each next rung at three times as many. A setting passes a rung if
    it is in the best third of the settings that have reached the rung so far, and the first to arrive always passes. In
    random order the m-th setting therefore passes with probability max(1, floor(m / 3)) / m, which is more than one
    third. The result is above the mean but no bound: settings that arrive from worst to best all pass, and the budget
    covers that case.

    On large data the search also compares settings within the first epoch (`shunter.search.study.halving`), which only
    reduces the epochs.
    """
    total = sum(settings * (end - begin) for stages in _brackets(trials, max_epochs) for settings, begin, end in stages)
    return min(total, trials * max_epochs)


def hyperband_finishers(trials: int, max_epochs: int) -> int:
    """Return the number of settings, at least one, that Hyperband trains fully on average; see `hyperband_epochs`."""
    return min(trials, sum(stages[-1][0] for stages in _brackets(trials, max_epochs)))


def _brackets(trials: int, max_epochs: int) -> list[list[tuple[int, int, int]]]:
    """Return the stages of each bracket: (number of settings, first epoch, last epoch)."""
    count = 1 + math.floor(math.log(max_epochs, REDUCTION_FACTOR) + 1e-9)
    brackets = []
    for bracket in range(count):
        stages: list[tuple[int, int, int]] = []
        settings, reached, rung = math.ceil(trials / count), 0, REDUCTION_FACTOR**bracket
        while reached < max_epochs:
            epochs = min(rung, max_epochs)
            stages.append((settings, reached, epochs))
            settings, reached, rung = _passing(settings), epochs, rung * REDUCTION_FACTOR
        brackets.append(stages)
    return brackets


def _passing(settings: int) -> int:
    """Return the expected number of settings that pass a rung, of those that reach it, rounded up."""
    return math.ceil(sum(max(1, count // REDUCTION_FACTOR) / count for count in range(1, settings + 1)) - 1e-9)
