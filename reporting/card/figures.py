"""Everything that a card says, as plain values."""

from typing import Literal

from reporting.card.architecture import Architecture
from reporting.card.calibration import ReliabilityBin
from shunter.frozen import Frozen


class QualityFigure(Frozen):
    """One figure of quality on the test part, with its interval of 95 %; what is not defined is None."""

    task: str
    name: Literal["auc", "logloss", "ne", "calibration"]
    value: float | None
    low: float | None
    high: float | None


class TaskQuality(Frozen):
    """How well one label is predicted on the test part.

    Attributes:
        task: name of the label; empty where there is only one.
        figures: with their intervals.
        reliability: bins of the calibration picture.
        calibration_error: expected calibration error over these bins.
        rows: scored.
        positives: among them.
    """

    task: str
    figures: tuple[QualityFigure, ...]
    reliability: tuple[ReliabilityBin, ...]
    calibration_error: float
    rows: int
    positives: int


class FieldFacts(Frozen):
    """One field of the data.

    Attributes:
        name: column of the source.
        kind: `numeric`, `categorical` or `multi_valued`.
        cardinality: distinct values in the training part; 0 for numbers.
        ids: rows of its table; 0 for numbers.
        missing_share: share of rows without a value.
        unknown_share: share of the test part's values that training did not hold or had too seldom; None for numbers.
    """

    name: str
    kind: str
    cardinality: int
    ids: int
    missing_share: float
    unknown_share: float | None


class DataFacts(Frozen):
    """What the model was trained on.

    Attributes:
        name: of the data.
        fingerprint: hash of the source's bytes, schema, seed of the split and version of the ingestion.
        split_by: how rows were divided.
        rows: of each part.
        base_rates: share of positives in each part.
        quarantined_rows: that could not be read.
        time_range: first and last time of all rows, in words; None where it is not known.
        fields: in the order of the model's input.
    """

    name: str
    fingerprint: str
    split_by: str
    rows: dict[str, int]
    base_rates: dict[str, float]
    quarantined_rows: int
    time_range: str | None
    fields: tuple[FieldFacts, ...]


class MemberFacts(Frozen):
    """One trained model of those that were given to the ensemble.

    Attributes:
        name: of the member.
        family: of the model.
        weight: share of its logits in the result.
        spec: the architecture's options.
        hyperparameters: what it was learned with.
        schedule: for how long at most, and its seed.
        architecture: blocks, layers and parameters; None for a member that is not part of the result.
        train_flops_per_sample: of the matrix products forward and backward, counted; None where the family is not.
        forward_flops_per_sample: of those forward alone, counted.
        parameter_bytes: of tables and layers.
        optimizer_bytes: beside them while it trains, counted; None where the family is not.
        peak_memory_bytes: most that was used while it trained, measured.
        placement: where it ran.
        epochs: it was trained for, and `best_epoch` is the one that was kept.
        samples_seen: of all epochs.
        train_seconds: measured.
        samples_per_second: measured.
        energy_joules: of its training; None where nothing could count them.
        energy_method: `measured`, `estimated` or `unavailable`.
        energy_source: which counter or model, in words.
        validation_auc: of the epoch that was kept.
        stopped_because: what ended it.
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


class ModelCard(Frozen):
    """A model card after Mitchell et al., "Model cards for model reporting" (FAT* 2019).

    Attributes:
        run_id: of the training, in MLflow.
        made_at: date and time, UTC.
        kept: whether the result is the ensemble or its best single member.
        reason: why.
        members: all that were trained to the end; those of weight 0 are not part of the result.
        data: what they were trained on.
        quality: of the result on the test part, one entry a label.
        resampled: what the intervals take as independent: `rows`, or the users by the name of their field.
        resamples: of the bootstrap, and its `seed`.
        uses: what the model is for, as far as the data says.
        limits: what it is not for, and what to look out for.
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

    @property
    def chosen(self) -> tuple[MemberFacts, ...]:
        """The members that the result is made of."""
        return tuple(member for member in self.members if member.weight > 0)
