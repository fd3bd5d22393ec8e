"""Which baselines a request asks for, by its model."""

import pytest
from pydantic import ValidationError

from shunter.requests import TrainRequest, baselines_of
from shunter.requests.effort import RANKING_BASELINES


def test_if_omitted_all_that_suit_the_model_are_meant() -> None:
    assert baselines_of(TrainRequest()) == ("lr", "fm")
    assert baselines_of(TrainRequest(model="lightgcn")) == RANKING_BASELINES
    assert baselines_of(TrainRequest(model="ease", baselines="ials, popularity")) == ("ials", "popularity")
    assert baselines_of(TrainRequest(model="sage", baselines="none")) == ()


@pytest.mark.parametrize(
    ("model", "baselines", "message"),
    [
        ("lightgcn", "lr", "the baseline lr cannot be compared with --model lightgcn: use popularity, itemknn"),
        ("dlrm", "fm,ease", "the baseline ease cannot be compared with --model dlrm: use lr, fm"),
        ("dlrm", "gbdt", "'gbdt' is no baseline: use lr, fm, gbt, popularity"),
    ],
)
def test_what_cannot_be_compared_with_the_model_is_refused(model: str, baselines: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrainRequest(model=model, baselines=baselines)
