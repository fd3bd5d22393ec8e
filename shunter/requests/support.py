"""Options that suit only some models, exclude each other or need another option: three tables and their check.

The tables are plain data about options by name; the support matrix of the documentation shows them. A check that
compares two values, such as a limit with a price, belongs to the request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shunter.label_losses import is_for_numbers
from shunter.model_families import AUTO, MODEL_FAMILIES, is_ranking, is_solved


class ModelTrait(StrEnum):
    """Property of the requested model that an option needs, as a phrase for messages."""

    CLICKS = "predicts clicks"
    PROBABILITY = "predicts a probability"
    RANKING = "ranks items"
    ONE_FAMILY = "is one family of click models"
    STEPS = "is trained in steps"
    ARCHITECTURES = "has an architecture to search"
    TOWERS = "has towers"


def traits_of(model: str, loss: str | None = None) -> frozenset[ModelTrait]:
    """Return the properties of a model by its name and its loss; an uninstalled model counts as a click model."""
    if is_ranking(model):
        return frozenset({ModelTrait.RANKING} | (set() if is_solved(model) else {ModelTrait.STEPS}))
    traits = {ModelTrait.CLICKS, ModelTrait.STEPS}
    if not is_for_numbers(loss):
        traits.add(ModelTrait.PROBABILITY)
    if model != AUTO:
        traits.add(ModelTrait.ONE_FAMILY)
    stated = MODEL_FAMILIES.stated(model)
    if stated.get("has_architecture_space"):
        traits.add(ModelTrait.ARCHITECTURES)
    if stated.get("has_towers"):
        traits.add(ModelTrait.TOWERS)
    return frozenset(traits)


@dataclass(frozen=True)
class Use:
    """Use of an option: with any value other than its default, or with one particular value.

    Attributes:
        option: Name of the option in a request.
        value: Value that counts as use; None if every value other than the default does.
    """

    option: str
    value: str | None = None

    def __str__(self) -> str:
        """Return the option as on the command line, followed by its value if the use is limited to one value."""
        flag = "--" + self.option.replace("_", "-")
        return flag if self.value is None else f"{flag} {self.value}"

    def is_in(self, given: Mapping[str, Any]) -> bool:
        """Return True if `given`, the values that a request states, contains this use."""
        if self.option not in given or self.value is None:
            return self.option in given
        stated = given[self.option]
        values = stated if isinstance(stated, list) else str(stated).split(",")
        return self.value in values


@dataclass(frozen=True)
class Need:
    """Option that works only with some models."""

    use: Use
    trait: ModelTrait


@dataclass(frozen=True)
class Conflict:
    """Options that cannot all be used together.

    Attributes:
        uses: Options; any proper subset of them is allowed.
        because: Reason, as a clause.
    """

    uses: tuple[Use, ...]
    because: str


@dataclass(frozen=True)
class Partner:
    """Option that has no effect unless at least one of its partner options is used too."""

    use: Use
    partners: tuple[Use, ...]


LOSS = Use("loss")
CLUSTER, PLAN, PROCESSES = Use("cluster"), Use("plan"), Use("processes")
EMBEDDING_MEMORY, ENSEMBLE_MEMORY = Use("embedding_memory"), Use("ensemble_memory")
WIDE, ARCHITECTURE = Use("search_space", "wide"), Use("search_space", "architecture")
SNAPSHOTS, CHAMPIONS = Use("ensemble_of", "snapshots"), Use("ensemble_of", "champions")
DISTILL, HALF_TABLES = Use("distill", "always"), Use("set", "table_precision=fp16")

NEEDS = (
    *(
        Need(use, ModelTrait.CLICKS)
        for use in (
            *map(Use, ("max_predict_milliseconds", "max_predict_joules", "loss")),
            *(PROCESSES, EMBEDDING_MEMORY, SNAPSHOTS, CHAMPIONS),
        )
    ),
    *(
        Need(use, ModelTrait.PROBABILITY)
        for use in (
            *map(Use, ("min_auc", "min_auc_confidence", "max_ne")),
            *(Use("select_by", "auc"), Use("select_by", "logloss"), ENSEMBLE_MEMORY, DISTILL),
            Use("baselines", "gbt"),
        )
    ),
    *(
        Need(use, ModelTrait.RANKING)
        for use in (Use("select_by", "ndcg@20"), Use("select_by", "recall@20"), Use("repeats", "keep"))
    ),
    Need(PLAN, ModelTrait.ONE_FAMILY),
    Need(CLUSTER, ModelTrait.STEPS),
    Need(ARCHITECTURE, ModelTrait.ARCHITECTURES),
    Need(Use("towers"), ModelTrait.TOWERS),
)
IN_MEMORY = "all embedding tables must then be in memory"
ONE_PROCESS = "snapshots and distillation work in one process on this machine"
ONE_TABLE_WIDTH = "tables in fp16 have one width and are whole in one process"
CONFLICTS = (
    *(Conflict((EMBEDDING_MEMORY, use), IN_MEMORY) for use in (PLAN, WIDE, ARCHITECTURE, SNAPSHOTS, HALF_TABLES)),
    Conflict((EMBEDDING_MEMORY, ENSEMBLE_MEMORY), IN_MEMORY),
    Conflict((EMBEDDING_MEMORY, PROCESSES, CLUSTER), IN_MEMORY),
    *(Conflict((HALF_TABLES, use), ONE_TABLE_WIDTH) for use in (PROCESSES, PLAN, ARCHITECTURE, ENSEMBLE_MEMORY)),
    *(Conflict((SNAPSHOTS, use), ONE_PROCESS) for use in (CLUSTER, PROCESSES, PLAN)),
    *(Conflict((Use("search_method", name), LOSS), "it learns by the log loss") for name in ("dnas", "rl")),
    Conflict((DISTILL, CLUSTER), ONE_PROCESS),
    Conflict((DISTILL, Use("ensemble_size", "1")), "a single model is no ensemble to learn from"),
    Conflict((PLAN, PROCESSES), "the plan sets the number of processes"),
    *(Conflict((PLAN, use), "a plan divides the tables of one architecture") for use in (WIDE, ARCHITECTURE)),
)
PARTNERS = (
    Partner(Use("min_auc_probability"), (Use("min_auc"),)),
    Partner(Use("min_auc_confidence"), (Use("min_auc"), Use("max_ne"))),
    Partner(Use("memory_error_rate"), (ENSEMBLE_MEMORY,)),
    Partner(Use("cluster_resource"), (CLUSTER,)),
)


class UnsuitableOptionError(ValueError):
    """An option does not suit the model or another option of the same request.

    Attributes:
        uses: Options that contradict each other; a single option if it contradicts the model or lacks a partner.
        trait: Property that the model lacks; None if the model is not the cause.
        partners: Alternative options; one of them is required.
    """

    def __init__(
        self, message: str, uses: tuple[Use, ...], trait: ModelTrait | None = None, partners: tuple[Use, ...] = ()
    ) -> None:
        super().__init__(message)
        self.uses, self.trait, self.partners = uses, trait, partners


def check_support(model: str | None, given: Mapping[str, Any]) -> None:
    """Check the options of a request against the three tables.

    Args:
        model: Requested model; None if the request is for no model.
        given: Values of the options that differ from their defaults, by name.

    Raises:
        UnsuitableOptionError: An option does not suit the model or another option; only the first one is reported.
    """
    if model is not None:
        _check_needs(model, given)
    for conflict in CONFLICTS:
        if all(use.is_in(given) for use in conflict.uses):
            first, *others = (_stated(use, given) for use in conflict.uses)
            together = " and ".join(others)
            message = f"{first} does not go with {together}, since {conflict.because}: leave one of them out"
            raise UnsuitableOptionError(message, conflict.uses)
    for one in PARTNERS:
        if one.use.is_in(given) and not any(use.is_in(given) for use in one.partners):
            message = f"{_stated(one.use, given)} has no effect without {' or '.join(map(str, one.partners))}"
            raise UnsuitableOptionError(message, (one.use,), partners=one.partners)


def excludes(use: Use, given: Mapping[str, Any]) -> bool:
    """Return True if the options of a request exclude a use of another option."""
    others = ({*conflict.uses} - {use} for conflict in CONFLICTS if use in conflict.uses)
    return any(all(one.is_in(given) for one in rest) for rest in others)


def _check_needs(model: str, given: Mapping[str, Any]) -> None:
    loss = given.get("loss")
    traits = traits_of(model, loss)
    for need in NEEDS:
        if need.trait not in traits and need.use.is_in(given):
            if need.trait in traits_of(model):
                message = f"{_stated(need.use, given)} needs a model that {need.trait}, unlike one of --loss {loss}"
                raise UnsuitableOptionError(f"{message}: leave one of them out", (need.use, LOSS), need.trait)
            models = [name for name in MODEL_FAMILIES.names if need.trait in traits_of(name)]
            instead = f", or use --model {models[0]}" if len(models) == 1 else ""
            needs = f"{_stated(need.use, given)} needs a model that {need.trait}, unlike {model}"
            raise UnsuitableOptionError(f"{needs}: leave it out{instead}", (need.use,), need.trait)


def _stated(use: Use, given: Mapping[str, Any]) -> str:
    """Return the used option as on the command line, with the value that the request gives it."""
    value = given[use.option]
    return str(use) if use.value is not None or isinstance(value, list) else f"{use} {value}"
