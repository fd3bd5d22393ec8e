"""Request groups of the training effort: epochs, processes, and the ensemble."""

import math
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from shunter.requests.groups import Group
from shunter.requests.sizes import checked_bytes, parse_bytes


class SelectBy(StrEnum):
    """Validation metric by which models are compared: of clicks, or of a ranking."""

    NE = "ne"
    AUC = "auc"
    LOGLOSS = "logloss"
    NDCG20 = "ndcg@20"
    RECALL20 = "recall@20"


class Repeats(StrEnum):
    """Treatment of (user, item) pairs of an evaluated part that already occur in an earlier part."""

    DROP = "drop"
    KEEP = "keep"


RANKING_FIGURES = (SelectBy.NDCG20, SelectBy.RECALL20)
# Baseline families that train within seconds: for click models, and for ranking models.
CLICK_BASELINES = ("lr", "fm")
RANKING_BASELINES = ("popularity", "itemknn", "ease", "ials")
TREES = "gbt"  # baseline of click models that must be requested by name
BASELINES = (*CLICK_BASELINES, TREES, *RANKING_BASELINES)
CLICK_EPOCHS, RANKING_EPOCHS = 9, 40  # default of the longest training


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
            raise ValueError(f"{part.strip()!r} is no weight of a label: write each once, such as click=1")
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
    """How long one setting is trained at most."""

    max_epochs: int | None = Field(
        default=None,
        ge=1,
        description=f"Longest training of one setting, in passes over the training part; if omitted {CLICK_EPOCHS}, or "
        f"{RANKING_EPOCHS} of a model that ranks items, which ends earlier where that helps no more.",
    )


class TrainingEffort(Effort, frozen=True, title="Advanced: training"):
    """How long, by how many processes and with which weights the chosen settings are trained."""

    processes: int = Field(
        default=1,
        ge=1,
        description="Processes that train each member of the ensemble together, with --cluster on as many of its nodes "
        "or GPUs; an interrupted run may change it.",
    )
    plan: str | None = Field(
        default=None,
        min_length=1,
        description="Plan that `shunter plan` has written: the tables of each member are divided so, over as many "
        "processes as it has devices.",
    )
    priority: int = Field(
        default=0,
        ge=-100,
        le=100,
        description="Over other trainings that wait for accelerators of this machine: a higher one goes first.",
    )
    fixed_threads: bool = Field(
        default=False,
        description="Keep the threads that were chosen, whatever the steps take: repetitions are then bitwise equal.",
    )
    task_weights: Annotated[str | None, AfterValidator(_checked_task_weights)] = Field(
        default=None,
        description="Weights of several labels in the loss, such as click=1,conversion=0.5; 1 for each that is not "
        "named.",
    )
    baselines: Annotated[str | None, AfterValidator(_checked_baselines)] = Field(
        default=None,
        description="Baselines that are trained first and compete with the model, with commas between them, or none: "
        "lr (logistic regression) and fm (factorisation machine), or of a graph model popularity, itemknn, ease and "
        "ials; if omitted, all of these that suit the model. gbt (gradient-boosted trees) is compared with a model of "
        "clicks and is no member.",
        json_schema_extra={"enum": ["none", *map(",".join, (CLICK_BASELINES, RANKING_BASELINES)), *BASELINES]},
    )
    select_by: SelectBy = Field(
        default=SelectBy.NE,
        description="Figure on validation by which epoch, trial and champion are chosen: ne (normalised entropy, the "
        "lowest), auc (the highest) or logloss; of a graph model ndcg@20, which it is if omitted, or recall@20.",
    )

    repeats: Repeats = Field(
        default=Repeats.DROP,
        description="Whether a graph model is judged on (user, item) pairs of earlier rows: drop (new pairs are to be "
        "found among unseen items) or keep (all pairs among all items).",
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


# Without a size of the ensemble: how many trainings it is made for, and how many models it takes where more cost no
# training. By hand, of twenty random settings of each of six logs, with two baselines, combined by 2,000 rows: NE on
# others by the best 3 and the best 8, Frappe .533 .530, MovieLens-1M by attributes .902 .897, with ids .755 .749, a
# sample of Criteo .891 .892, two generated logs .906 .906 and .867 .868. Twelve gain as much again on MovieLens alone.
# Of a search that has converged the best are the same model again: by hand, of 359 trials of a sample of Criteo, the
# best 8, all of one family and correlated by .998, came to the .826 of the best alone, the best of each of six families
# to .823.
TRAINED_MEMBERS, MOST_MEMBERS = 3, 8


class EnsembleRequest(Group, frozen=True, title="Ensemble"):
    """The models that are combined."""

    ensemble_of: EnsembleOf = Field(
        default=EnsembleOf.MEMBERS,
        description="What is combined: members (trainings of the best settings), snapshots (the weights at the ends "
        "of the cycles of one training along cosines, for the price of that training), or champions (one training, and "
        "the members of the versions of --register-as that were champions on the same data).",
    )

    ensemble_size: int | None = Field(
        default=None,
        ge=1,
        description=f"Most models in the ensemble; 1 switches it off; if omitted, {TRAINED_MEMBERS} are trained, and "
        f"trials that came to their end join them, {MOST_MEMBERS} in all at most.",
    )
    max_predict_milliseconds: float | None = Field(
        default=None,
        gt=0,
        description="Longest prediction of one row by what is registered, in milliseconds as they are measured of each "
        "member: slower ones are left out, and no more are combined than keep it together.",
    )
    max_predict_joules: float | None = Field(
        default=None,
        gt=0,
        description="Most energy of a prediction of one row by what is registered, in joules, measured or estimated of "
        "each member as of a training, and kept as --max-predict-milliseconds is.",
    )
    ensemble_memory: Annotated[str | None, AfterValidator(checked_bytes)] = Field(
        default=None,
        description="Most bytes of the weights that are registered, such as 4MiB: where they take more, each member is "
        "stored in fewer bits, with the rows used most and the strongest hidden units, and as many members are kept as "
        "help within these bytes.",
    )
    memory_error_rate: float | None = Field(
        default=None,
        gt=0,
        le=0.1,
        description="Share of the stored bits that flip where the model will run, such as 1e-4 of undervolted memory: "
        "with --ensemble-memory as many members are kept as help under such errors, a detector leaving out damaged "
        "ones.",
    )
    distill: Distill = Field(
        default=Distill.AUTO,
        description="Whether one more model learns what the ensemble predicts, and competes: auto, where "
        "--max-predict-milliseconds, --max-predict-joules or --ensemble-memory leave no room for the ensemble; always; "
        "or never.",
    )

    @property
    def trained(self) -> int:
        """Return the number of members to train if no trial has trained them."""
        return self.ensemble_size or TRAINED_MEMBERS

    @property
    def most(self) -> int:
        """Return the largest number of models in the ensemble."""
        return self.ensemble_size or MOST_MEMBERS

    @property
    def memory_bytes(self) -> int | None:
        """Return the requested memory in bytes; None for no limit."""
        return None if self.ensemble_memory is None else parse_bytes(self.ensemble_memory)
