"""Everything that a card says, as plain values."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from shunter.engine.ensemble.result import Serving
from shunter.engine.passes.record import PassRecord
from shunter.frozen import Frozen
from shunter.reporting.card.architecture import Architecture
from shunter.reporting.card.calibration import ReliabilityBin


class QualityFigure(Frozen):
    """One figure of quality on the test part, with its interval of 95 %; what is not defined is None."""

    task: str
    name: Literal["auc", "logloss", "ne", "calibration"]
    value: float | None
    low: float | None
    high: float | None


class NoInterval(StrEnum):
    """Why figures of the test part have no interval."""

    ONE_CLASS = "one_class"
    FEW_USERS = "few_users"
    RARE_CLASS = "rare_class"


class TaskQuality(Frozen):
    """How well one label is predicted on the test part.

    Attributes:
        task: Name of the label; empty where there is only one.
        figures: With their intervals.
        reliability: Bins of the calibration picture.
        calibration_error: Expected calibration error over these bins.
        rows: Scored.
        positives: Among them.
        gauc: AUC by user, weighed by the rows of each (`shunter.engine.metrics.grouped_area_under_roc`); None where the
            schema names no user, or no user has both classes.
        more: Figures of the metrics that other distributions add, by name.
        users: Users that have rows of the class of which fewer users have some; None where no field names users.
    """

    task: str
    figures: tuple[QualityFigure, ...]
    reliability: tuple[ReliabilityBin, ...]
    calibration_error: float
    rows: int
    positives: int
    gauc: float | None = None
    users: int | None = None
    more: dict[str, float] = Field(default={}, exclude_if=lambda more: not more)

    @property
    def no_interval(self) -> NoInterval:
        """Reason why figures have no interval, where they have none: too many resamples held one class."""
        if self.positives in (0, self.rows):
            return NoInterval.ONE_CLASS
        is_by_users = self.users is not None and self.users < min(self.positives, self.rows - self.positives)
        return NoInterval.FEW_USERS if is_by_users else NoInterval.RARE_CLASS

    @property
    def no_interval_words(self) -> str:
        """The reason as the end of a sentence."""
        return {
            NoInterval.ONE_CLASS: "all its rows are of one class",
            NoInterval.FEW_USERS: f"rows of the rarer class are of {self.users} user(s) alone, and users are resampled",
            NoInterval.RARE_CLASS: "too few rows of one class are in it",
        }[self.no_interval]


class FieldFacts(Frozen):
    """One field of the data.

    Attributes:
        name: Column of the source.
        kind: `numeric`, `categorical` or `multi_valued`.
        cardinality: Distinct values in the training part; 0 for numbers.
        ids: Rows of its table; 0 for numbers.
        missing_share: Share of rows without a value.
        unknown_share: Share of the test part's values that training did not hold or had too seldom; None for numbers.
    """

    name: str
    kind: str
    cardinality: int
    ids: int
    missing_share: float
    unknown_share: float | None


class TableFacts(Frozen):
    """How the values of a table become ids.

    Attributes:
        field: Field that owns the table.
        vocabulary: `exact`, `hashed`, `learned` or `buckets`.
        rows: Of the table.
        map_bytes: What the map from values to ids takes where it is stored.
        words: Which rows there are, in a learned map.
    """

    field: str
    vocabulary: str
    rows: int
    map_bytes: int
    words: str


class DataFacts(Frozen):
    """What the model was trained on.

    Attributes:
        name: Name of the data.
        fingerprint: Hash of the source's bytes, schema, seed of the split and version of the ingestion.
        split_by: How rows were divided.
        rows: Rows of each part.
        base_rates: Share of positives in each part.
        quarantined_rows: Rows that could not be read.
        time_range: First and last time of all rows, in words; None where it is not known.
        fields: Fields in the order of the model's input.
        tables: Their tables; empty in cards that are older than this.
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


class MemberFacts(Frozen):
    """One trained model of those that were given to the ensemble.

    Attributes:
        name: Name of the member.
        family: Family of the model.
        weight: Share of its logits in the result.
        spec: The architecture's options.
        hyperparameters: Hyperparameters of its training.
        schedule: Longest training, and its seed.
        architecture: Blocks, layers and parameters; None for a member that is not part of the result.
        train_flops_per_sample: Counted FLOPs of the matrix products forward and backward; None where the family is
            not counted.
        forward_flops_per_sample: Counted FLOPs of the forward pass alone.
        parameter_bytes: Bytes of tables and layers.
        optimizer_bytes: Counted bytes beside them while it trains; None where the family is not counted.
        peak_memory_bytes: Most that was used while it trained, measured.
        placement: Placement of its training.
        epochs: Epochs of its training; `best_epoch` is the one that was kept.
        samples_seen: Samples of all epochs.
        train_seconds: Measured seconds of its training.
        samples_per_second: Measured.
        energy_joules: Energy of its training; None where nothing could count it.
        energy_method: `measured`, `estimated` or `unavailable`.
        energy_source: Which counter or model, in words.
        validation_auc: AUC on the validation part of the epoch that was kept.
        stopped_because: Reason why it ended.
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
    validation_auc: float
    stopped_because: str


class BaselineFigures(Frozen):
    """A baseline beside the result of the run; figures that are not defined are None."""

    name: str
    validation_auc: float | None
    validation_ne: float | None
    auc: float | None = Field(description="On the test part, as are the following.")
    logloss: float | None
    ne: float | None
    train_seconds: float
    joules: float | None
    saving: float = Field(description="Share of its log loss that the result saves.")
    saving_low: float = Field(description="Lower bound of that share with 95 % confidence.")
    saving_high: float
    is_result: bool = Field(default=False, description="Whether it is the result itself.")

    @property
    def verdict(self) -> str:
        """How the result compares with it, in one sentence."""
        if self.is_result:
            return f"The baseline {self.name} is the result: nothing that was trained beside it does better."
        bounds = f"{_lower(self.saving_low)} to {_lower(self.saving_high)} with 95 % confidence"
        log_loss = f"{_lower(self.saving)} ({bounds})"
        if self.saving_low > 0:
            return f"The result beats the baseline {self.name}: its log loss is {log_loss}."
        if self.saving_high < 0:
            return f"The baseline {self.name} is ahead of the result, whose log loss is {log_loss}."
        return f"The result is level with the baseline {self.name}: its log loss is {log_loss}."


def _lower(saving: float) -> str:
    """A share that is saved, or lost, in words."""
    return f"{abs(saving):.2%} {'lower' if saving >= 0 else 'higher'}"


class ModelCard(Frozen):
    """A model card after Mitchell et al., "Model cards for model reporting" (FAT* 2019).

    Attributes:
        run_id: MLflow run of the training.
        made_at: Date and time, UTC.
        kept: Whether the result is the ensemble or its best single member.
        reason: Why.
        members: All that were trained to the end; those of weight 0 are not part of the result.
        data: Data that they were trained on.
        quality: Quality of the result on the test part, one entry a label.
        resampled: Unit that the intervals take as independent: `rows`, or the users by the name of their field.
        resamples: Count of the bootstrap's resamples, and its `seed`.
        uses: Uses of the model, as far as the data says.
        limits: Uses it is not for, and points to look out for.
        baselines: Baselines on the same test part.
        promise: What quality is promised, in one sentence; empty where none is.
        serving: What a prediction costs with each member and with the result.
        passes: Passes that were tried, with what they gained or why they were refused.
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
        """The members that the result is made of."""
        return tuple(member for member in self.members if member.weight > 0)
