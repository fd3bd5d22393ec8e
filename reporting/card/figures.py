"""Contents of a model card, as values for JSON."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from shunter.engine.ensemble.result import Serving
from shunter.engine.passes.record import PassRecord
from shunter.frozen import Frozen
from shunter.reporting.card.architecture import Architecture
from shunter.reporting.card.bootstrap import Statistic
from shunter.reporting.card.calibration import ReliabilityBin

TrainedAt = Annotated[
    datetime | None,
    Field(
        description="Time at which an earlier run trained the baseline; None if this run trained it.",
        exclude_if=lambda at: at is None,
    ),
]


class QualityFigure(Frozen):
    """Metric on the test part, with its 95 % interval; an undefined value is None."""

    task: str
    name: Statistic
    value: float | None
    low: float | None
    high: float | None


class NoInterval(StrEnum):
    """Reason why metrics of the test part have no interval."""

    ONE_CLASS = "one_class"
    FEW_USERS = "few_users"
    RARE_CLASS = "rare_class"


class TaskQuality(Frozen):
    """Quality of the predictions of one label on the test part.

    Attributes:
        task: Name of the label; empty if there is only one.
        figures: Metrics with their intervals.
        reliability: Bins of the calibration plot.
        calibration_error: Expected calibration error over these bins.
        rows: Number of scored rows.
        positives: Number of positives among the scored rows.
        gauc: AUC by user, weighted by the rows of each user (`shunter.engine.metrics.grouped_area_under_roc`); None if
            the schema names no user, or no user has both classes. If the schema names a group, it replaces the
            user.
        ndcg: Mean NDCG of the rows of each user (`shunter.engine.metrics.grouped_ranking`); None if `gauc` is None.
        mrr: Mean reciprocal rank of each user's first positive row; None if `gauc` is None.
        more: Values of metrics that extensions add, by name.
        users: Number of users with positive rows or with negative rows, whichever is smaller; None if no field names
            users.
        is_number: Whether the label is numeric; then `positives` is 0 and predictions are not probabilities.
    """

    task: str
    figures: tuple[QualityFigure, ...]
    reliability: tuple[ReliabilityBin, ...]
    calibration_error: float
    rows: int
    positives: int
    gauc: float | None = None
    ndcg: float | None = Field(default=None, exclude_if=lambda value: value is None)
    mrr: float | None = Field(default=None, exclude_if=lambda value: value is None)
    users: int | None = None
    more: dict[str, float] = Field(default={}, exclude_if=lambda more: not more)
    is_number: bool = Field(default=False, exclude_if=lambda value: not value)

    @property
    def no_interval(self) -> NoInterval:
        """Reason why metrics have no interval (too many resamples with a single class); None if they have intervals."""
        if self.positives in (0, self.rows):
            return NoInterval.ONE_CLASS
        is_by_users = self.users is not None and self.users < min(self.positives, self.rows - self.positives)
        return NoInterval.FEW_USERS if is_by_users else NoInterval.RARE_CLASS

    @property
    def no_interval_text(self) -> str:
        """Reason why metrics have no interval, as a clause such as `all its rows are of one class`."""
        return {
            NoInterval.ONE_CLASS: "all its rows are of one class",
            NoInterval.FEW_USERS: f"rows of the rarer class are of {self.users} user(s) alone, and users are resampled",
            NoInterval.RARE_CLASS: "too few rows of one class are in it",
        }[self.no_interval]


class FieldFacts(Frozen):
    """Facts of one field of the data.

    Attributes:
        name: Column of the source.
        kind: `numeric`, `categorical` or `multi_valued`.
        cardinality: Number of distinct values in the training part; 0 for a numeric field.
        ids: Number of rows of the field's table; 0 for a numeric field.
        missing_share: Share of rows without a value.
        unknown_share: Share of the test part's values that are missing or too rare in the training part; None for a
            numeric field.
    """

    name: str
    kind: str
    cardinality: int
    ids: int
    missing_share: float
    unknown_share: float | None


class TableFacts(Frozen):
    """Mapping of the values of a table to ids.

    Attributes:
        field: Field that owns the table.
        vocabulary: `exact`, `hashed`, `learned` or `buckets`.
        rows: Number of rows of the table.
        map_bytes: Bytes of the stored map from values to ids.
        words: How a learned map assigns values to rows; empty for other vocabularies.
    """

    field: str
    vocabulary: str
    rows: int
    map_bytes: int
    words: str


class DataFacts(Frozen):
    """Facts of the data that the model was trained on.

    Attributes:
        name: Name of the data.
        fingerprint: Hash of the source's bytes, schema, seed of the split and version of the ingestion.
        split_by: Rule by which rows were split into parts.
        rows: Number of rows of each part.
        base_rates: Share of positives in each part.
        quarantined_rows: Number of rows that could not be read.
        left_out_rows: Number of rows that the schema excludes; 0 in cards of earlier versions.
        sessions: Number of sessions, divided by time gaps; 0 if the schema defines no sessions.
        time_range: First and last time of all rows, as text; None if unknown.
        fields: Fields in the order of the model's input.
        tables: Tables of the fields; empty in cards of earlier versions.
        where: Predicate that selected the rows; None for all rows.
        negative_rate: Share of sampled negatives; None for a log with its own negatives.
        versions: Versions of the tables of a data lake or a database; empty for files.
    """

    name: str
    fingerprint: str
    split_by: str
    rows: dict[str, int]
    base_rates: dict[str, float]
    quarantined_rows: int
    time_range: str | None
    fields: tuple[FieldFacts, ...]
    tables: tuple[TableFacts, ...] = Field(default=(), exclude_if=lambda tables: not tables)
    left_out_rows: int = Field(default=0, exclude_if=lambda rows: not rows)
    sessions: int = Field(default=0, exclude_if=lambda sessions: not sessions)
    where: str | None = Field(default=None, exclude_if=lambda where: not where)
    negative_rate: float | None = Field(default=None, exclude_if=lambda rate: rate is None)
    versions: tuple[str, ...] = Field(default=(), exclude_if=lambda versions: not versions)


class MemberFacts(Frozen):
    """Facts of one trained model that was a candidate for the ensemble.

    Attributes:
        name: Name of the member.
        family: Family of the model.
        weight: Weight of the member's logits in the result.
        spec: Options of the architecture.
        hyperparameters: Training hyperparameters.
        schedule: Maximum number of epochs, seed, and other options of the schedule.
        architecture: Blocks, layers and parameters; None for a member that is not part of the result.
        train_flops_per_sample: Counted FLOPs of the matrix products forward and backward; None if the family has no
            count.
        forward_flops_per_sample: Counted FLOPs of the forward pass.
        parameter_bytes: Bytes of tables and layers.
        optimizer_bytes: Counted bytes of the optimizer state; None if the family has no count.
        peak_memory_bytes: Measured peak memory of the training.
        placement: Placement of the member's training.
        epochs: Number of epochs of the member's training; the weights are those of `best_epoch`.
        samples_seen: Number of samples of all epochs.
        train_seconds: Measured seconds of the member's training.
        samples_per_second: Measured throughput of the member's training.
        energy_joules: Energy of the member's training; None if not available.
        energy_method: `measured`, `estimated` or `unavailable`.
        energy_source: Energy counter or power model, as text.
        validation_auc: AUC on the validation part, at `best_epoch`; None if the label is numeric.
        stopped_because: Reason why the member's training ended.
        validation_relative_loss: Loss of a numeric label divided by the loss of the best constant; None for clicks.
    """

    name: str
    family: str
    weight: float
    spec: dict[str, object]
    hyperparameters: dict[str, object]
    schedule: dict[str, object]
    architecture: Architecture | None
    train_flops_per_sample: float | None
    forward_flops_per_sample: float | None
    parameter_bytes: int | None
    optimizer_bytes: int | None
    peak_memory_bytes: int
    placement: str
    epochs: int
    best_epoch: int
    samples_seen: int
    train_seconds: float
    samples_per_second: float
    energy_joules: float | None
    energy_method: str
    energy_source: str
    validation_auc: float | None
    stopped_because: str
    validation_relative_loss: float | None = Field(default=None, exclude_if=lambda value: value is None)


class BaselineFigures(Frozen):
    """Baseline that was compared with the result of the run; an undefined value is None."""

    name: str
    validation_auc: float | None
    validation_ne: float | None
    auc: float | None = Field(
        description="AUC of the baseline on the test part; the following metrics are on the test part too."
    )
    logloss: float | None
    ne: float | None
    rmse: float | None = Field(default=None, exclude_if=lambda value: value is None)
    mae: float | None = Field(default=None, exclude_if=lambda value: value is None)
    train_seconds: float
    joules: float | None
    saving: float = Field(description="Relative reduction of the baseline's test loss by the result, as a share.")
    saving_low: float = Field(description="Lower bound of the relative loss reduction with 95 % confidence.")
    saving_high: float
    is_result: bool = Field(default=False, description="Whether the baseline itself was selected as the result.")
    trained_at: TrainedAt = None

    @property
    def summary(self) -> str:
        """Comparison of the result with the baseline, in one sentence."""
        if self.is_result:
            return f"The baseline {self.name} is the result: nothing that was trained beside it does better."
        bounds = f"{_lower(self.saving_low)} to {_lower(self.saving_high)} with 95 % confidence"
        lower, loss = f"{_lower(self.saving)} ({bounds})", "log loss" if self.rmse is None else "loss"
        if self.saving_low > 0:
            return f"The result beats the baseline {self.name}: its {loss} is {lower}."
        if self.saving_high < 0:
            return f"The baseline {self.name} is ahead of the result, whose {loss} is {lower}."
        return f"The result is level with the baseline {self.name}: its {loss} is {lower}."


def _lower(saving: float) -> str:
    """Return the relative reduction or increase of the loss as text."""
    return f"{abs(saving):.2%} {'lower' if saving >= 0 else 'higher'}"


class ModelCard(Frozen):
    """Model card after Mitchell et al., "Model cards for model reporting" (FAT* 2019).

    Attributes:
        run_id: MLflow run of the training.
        made_at: Date and time, UTC.
        kept: Kind of the result: the ensemble, or its best single member.
        reason: Reason for the choice of ensemble or single member.
        members: All candidate members; members with weight 0 are not part of the result.
        data: Data that the members were trained on.
        quality: Quality of the result on the test part, one entry per label.
        resampled: Units that the intervals assume to be independent: `rows`, or the name of the user field.
        resamples: Number of resamples of the bootstrap; `seed` is its seed.
        uses: Intended uses, derived from the data.
        limits: Unintended uses, and warnings.
        baselines: Baselines on the same test part.
        promise: Guaranteed quality, in one sentence; empty if there is none.
        serving: Cost of a prediction with each member and with the result.
        passes: Optimisation passes that were tried, with their gains or the reasons of their rejection.
    """

    run_id: str
    made_at: str
    kept: str
    reason: str
    members: tuple[MemberFacts, ...]
    data: DataFacts
    quality: tuple[TaskQuality, ...]
    resampled: str
    resamples: int
    seed: int
    uses: tuple[str, ...]
    limits: tuple[str, ...]
    baselines: tuple[BaselineFigures, ...] = ()
    promise: str = ""
    serving: tuple[Serving, ...] = Field(default=(), exclude_if=lambda value: not value)
    passes: tuple[PassRecord, ...] = Field(default=(), exclude_if=lambda value: not value)

    @property
    def chosen(self) -> tuple[MemberFacts, ...]:
        """Members that are part of the result."""
        return tuple(member for member in self.members if member.weight > 0)
