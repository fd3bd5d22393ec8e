"""Request of `shunter train` and `shunter tune`: one model for the command line, the form and Python."""

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

from shunter.model_families import AUTO, is_ranking
from shunter.requests.checkpoints import CheckpointRequest
from shunter.requests.cluster import ClusterRequest
from shunter.requests.effort import (
    CLICK_BASELINES,
    RANKING_BASELINES,
    RANKING_FIGURES,
    TREES,
    Distill,
    EnsembleOf,
    Repeats,
    SelectBy,
    TrainingEffort,
    parse_baselines,
)
from shunter.requests.job import JobRequest, RegisteredName, model_name_of
from shunter.requests.limits import PromiseRequest
from shunter.requests.search import SearchRequest, SearchSpaceName
from shunter.requests.source import PartsRequest

HALF_TABLES = "table_precision=fp16"  # an entry of `set`


class Promote(StrEnum):
    """Condition under which a registered version becomes the champion of its name."""

    CONFIDENT = "confident"
    ALWAYS = "always"


PROMOTE = Field(
    default=Promote.CONFIDENT,
    description="When a version becomes champion: confident (surely beats base rate and champion) or always.",
)


class TrainRequest(JobRequest, frozen=True):
    """One training, from click log to registered model."""

    source: PartsRequest = Field(default=PartsRequest(), description="Where the rows come from.")
    search: SearchRequest = Field(default=SearchRequest(), description="What is tried before the training.")
    training: TrainingEffort = Field(default=TrainingEffort(), description="How the chosen settings are trained.")
    checkpoints: CheckpointRequest = Field(
        default=CheckpointRequest(), description="How the state of an unfinished training is kept."
    )
    promise: PromiseRequest = Field(default=PromiseRequest(), description="What quality a registered model keeps.")
    nodes: ClusterRequest = Field(default=ClusterRequest(), description="Who trains instead of this machine.")
    register_as: RegisteredName | None = Field(
        default=None, description="Name of the registered model in MLflow; if omitted, the name of the data."
    )

    promote: Promote = PROMOTE

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...

    @model_validator(mode="after")
    def _check_architecture(self) -> Self:
        if self.search.space == SearchSpaceName.ARCHITECTURE and self.model != "dlrm":
            raise ValueError(
                f"an architecture is searched for --model dlrm only, not {self.model}: leave one of them out"
            )
        return self

    def named_after(self, data: str) -> Self:
        """Return the request with the name of the registered model: the requested one, or that of the data."""
        return self if self.register_as else self.model_copy(update={"register_as": model_name_of(data)})

    @property
    def registered_name(self) -> str:
        """Return the name of the registered model, which is known once the data is."""
        assert self.register_as is not None, "the request is named after its data"
        return self.register_as

    @property
    def needs_tables_in_memory(self) -> str | None:
        """Return the first option that requires embedding tables in memory; None if tables may be in a file."""
        if self.training.plan is not None:
            return f"--plan {self.training.plan}"
        if self.training.processes > 1 and self.nodes.cluster is not None:
            return f"--processes {self.training.processes} on a cluster"
        if self.search.space != SearchSpaceName.SETTINGS:  # tries tables of several widths
            return f"--search-space {self.search.space.value}"
        if self.ensemble.ensemble_of is EnsembleOf.SNAPSHOTS:
            return f"--ensemble-of {EnsembleOf.SNAPSHOTS.value}"
        if HALF_TABLES in self.architecture.set:
            return f"--set {HALF_TABLES}"
        return None

    @model_validator(mode="after")
    def _check_tables(self) -> Self:
        option = self.needs_tables_in_memory
        if self.placement.embedding_memory is not None and option is not None:
            raise ValueError(f"{option} keeps all embedding tables in memory: leave it out, or --embedding-memory")
        return self

    @model_validator(mode="after")
    def _check_half_tables(self) -> Self:
        if HALF_TABLES not in self.architecture.set:
            return self
        refused = {
            f"--processes {self.training.processes}": self.training.processes > 1,
            f"--plan {self.training.plan}": self.training.plan is not None,
            f"--search-space {self.search.space.value}": self.search.space is SearchSpaceName.ARCHITECTURE,
            "--ensemble-memory": self.ensemble.ensemble_memory is not None,
        }
        if option := next((option for option, is_there in refused.items() if is_there), None):
            raise ValueError(
                f"--set {HALF_TABLES} keeps whole tables of one width in the memory of one process, and {option} does "
                "not: leave one of them out"
            )
        return self

    @model_validator(mode="after")
    def _check_baselines(self) -> Self:
        unsuited = [name for name in baselines_of(self) if name not in _suited(self.model)]
        if unsuited:
            raise ValueError(
                f"the baseline {unsuited[0]} cannot be compared with --model {self.model}: use "
                f"{', '.join(_suited(self.model))}, several with commas, or none"
            )
        return self

    @model_validator(mode="after")
    def _check_select_by(self) -> Self:
        chosen, ranks = self.training.select_by, is_ranking(self.model)
        if chosen is not SelectBy.NE and (chosen in RANKING_FIGURES) != ranks:
            use = "ndcg@20 or recall@20" if ranks else "ne, auc or logloss"
            raise ValueError(f"--select-by {chosen.value} cannot judge --model {self.model}: use {use}")
        if self.training.repeats is Repeats.KEEP and not ranks:
            raise ValueError(f"--repeats keep cannot judge --model {self.model}, which ranks no items: leave it out")
        return self

    @model_validator(mode="after")
    def _check_promise(self) -> Self:
        promise = self.promise
        if promise.min_auc_confidence is not None and self.limits.min_auc is None and promise.max_ne is None:
            raise ValueError(
                f"--min-auc-confidence {promise.min_auc_confidence:g} has nothing to hold for: add --min-auc or "
                "--max-ne"
            )
        if promise.max_ne is not None and is_ranking(self.model):
            raise ValueError(f"--max-ne cannot judge --model {self.model}, which gives no probability: leave it out")
        return self

    @model_validator(mode="after")
    def _check_predictions(self) -> Self:
        if self.ensemble.max_predict_milliseconds is not None and is_ranking(self.model):
            raise ValueError(f"--max-predict-milliseconds does not judge --model {self.model}: leave it out")
        if self.ensemble.ensemble_memory is not None and is_ranking(self.model):
            raise ValueError(f"--ensemble-memory does not pack --model {self.model}: leave it out")
        if self.ensemble.ensemble_memory is not None and self.placement.embedding_memory is not None:
            raise ValueError("--ensemble-memory packs tables in memory: leave it out, or --embedding-memory")
        if self.ensemble.max_predict_joules is not None and is_ranking(self.model):
            raise ValueError(f"--max-predict-joules does not judge --model {self.model}: leave it out")
        if self.ensemble.memory_error_rate is not None and self.ensemble.ensemble_memory is None:
            raise ValueError("--memory-error-rate says what --ensemble-memory is chosen for: add that")
        return self

    @model_validator(mode="after")
    def _check_distillation(self) -> Self:
        if self.ensemble.distill is not Distill.ALWAYS:
            return self
        if is_ranking(self.model):
            raise ValueError(f"--distill always needs a model of clicks, not --model {self.model}: leave it out")
        if self.nodes.cluster is not None:
            raise ValueError("--distill always works on this machine: leave it out, or --cluster")
        if self.ensemble.ensemble_size == 1:
            raise ValueError("--distill always learns from an ensemble: leave it out, or --ensemble-size 1")
        return self

    @model_validator(mode="after")
    def _check_snapshots(self) -> Self:
        if self.ensemble.ensemble_of is not EnsembleOf.SNAPSHOTS:
            return self
        if is_ranking(self.model):
            raise ValueError(f"--ensemble-of snapshots needs a model of clicks, not --model {self.model}: leave it out")
        if self.nodes.cluster is not None or self.training.processes > 1 or self.training.plan is not None:
            raise ValueError(
                "--ensemble-of snapshots works in one process on this machine: leave out --cluster, --processes and "
                "--plan"
            )
        return self

    @model_validator(mode="after")
    def _check_plan(self) -> Self:
        plan, processes = self.training.plan, self.training.processes
        if plan is None:
            return self
        if processes > 1:
            raise ValueError(f"--plan {plan} says itself how many processes train: leave out --processes {processes}")
        if self.model == AUTO or is_ranking(self.model):
            raise ValueError(f"--plan {plan} divides one model of clicks, not --model {self.model}: name its model")
        if self.search.space != SearchSpaceName.SETTINGS:
            raise ValueError(f"--plan {plan} divides the tables of one architecture: leave it out, or the search of it")
        return self

    @model_validator(mode="after")
    def _check_champions(self) -> Self:
        if self.ensemble.ensemble_of is EnsembleOf.CHAMPIONS and is_ranking(self.model):
            raise ValueError(f"--ensemble-of champions needs a model of clicks, not --model {self.model}: leave it out")
        return self


def baselines_of(request: TrainRequest) -> tuple[str, ...]:
    """Return the requested baselines; by default all that suit the model, except trees."""
    asked = request.training.baselines
    if asked is not None:
        return parse_baselines(asked)
    return tuple(name for name in _suited(request.model) if name != TREES)


def _suited(model: str) -> tuple[str, ...]:
    return RANKING_BASELINES if is_ranking(model) else (*CLICK_BASELINES, TREES)
