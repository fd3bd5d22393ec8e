"""Options that suit only some models, exclude each other or need a partner."""

from typing import Any

import pytest
from pydantic import ValidationError

from shunter.model_families import model_names
from shunter.requests import Request, SelectRequest, TrainRequest
from shunter.requests.support import (
    CHAMPIONS,
    CONFLICTS,
    EMBEDDING_MEMORY,
    NEEDS,
    PARTNERS,
    Conflict,
    ModelTrait,
    Need,
    Partner,
    UnsuitableOptionError,
    Use,
    excludes,
    traits_of,
)

# A value of each option of which any use counts.
VALUES: dict[str, Any] = {
    "cluster": "auto",
    "cluster_resource": "gpu",
    "embedding_memory": "1GiB",
    "ensemble_memory": "1MiB",
    "loss": "focal",
    "max_ne": 0.9,
    "max_predict_joules": 1.0,
    "max_predict_milliseconds": 1.0,
    "memory_error_rate": 1e-4,
    "min_auc": 0.7,
    "min_auc_confidence": 0.9,
    "min_auc_probability": 0.9,
    "plan": "plan.yaml",
    "processes": 2,
    "towers": 2,
}


def stated(*uses: Use) -> dict[str, Any]:
    """Return options of a request that uses these."""
    values = {use.option: use.value or VALUES[use.option] for use in uses}
    return {name: [value] if name == "set" else value for name, value in values.items()}


def fault(kind: type[Request], options: dict[str, Any]) -> UnsuitableOptionError:
    """Return the typed reason for which a request is refused."""
    with pytest.raises(ValidationError) as caught:
        kind(**options)
    found = caught.value.errors()[0].get("ctx", {})["error"]
    assert isinstance(found, UnsuitableOptionError)
    return found


def partners_of(uses: tuple[Use, ...]) -> tuple[Use, ...]:
    """Return the uses, and of each that needs a partner the first one."""
    return (*uses, *(one.partners[0] for one in PARTNERS if one.use in uses))


@pytest.mark.parametrize("need", NEEDS, ids=lambda need: f"{need.use} {need.trait}")
def test_an_option_is_for_the_models_that_have_the_trait_alone(need: Need) -> None:
    options = stated(*partners_of((need.use,)))
    for model in model_names():
        if need.trait in traits_of(model):
            TrainRequest(model=model, **options)
        else:
            assert need.trait not in traits_of(model)
            fault(TrainRequest, {"model": model, **options})
    lacking = next(model for model in model_names() if need.trait not in traits_of(model))
    assert fault(TrainRequest, {"model": lacking, **stated(need.use)}).trait is not None


@pytest.mark.parametrize("conflict", CONFLICTS, ids=lambda conflict: " ".join(map(str, conflict.uses)))
def test_options_that_contradict_each_other_are_refused_together_and_taken_one_by_one(conflict: Conflict) -> None:
    assert fault(TrainRequest, {"model": "dlrm", **stated(*conflict.uses)}).uses == conflict.uses
    for left_out in conflict.uses:
        rest = tuple(use for use in conflict.uses if use != left_out)
        assert excludes(left_out, TrainRequest(model="dlrm", **stated(*rest)).stated())


@pytest.mark.parametrize("partner", PARTNERS, ids=lambda partner: str(partner.use))
def test_an_option_without_effect_alone_names_its_partners(partner: Partner) -> None:
    assert fault(TrainRequest, stated(partner.use)).partners == partner.partners
    for one in partner.partners:
        TrainRequest(**stated(partner.use, one))


def test_every_request_that_has_the_options_is_checked() -> None:
    assert fault(SelectRequest, {"towers": 2}).uses == (Use("towers"),)
    assert fault(SelectRequest, {"model": "ease", "min_auc": 0.7}).uses == (Use("min_auc"),)


def test_defaults_state_nothing_and_exclude_nothing() -> None:
    assert TrainRequest().stated() == {"search_space": "settings"}
    assert not excludes(EMBEDDING_MEMORY, TrainRequest(trials=3).stated())
    assert not CHAMPIONS.is_in(TrainRequest(ensemble_size=2).stated())


def test_a_method_that_implies_a_search_space_is_judged_by_it() -> None:
    assert fault(TrainRequest, {"model": "dcnv2", "search_method": "dnas"}).uses == (
        Use("search_space", "architecture"),
    )


@pytest.mark.parametrize("loss", ["mse", "huber:2", "ordinal"])
def test_an_option_that_needs_a_probability_does_not_go_with_a_loss_of_numbers(loss: str) -> None:
    TrainRequest(loss=loss)
    for need in (need for need in NEEDS if need.trait is ModelTrait.PROBABILITY):
        found = fault(TrainRequest, {"loss": loss, **stated(need.use)})
        assert (found.uses, found.trait) == ((need.use, Use("loss")), ModelTrait.PROBABILITY)
        TrainRequest(loss="focal", **stated(*partners_of((need.use,))))
