"""The default search, where data of another kind was searched before."""

from dataclasses import replace

import pytest

from shunter.extensions.meta_learning.transfer import TAUGHT_TRIALS, Taught, Transfer, is_taught
from shunter.extensions.nas.architecture_space import ArchitectureSpace
from shunter.requests import SearchRequest
from shunter.search.context import PastStudy, SearchContext
from shunter.search.methods.registry import build_method
from shunter.search.methods.samplers import Sampled
from shunter.search.protocol import Outcome
from shunter.search.space.settings import SearchSpace
from tests.extensions.meta_learning.test_transfer import SPACE, context, dataset, planted, searched

__all__ = ["context", "dataset"]  # fixtures

DEFAULT = SearchRequest().search_method


@pytest.fixture
def taught(context: SearchContext) -> SearchContext:
    return replace(context, past=tuple(planted(0)[1]))


def test_the_default_search_begins_as_transfer_does_and_goes_on_as_the_estimator(taught: SearchContext) -> None:
    function, trials = planted(0)[0], TAUGHT_TRIALS + 2
    found = searched(taught, function, trials, DEFAULT)
    assert found[:TAUGHT_TRIALS] == searched(taught, function, TAUGHT_TRIALS)
    assert found[0][0] == SPACE.defaults()[0]
    assert found[TAUGHT_TRIALS:] != searched(taught, function, trials)[TAUGHT_TRIALS:]


def test_only_a_past_of_other_data_that_tells_of_the_space_is_taught(taught: SearchContext) -> None:
    assert is_taught(taught)
    assert type(build_method("transfer", taught)) is Transfer
    like = replace(taught, past=tuple(replace(study, distance=0.1) for study in taught.past))
    few = replace(taught, past=(PastStudy(name="few", trials=taught.past[0].trials[:2], distance=1.0),))
    other = tuple(({"top_0": 64, "interaction": "dot"}, Outcome(state="complete", validation_ne=0.9)) for _ in range(9))
    foreign = replace(taught, past=(PastStudy(name="other", trials=other, distance=1.0),))
    assert not any(is_taught(one) for one in (replace(taught, past=()), like, few, foreign))


def test_families_that_the_past_has_raced_are_not_raced_again(taught: SearchContext) -> None:
    space = SearchSpace(families=("dlrm", "dnn", "deepfm"), top_widths=(32, 64), bottom_widths=())
    long = replace(taught.dataset.splits["train"], rows=1_000_000)
    splits = {**taught.dataset.splits, "train": long}
    several = replace(taught, space=space, dataset=replace(taught.dataset, splits=splits), trials=20)
    cold = build_method(DEFAULT, replace(several, past=()))
    assert isinstance(cold, Sampled)
    assert cold.comparison is not None
    assert isinstance(build_method(DEFAULT, several), Taught)
    near = tuple(replace(study, distance=0.1) for study in several.past)
    begun = build_method(DEFAULT, replace(several, past=near))
    assert isinstance(begun, Sampled)
    assert begun.comparison is None
    assert not is_taught(replace(several, space=ArchitectureSpace.for_dataset(taught.dataset)))
