"""Request groups of the training effort: epochs, processes, and the ensemble."""

import math
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from shunter.model_families import PROBLEMS
from shunter.registry import Entry, Registry
from shunter.requests.groups import Group
from shunter.secrets import check_is_path
from shunter.validation import checked_bytes, parse_bytes


class SelectBy(StrEnum):
    """Validation metric of click models or of ranking models, by which models are compared."""

    NE = "ne"
    AUC = "auc"
    LOGLOSS = "logloss"
    NDCG20 = "ndcg@20"
    RECALL20 = "recall@20"


class Repeats(StrEnum):
    """Treatment of (user, item) pairs of an evaluated part that already occur in an earlier part."""

    DROP = "drop"
    KEEP = "keep"


# Baseline families that train within seconds: for click models, and for ranking models.
CLICK_BASELINES = ("lr", "fm")
RANKING_BASELINES = ("popularity", "itemknn", "ease", "ials")
TREES = "gbt"  # baseline of click models that must be requested by name
BASELINES = (*CLICK_BASELINES, TREES, *RANKING_BASELINES)
CLICK_EPOCHS, RANKING_EPOCHS = (PROBLEMS.capability(one, "default_max_epochs") for one in ("clicks", "rankings"))


def parse_task_weights(text: str) -> dict[str, float]:
    """Parse task weights such as `click=1,conversion=0.5`.

    Raises:
        ValueError: A part is no name with a number of at least 0, or a name occurs twice.
    """
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (piece.strip() for piece in part.partition("="))
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if not (name and math.isfinite(weight) and weight >= 0) or name in weights:
            raise ValueError(f"{part.strip()!r} is not a label with a weight: write each label once, such as click=1")
        weights[name] = weight
    return weights


def _checked_task_weights(text: str | None) -> str | None:
    if text is not None:
        parse_task_weights(text)
    return text


def parse_baselines(text: str) -> tuple[str, ...]:
    """Parse baselines such as `lr,fm`, `ease,ials` or `none`.

    Raises:
        ValueError: A part is no baseline.
    """
    names = [part.strip() for part in text.split(",")]
    if names == ["none"]:
        return ()
    for name in names:
        if name not in BASELINES:
            raise ValueError(f"{name!r} is no baseline: use {', '.join(BASELINES)}, several with commas, or none")
    return tuple(dict.fromkeys(names))


def _checked_baselines(text: str | None) -> str | None:
    return None if text is None else ",".join(parse_baselines(text)) or "none"


class Effort(Group, frozen=True, title="Advanced: training"):
    """Maximum length of a training run."""

    max_epochs: int | None = Field(
        default=None,
        ge=1,
        description=f"Maximum number of epochs per setting; if omitted {CLICK_EPOCHS}, or {RANKING_EPOCHS} for a "
        "ranking model.",
    )


class TrainingEffort(Effort, frozen=True, title="Advanced: training"):
    """Training of the chosen settings: duration, number of processes and task weights."""

    processes: int = Field(
        default=1,
        ge=1,
        description="Number of processes that train each ensemble member; with --cluster, of nodes or GPUs.",
    )
    plan: str | None = Field(
        default=None,
        min_length=1,
        description="Plan file of `shunter plan`, which shards the embedding tables of each member.",
    )
    _plan_is_path = field_validator("plan")(check_is_path)
    priority: int = Field(
        default=0,
        ge=-100,
        le=100,
        description="Priority among training jobs that wait for this machine's accelerators; higher goes first.",
    )
    fixed_threads: bool = Field(
        default=False,
        description="Keep the chosen number of threads, so that repeated runs are bitwise equal.",
    )
    task_weights: Annotated[str | None, AfterValidator(_checked_task_weights)] = Field(
        default=None,
        description="Loss weights of several labels, such as click=1,conversion=0.5; other labels have 1.",
    )
    baselines: Annotated[str | None, AfterValidator(_checked_baselines)] = Field(
        default=None,
        description="Baselines to compare with the model, such as lr,fm or none; if omitted, all suitable ones.",
        json_schema_extra={"enum": ["none", *map(",".join, (CLICK_BASELINES, RANKING_BASELINES)), *BASELINES]},
    )
    select_by: SelectBy = Field(
        default=SelectBy.NE,
        description="Validation metric that selects the epoch, trial and champion.",
    )

    repeats: Repeats = Field(
        default=Repeats.DROP,
        description="In a ranking evaluation, drop or keep user-item pairs that occur in earlier rows.",
    )


class EnsembleOf(StrEnum):
    """Source of the members of an ensemble."""

    MEMBERS = "members"
    SNAPSHOTS = "snapshots"
    CHAMPIONS = "champions"


class Distill(StrEnum):
    """Condition for distilling an ensemble into one model."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


# Without a size of the ensemble: how many training runs it is made for, and how many models it takes where more cost no
# training. By hand, of twenty random settings of each of six logs, with two baselines, combined by 2,000 rows: NE on
# others by the best 3 and the best 8, Frappe .533 .530, MovieLens-1M by attributes .902 .897, with ids .755 .749, a
# sample of Criteo .891 .892, two generated logs .906 .906 and .867 .868. Twelve gain as much again on MovieLens alone.
# The best trials of a search that has converged are nearly the same model: by hand, of 359 trials of a sample of
# Criteo, the best 8, all of one family and correlated by .998, reached the .826 of the best alone, and the best of each
# of six families to .823.
TRAINED_MEMBERS, MOST_MEMBERS = 3, 8


# Limits for which the members of a result are changed; named as the option.
RESULT_LIMITS = Registry(
    "limit of the result",
    {"ensemble-memory": Entry(target="shunter.extensions.compression.memory_limit:EnsemblePacker")},
    group="shunter.result_limits",
)


class EnsembleRequest(Group, frozen=True, title="Ensemble"):
    """Models that are combined."""

    ensemble_of: EnsembleOf = Field(
        default=EnsembleOf.MEMBERS,
        description="Source of ensemble members: separate training runs, snapshots of one run, former champions.",
    )

    ensemble_size: int | None = Field(
        default=None,
        ge=1,
        description=f"Maximum ensemble size; 1 turns it off; if omitted {TRAINED_MEMBERS} are trained, up to "
        f"{MOST_MEMBERS} combined.",
    )
    max_predict_milliseconds: float | None = Field(
        default=None,
        gt=0,
        description="Maximum time of the registered model to predict one row, in milliseconds.",
    )
    max_predict_joules: float | None = Field(
        default=None,
        gt=0,
        description="Maximum energy of the registered model to predict one row, in joules.",
    )
    ensemble_memory: Annotated[str | None, AfterValidator(checked_bytes)] = Field(
        default=None,
        description="Maximum size of the registered weights, such as 4MiB; members are compressed to fit.",
    )
    memory_error_rate: float | None = Field(
        default=None,
        gt=0,
        le=0.1,
        description="With --ensemble-memory: expected share of flipped bits in the serving memory, such as 1e-4.",
    )
    distill: Distill = Field(
        default=Distill.AUTO,
        description="Whether a model distilled from the ensemble competes with the ensemble.",
    )

    @property
    def trained(self) -> int:
        """Return the number of members to train; trials of a search may have trained some of them already."""
        return self.ensemble_size or TRAINED_MEMBERS

    @property
    def most(self) -> int:
        """Return the largest number of models in the ensemble."""
        return self.ensemble_size or MOST_MEMBERS

    def check_is_installed(self) -> None:
        """Raise `MissingExtensionError` if `ensemble_memory` is set but its extension is not installed."""
        if self.ensemble_memory is not None:
            RESULT_LIMITS.entry("ensemble-memory")

    @property
    def memory_bytes(self) -> int | None:
        """Return the maximum size of the registered weights in bytes; None for no limit."""
        return None if self.ensemble_memory is None else parse_bytes(self.ensemble_memory)


class IndexChoice(StrEnum):
    """Method of finding the best items for a user."""

    AUTO = "auto"
    EXACT = "exact"
    APPROXIMATE = "approximate"
