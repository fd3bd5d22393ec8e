"""Request of `shunter train` and `shunter tune`, and loggers beside MLflow by name.

The target of a logger is called with the folder for its files and the name of the tree of runs, and returns a
`shunter.tracking.loggers.RunLogger`. Its capabilities are the `module` that it imports, the `package` that holds the
module, and the `extra` of Shunter that installs the package.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from shunter.model_families import is_ranking
from shunter.registry import Entry, Registry, check_package
from shunter.requests.checkpoints import CheckpointRequest
from shunter.requests.effort import CLICK_BASELINES, RANKING_BASELINES, TREES, TrainingEffort, parse_baselines
from shunter.requests.job import JobRequest, RegisteredName, model_name_of
from shunter.requests.limits import PromiseRequest
from shunter.requests.placement import ClusterRequest
from shunter.requests.search import SearchRequest
from shunter.requests.source import PartsRequest

LOGGERS = Registry(
    "logger",
    {
        "tensorboard": Entry(
            target="shunter.extensions.loggers.event_files:TensorBoardLogger",
            capabilities={"module": "tensorboardX", "package": "tensorboardX", "extra": "tensorboard"},
        ),
        "wandb": Entry(
            target="shunter.extensions.loggers.event_files:WandbLogger",
            capabilities={"module": "wandb", "package": "wandb", "extra": "wandb"},
        ),
    },
    group="shunter.loggers",
    defaults={"module": "", "package": "", "extra": ""},
)


def parse_loggers(text: str | None) -> tuple[str, ...]:
    """Parse names of loggers such as `tensorboard,wandb`; none for None.

    Raises:
        ValueError: A part is no logger.
    """
    names = tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text else ()
    for name in names:
        if name not in LOGGERS:
            raise ValueError(f"{name!r} is no logger: use {', '.join(LOGGERS.names)}, several with commas")
    return names


def check_loggers(text: str | None) -> None:
    """Raise unless the requested loggers can be used.

    Raises:
        MissingExtensionError: The folder of the extension is absent.
        MissingPackageError: A package of an extra is not installed.
    """
    for name in parse_loggers(text):
        module, package, extra = (str(LOGGERS.capability(name, one)) for one in ("module", "package", "extra"))
        if module:
            check_package(module, package, extra)


class Promote(StrEnum):
    """Condition under which a registered version becomes the champion of its name."""

    CONFIDENT = "confident"
    ALWAYS = "always"


PROMOTE = Field(
    default=Promote.CONFIDENT,
    description="When a version becomes champion: confident (surely beats base rate and champion) or always.",
)


LogTo = Annotated[str | None, AfterValidator(lambda text: ",".join(parse_loggers(text)) or None)]
LOG_TO = Field(
    default=None,
    min_length=1,
    description="Loggers beside MLflow: tensorboard, wandb (offline), or both with a comma.",
)


class TrainRequest(JobRequest, frozen=True):
    """Training job from click log to registered model."""

    source: PartsRequest = Field(default=PartsRequest(), description="Source of the rows.")
    search: SearchRequest = Field(default=SearchRequest(), description="Search before the training.")
    training: TrainingEffort = Field(default=TrainingEffort(), description="Settings of the training runs.")
    checkpoints: CheckpointRequest = Field(
        default=CheckpointRequest(), description="Checkpoints of an unfinished training run."
    )
    promise: PromiseRequest = Field(
        default=PromiseRequest(), description="Confidence with which the registered model meets the quality limits."
    )
    nodes: ClusterRequest = Field(default=ClusterRequest(), description="Cluster to train on instead of this machine.")
    register_as: RegisteredName | None = Field(
        default=None, description="Name of the registered model in MLflow; if omitted, the name of the data."
    )

    promote: Promote = PROMOTE
    log_to: LogTo = LOG_TO

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...

    def named_after(self, data: str) -> Self:
        """Return the request with the name of the registered model: the requested one, or that of the data."""
        return self if self.register_as else self.model_copy(update={"register_as": model_name_of(data)})

    @property
    def registered_name(self) -> str:
        """Return the name of the registered model; only for a request from `named_after`, which sets the name."""
        assert self.register_as is not None, "the request is named after its data"
        return self.register_as

    def stated(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, with the search space that the method implies."""
        return {**super().stated(), "search_space": self.search.space.value}

    @model_validator(mode="after")
    def _check_baselines(self) -> Self:
        unsuited = [name for name in baselines_of(self) if name not in _suited(self.model)]
        if unsuited:
            raise ValueError(
                f"the baseline {unsuited[0]} cannot be compared with --model {self.model}: use "
                f"{', '.join(_suited(self.model))}, several with commas, or none"
            )
        return self


def baselines_of(request: TrainRequest) -> tuple[str, ...]:
    """Return the requested baselines; by default, all that suit the model except gradient-boosted trees."""
    asked = request.training.baselines
    if asked is not None:
        return parse_baselines(asked)
    return tuple(name for name in _suited(request.model) if name != TREES)


def _suited(model: str) -> tuple[str, ...]:
    return RANKING_BASELINES if is_ranking(model) else (*CLICK_BASELINES, TREES)
