"""Learning from past searches on planted functions, where what helps and what harms is known."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from optuna import Trial

from shunter.engine.config import Execution, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.extensions.meta_learning.points import Domain
from shunter.extensions.meta_learning.portfolio import (
    expected_improvement,
    first_points,
    portfolio,
    sources_of,
    thinned,
)
from shunter.extensions.meta_learning.transfer import Transfer
from shunter.extensions.nas.architecture_space import ArchitectureSpace
from shunter.search.context import PastStudy, SearchContext
from shunter.search.methods.registry import build_method
from shunter.search.protocol import BudgetLeft, Outcome, Parameters
from shunter.search.reward import scores
from shunter.search.space.settings import SearchSpace
from shunter.search.study.storage import record, tell
from tests.engine.synthetic import write_dataset

SPACE = SearchSpace(families=("dlrm", "dnn"), top_widths=(32, 64, 128, 256), bottom_widths=())
DOMAIN = Domain.of(SPACE)
Function = Callable[[Parameters], float]
Trials = tuple[tuple[Parameters, Outcome], ...]


def bowl(best: np.ndarray, slopes: np.ndarray) -> Function:
    """NE that grows with the squared distance from a best point."""
    return lambda point: 0.5 + float((slopes * (DOMAIN.encode([point])[0] - best) ** 2).mean())


def outcome(loss: float) -> Outcome:
    return Outcome(state="complete", validation_ne=loss)


def drawn(function: Function, count: int, random: np.random.Generator) -> Trials:
    return tuple((point, outcome(function(point))) for point in DOMAIN.draw(count, random))


def study(trials: Trials, name: str = "past") -> PastStudy:
    return PastStudy(name=name, trials=trials, distance=1.0)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=200)


@pytest.fixture
def context(dataset: Dataset, tmp_path: Path) -> SearchContext:
    from optuna import create_study

    return SearchContext(
        space=SPACE,
        study=create_study(direction="minimize"),
        dataset=dataset,
        execution=Execution(),
        schedule=Schedule(),
        directory=tmp_path,
    )


def searched(context: SearchContext, function: Function, trials: int, method: str = "transfer") -> Trials:
    """What a method tries, and reaches."""
    from optuna import create_study

    context = replace(context, study=create_study(direction="minimize"), trials=trials)
    asked, found = build_method(method, context), []
    for number in range(trials):
        point = asked.ask(BudgetLeft(trials=trials - number))
        assert point is not None
        reached = outcome(function(point))
        asked.tell(point, reached)
        trial = record(context.study, point)
        SPACE.suggest(trial)
        tell(context.study, trial, reached, None)
        found.append((point, reached))
    return tuple(found)


def lowest(trials: Trials) -> float:
    return min(one.validation_ne for _, one in trials if one.validation_ne is not None)


def planted(seed: int) -> tuple[Function, list[PastStudy], list[PastStudy]]:
    """A function, studies of three that are like it, and the same studies with their outcomes dealt out anew."""
    random = np.random.default_rng(seed)
    columns = DOMAIN.encode(SPACE.defaults()).shape[1]
    best, slopes = random.uniform(0, 1, columns), random.exponential(1, columns)
    related, unrelated = [], []
    for number in range(3):
        near = np.clip(best + random.normal(0, 0.1, columns), 0, 1)
        trials = drawn(bowl(near, slopes * random.uniform(0.5, 1.5, columns)), 20, random)
        related.append(study(trials, f"related {number}"))
        dealt = random.permutation(len(trials))
        shuffled = tuple((point, trials[other][1]) for (point, _), other in zip(trials, dealt, strict=True))
        unrelated.append(study(shuffled, f"unrelated {number}"))
    return bowl(best, slopes), related, unrelated


def test_related_studies_halve_the_trials(context: SearchContext) -> None:
    """On average over planted functions, a third of the trials reaches more than all of a cold search."""
    cold, warm = [], []
    for seed in range(5):
        function, related, _ = planted(seed)
        with_past = replace(context, seed=seed, past=tuple(related))
        cold.append(lowest(searched(replace(context, seed=seed), function, 15, "tpe")))
        warm.append(lowest(searched(with_past, function, 5)))
    assert np.mean(warm) < np.mean(cold)


@pytest.mark.slow
def test_misleading_studies_cost_few_trials(context: SearchContext) -> None:
    """Over eight functions, twelve trials misled by noise reach what eight without a past do."""
    alone, misled = [], []
    for seed in range(8):
        function, _, unrelated = planted(seed)
        alone.append(lowest(searched(replace(context, seed=seed), function, 8)))
        misled.append(lowest(searched(replace(context, seed=seed, past=tuple(unrelated)), function, 12)))
    assert np.mean(misled) < np.mean(alone)


def test_first_points_of_families_come_first_and_then_portfolio_and_surrogate_take_turns(
    context: SearchContext,
) -> None:
    function, related, _ = planted(0)
    context = replace(context, past=tuple(related))
    of_past = portfolio(DOMAIN, sources_of(DOMAIN, related), 2)
    tried = [point for point, _ in searched(context, function, 5)]
    assert tried[:2] == SPACE.defaults()[:2]
    assert [point["family"] for point in tried[:2]] == ["dlrm", "dnn"]
    assert [tried[2], tried[4]] == of_past
    assert tried[3] not in of_past
    alone = [point for point, _ in searched(replace(context, past=()), function, 2)]
    assert alone == SPACE.defaults()[:2]


def test_a_search_that_goes_on_proposes_what_it_would_have(context: SearchContext) -> None:
    function, related, _ = planted(0)
    context = replace(context, past=tuple(related))
    whole = searched(context, function, 8)
    resumed = Transfer(context)
    for point, reached in whole[:6]:
        resumed.tell(point, reached)
    assert resumed.ask(BudgetLeft()) == whole[6][0]
    assert searched(context, function, 8) == whole
    assert searched(replace(context, seed=1), function, 8) != whole


def test_points_under_way_are_not_proposed_again(context: SearchContext) -> None:
    function, related, _ = planted(0)
    for past in ((), tuple(related)):
        method = Transfer(replace(context, past=past))
        for point, reached in drawn(function, 4, np.random.default_rng(0)):
            method.tell(point, reached)
        asked = [method.ask(BudgetLeft()) for _ in range(8)]
        assert all(one is not None and one not in asked[:place] for place, one in enumerate(asked))


def test_without_a_past_the_defaults_come_first(context: SearchContext) -> None:
    method = Transfer(context)
    assert [method.ask(BudgetLeft()) for _ in range(2)] == SPACE.defaults()
    assert method.ask(BudgetLeft()) not in [None, *SPACE.defaults()]


def test_a_space_of_few_points_ends(context: SearchContext) -> None:
    class Two(SearchSpace):
        def suggest(self, trial: Trial) -> Parameters:
            return {**self.default(), "dropout": trial.suggest_categorical("dropout", [0.0, 0.1])}

        def defaults(self) -> list[Parameters]:
            return [{"dropout": 0.0}]

    method = Transfer(replace(context, space=Two()))
    tried = []
    while (point := method.ask(BudgetLeft())) is not None:
        tried.append(point["dropout"])
        method.tell(point, outcome(0.9))
    assert tried == [0.0, 0.1]


def test_the_best_of_the_past_comes_first_and_then_what_it_serves_badly() -> None:
    random = np.random.default_rng(0)
    columns = DOMAIN.encode(SPACE.defaults()).shape[1]
    ends = [np.full(columns, place) for place in (0.2, 0.2, 0.9)]
    past = [study(drawn(bowl(end, np.ones(columns)), 40, random), f"data {place}") for place, end in enumerate(ends)]
    first, second = (DOMAIN.encode([point])[0] for point in portfolio(DOMAIN, sources_of(DOMAIN, past), size=2))
    assert np.linalg.norm(first - ends[0]) < np.linalg.norm(first - ends[2])  # two of three
    assert np.linalg.norm(second - ends[2]) < np.linalg.norm(second - ends[0])


def test_a_past_with_nothing_in_common_leaves_the_defaults() -> None:
    other = study(tuple(({"top_0": 64, "interaction": "dot"}, outcome(0.9 - 0.1 * step)) for step in range(4)))
    assert first_points(SPACE, [other]) == first_points(SPACE, []) == SPACE.defaults()


def test_scores_are_ranks_and_failures_are_last() -> None:
    reached = scores([outcome(0.9), Outcome(state="failed"), outcome(0.5), outcome(77.0)])
    assert np.argsort(reached).tolist() == [2, 0, 1, 3]  # a NE of 77 is worse than none
    assert reached.sum() == pytest.approx(0)
    assert scores([outcome(0.5), outcome(0.5)]).tolist() == [0, 0]


def test_a_cost_moves_the_scores() -> None:
    dear = Outcome(state="complete", validation_ne=0.500, costs={"step_seconds": 10.0})
    cheap = Outcome(state="complete", validation_ne=0.505, costs={"step_seconds": 1.0})
    assert scores([dear, cheap])[0] < scores([dear, cheap])[1]
    assert scores([dear, cheap], "step_seconds")[0] > scores([dear, cheap], "step_seconds")[1]


def test_expected_improvement_by_drawing() -> None:
    random = np.random.default_rng(0)
    for mean, deviation in ((0.0, 1.0), (0.5, 0.2), (-1.0, 0.5)):
        gains = np.maximum(0.1 - random.normal(mean, deviation, 200_000), 0)
        [found] = expected_improvement(np.array([mean]), np.array([deviation]), 0.1)
        assert found == pytest.approx(gains.mean(), abs=0.01)


def test_only_like_data_give_tpe_its_first_points(context: SearchContext) -> None:
    _, related, _ = planted(0)
    left = BudgetLeft()
    far = build_method("tpe", replace(context, past=tuple(related))).ask(left)
    same = [replace(one, distance=0.1) for one in related]
    assert far == SPACE.defaults()[0]
    assert build_method("tpe", replace(context, past=tuple(same))).ask(left) == first_points(SPACE, same)[0]


def test_of_many_trials_the_best_and_some_of_all_others_are_learned_from() -> None:
    ranked = np.random.default_rng(0).permutation(1_000)
    kept = thinned(ranked, 100)
    assert len(set(kept.tolist())) == 100
    assert kept.tolist() == sorted(kept.tolist())
    assert {*ranked[:50].tolist(), ranked[-1]} <= set(kept.tolist())
    assert thinned(ranked, 1_000).tolist() == list(range(1_000))


def test_an_architecture_is_searched_too(dataset: Dataset, context: SearchContext) -> None:
    space = ArchitectureSpace.for_dataset(dataset)
    random = np.random.default_rng(0)
    trials = tuple((point, outcome(random.uniform(0.8, 0.9))) for point in Domain.of(space).draw(8, random))
    method = Transfer(replace(context, space=space, past=(study(trials),)))
    for point, reached in trials:
        method.tell(point, reached)
    asked = method.ask(BudgetLeft())
    assert asked is not None
    assert asked not in [point for point, _ in trials]
    assert space.build(asked)[0].family == "dlrm"


def test_studies_of_one_name_are_one_source() -> None:
    _, related, _ = planted(0)
    first, second = (replace(one, name="same", distance=2.0 - place) for place, one in enumerate(related[:2]))
    [both] = sources_of(DOMAIN, [first, second])
    assert both.distance == 1.0
    assert len(both.points) == len(related[0].trials) + len(related[1].trials)


def test_a_study_too_small_for_the_space_is_left_out() -> None:
    _, [past, *_], _ = planted(0)
    assert len(sources_of(DOMAIN, [past])) == 1
    assert sources_of(DOMAIN, [study(past.trials[:2])]) == ()
