"""Request of `shunter nightly`: one pydantic model for the command line, the Prefect form and Python."""

import re
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field, field_validator

from shunter.requests.groups import Group
from shunter.requests.job import JobRequest, RegisteredName
from shunter.requests.source import DataRequest
from shunter.requests.training import LOG_TO, PROMOTE, LogTo, Promote, TrainRequest

PLACE = re.compile(r"\{date[^{}]*\}")
FORMER_NAME = "shunter"  # model name that earlier versions used for any data if no name was requested


def model_name_of(data: str) -> str:
    """Return the model name for a data path: the last two components of the path, without the date.

    Different data have different names, so that a challenger is never compared with the champion of another log.

    Args:
        data: Pattern of the days' files; for example `/srv/shop/day_{date}.parquet` results in `shop-day`.
    """
    path = Path(PLACE.sub("", data))
    parts = [*path.parts[:-1], re.sub(r"\.[A-Za-z.]+$", "", path.name)]
    names = ["-".join(re.findall(r"[A-Za-z0-9]+", part)) for part in parts]
    return "-".join([name for name in names if name][-2:]) or FORMER_NAME


class DayFiles(DataRequest, frozen=True, title="Data"):
    """Daily log files, and how they are read."""

    is_found_by_flow: ClassVar[bool] = True

    data: str = Field(
        default="",
        description="Daily log files: a pattern such as logs/day_{date}.parquet, or a folder of dated files.",
    )


class DayChoice(Group, frozen=True, title="Days"):
    """Days to train on, and the day on which champion and challenger are compared."""

    timezone: str = Field(
        default="UTC", description="Time zone that determines when a day ends, such as Europe/Berlin."
    )
    day: date | None = Field(
        default=None, description="Day to evaluate on; if omitted, yesterday, or the newest usable day before it."
    )
    train_days: int = Field(
        default=7, ge=1, description="Maximum number of days before the evaluation day to train on."
    )
    max_late_days: int = Field(
        default=3, ge=0, description="Maximum age of the newest usable day, in days; an older one makes the run fail."
    )
    relearn: bool = Field(
        default=False,
        description="Train on all days of --train-days, including those that the champion was trained on.",
    )

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        if name not in available_timezones():
            raise ValueError("no such time zone, use a name such as Europe/Berlin or UTC")
        return name

    @property
    def zone(self) -> ZoneInfo:
        """Time zone in which days begin and end."""
        return ZoneInfo(self.timezone)


class WhenBroken(StrEnum):
    """Action if the champion is no better than the base rate of the evaluation day."""

    PROMOTE = "promote"
    ROLLBACK = "rollback"
    KEEP = "keep"


class Promotion(Group, frozen=True, title="Promotion"):
    """Conditions under which a challenger replaces the champion."""

    margin: float = Field(
        default=0.001,
        ge=0,
        lt=1,
        allow_inf_nan=False,
        description="Least relative reduction of the champion's loss, as a share, that promotes a challenger.",
    )
    promotion_confidence: float = Field(
        default=0.95, gt=0.5, lt=1, description="Confidence with which the loss reduction must exceed the margin."
    )
    promote: Promote = PROMOTE
    when_broken: WhenBroken = Field(
        default=WhenBroken.PROMOTE,
        description="If the base rate beats the champion: promote a challenger that beats both, rollback, or keep.",
    )


class ChallengerRequest(Group, frozen=True, title="Challenger"):
    """Training settings of the challenger in a nightly run."""

    nightly_epochs: int = Field(
        default=1, ge=1, description="Maximum number of epochs of a challenger over its training days."
    )
    learning_rate_share: float = Field(
        default=1 / 3,
        gt=0,
        le=1,
        description="Learning rate of a challenger as a share of the champion's initial learning rate.",
    )
    learn_last_day: bool = Field(
        default=False,
        description="Train a promoted challenger on the evaluation day too, if its quality does not suffer.",
    )


class DriftLimits(Group, frozen=True, title="Advanced: drift"):
    """Thresholds of data drift, beyond which a day is reported or quarantined."""

    max_base_rate_ratio: float = Field(
        default=2.0,
        gt=1,
        description="Ratio of a day's base rate to the median, or its inverse, above which the day is quarantined.",
    )
    min_rows_share: float = Field(
        default=0.2,
        ge=0,
        le=1,
        description="Share of the median day's rows below which the newest day counts as incomplete.",
    )
    max_cardinality_ratio: float = Field(
        default=3.0,
        gt=1,
        description="Ratio of a field's distinct values to those of the median day above which it is reported.",
    )
    max_new_share: float = Field(
        default=0.2,
        gt=0,
        description="Increase of the share of new values, over earlier days, above which a field is reported.",
    )
    max_missing_share: float = Field(
        default=0.2,
        gt=0,
        description="Difference to the median share of missing values above which a field is reported.",
    )


class NightlyRequest(JobRequest, frozen=True):
    """Request of one nightly run: train a challenger on recent days, and evaluate it on the newest day."""

    job_kind: ClassVar[Literal["train", "nightly"]] = "nightly"
    searches: ClassVar[bool] = False

    source: DayFiles = Field(default=DayFiles(), description="Daily log files and how they are read.")
    days: DayChoice = Field(
        default=DayChoice(), description="Days to train on, and the day on which models are compared."
    )
    challenger: ChallengerRequest = Field(
        default=ChallengerRequest(), description="Training settings of the challenger."
    )
    promotion: Promotion = Field(
        default=Promotion(), description="Conditions under which the challenger becomes the champion."
    )
    drift: DriftLimits = Field(default=DriftLimits(), description="Thresholds above which an unusual day is reported.")
    register_as: RegisteredName | None = Field(
        default=None,
        description="Name of the registered model in MLflow; if omitted, derived from the path of the data.",
    )
    log_to: LogTo = LOG_TO

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...

    @property
    def registered_name(self) -> str:
        """Return the name of the registered model that is retrained."""
        return self.register_as or model_name_of(self.data)

    def one_training(self) -> Self:
        """Return the request of a challenger's training for the planner: few epochs, no search and no ensemble."""
        once = {"trials": 1, "search_minutes": None, "search_kwh": None, "ensemble_size": 1}
        return self.model_copy(update={**once, "max_epochs": self.challenger.nightly_epochs})

    def first_training(self, files: str) -> TrainRequest:
        """Return the request of a first nightly run, which has no champion to start from: a full run over `files`."""
        asked = self.flat()
        shared = asked.keys() & TrainRequest().flat().keys()
        return TrainRequest.model_validate({**{name: asked[name] for name in shared}, "data": files})
