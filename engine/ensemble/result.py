"""Result of the ensemble step, also saved beside the model."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Literal, Self

from pydantic import ConfigDict, Field

from shunter.engine.checkpoint.checked_files import read_json, write_json
from shunter.engine.ensemble.serving_cost import ServingCost
from shunter.engine.metrics import Metrics
from shunter.frozen import Frozen
from shunter.model_families import MODEL_FAMILIES

FILE = "ensemble.json"
MIB = 2**20
RESULT = "result"  # name of the resulting model among the models whose predictions are measured


class Member(Frozen):
    """Trained model and its share in the result."""

    name: str
    weight: float = Field(description="Share of its logits in the result; 0 for a member that was left out.")
    other_weights: dict[str, float] = Field(
        default={}, description="Share of its logits for each further task, by name of the task."
    )

    trial: int | None = Field(
        default=None,
        description="Number of the search trial that trained the member; None if it was trained for the ensemble only.",
    )

    @property
    def is_used(self) -> bool:
        """Return True if the result contains the member."""
        return self.weight > 0 or any(self.other_weights.values())


class Serving(Frozen):
    """Serving cost of one row with a candidate."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    name: str
    ne: float | None = Field(description="Validation NE of the member alone; None for the result, see `validation`.")
    milliseconds: float = Field(description="Measured time to score one row.")
    weight_bytes: int = Field(description="Size of the weights in memory.")
    joules: float | None = Field(description="Energy to score one row; None if no meter or estimate is available.")
    joules_by: str = Field(description="Source of the joules: measured or estimated.")

    @classmethod
    def of(cls, name: str, ne: float | None, cost: ServingCost) -> Self:
        """Return the serving cost from a measurement."""
        return cls(name=name, ne=ne, **asdict(cost))

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics for the MLflow run."""
        figures = {"milliseconds": self.milliseconds, "weight_bytes": self.weight_bytes, "joules": self.joules}
        return {f"serving.{figure}.{self.name}": value for figure, value in figures.items() if value is not None}


FILE_OVERHEAD_BYTES = 1_024  # size of a weights file beyond its members' weights


class TriedSize(Frozen):
    """Result of packing a number of members into the memory limit."""

    members: int
    weight_bytes: int = Field(description="Size of the packed weights.")
    ne: float = Field(description="NE on the half of the validation part that was not used to fit weights.")
    ne_under_errors: float | None = Field(
        default=None, description="NE under the expected memory errors; None without `memory_error_rate`."
    )


class MemoryFit(Frozen):
    """Size of a result with a memory limit, and the quality with and without the limit."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    limit_bytes: int
    bytes_before: int = Field(description="Size of the weights without the limit.")
    bytes_after: int = Field(description="Size of the weights file of the result.")
    ne_before: float = Field(default=math.nan, description="Validation NE of the result without the limit.")
    ne_after: float = Field(default=math.nan, description="Validation NE of the result.")
    error_rate: float | None = Field(default=None, description="Expected share of stored bits that flip.")
    tried: tuple[TriedSize, ...] = Field(default=(), description="Tried numbers of members; empty if all fit.")
    forms: dict[str, str] = Field(default={}, description="Bits and kept share of each packed member, as text.")

    @property
    def words(self) -> str:
        """Return a sentence on size and quality with and without the limit."""
        limit, before, after = (
            f"{count / MIB:.2f} MiB" for count in (self.limit_bytes, self.bytes_before, self.bytes_after)
        )
        if not self.forms:
            return f"Its weights take {before}, within --ensemble-memory {limit} as they are."
        of = "; ".join(f"{name}: {form}" for name, form in self.forms.items())
        return (
            f"Its weights are stored in {after} instead of {before}, within --ensemble-memory {limit} ({of}): NE "
            f"{self.ne_after:.4f} instead of {self.ne_before:.4f} on validation.{self._under_errors}"
        )

    @property
    def _under_errors(self) -> str:
        if self.error_rate is None:
            return ""
        by_count = ", ".join(f"{one.ne_under_errors:.4f} with {one.members}" for one in self.tried)
        return (
            f" If one bit in {1 / self.error_rate:,.0f} flips, check bits correct a part of them and damaged members "
            f"are left out, NE is (by members) {by_count} on the half of validation that was not used to fit weights."
        )

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics for the MLflow run."""
        names = ("limit_bytes", "bytes_before", "bytes_after", "ne_before", "ne_after")
        tried = {f"ensemble.memory.tried_ne.{one.members}": one.ne for one in self.tried}
        damaged = {
            f"ensemble.memory.tried_ne_under_errors.{one.members}": one.ne_under_errors
            for one in self.tried
            if one.ne_under_errors is not None
        }
        return {**{f"ensemble.memory.{name}": float(getattr(self, name)) for name in names}, **tried, **damaged}


class EnsembleResult(Frozen):
    """Final model of the training job, stored in `directory` for `engine.checkpoint.storage.load_model`."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    directory: Path
    data_fingerprint: str
    kept: Literal["ensemble", "single"] = Field(description="Kind of the result.")
    members: tuple[Member, ...] = Field(description="All candidate members, in the given order.")
    best_single: str = Field(description="Name of the member with the lowest NE on validation.")
    judged_ensemble: Metrics | None = Field(
        description="Validation metrics of the ensemble with cross-fitted weights; None with one member."
    )
    judged_single: Metrics | None = Field(description="Metrics of the best single member on the same rows.")
    validation: Metrics = Field(description="Metrics of the result on the whole validation part.")
    test: Metrics = Field(description="Metrics of the result on the test part, which is scored once.")
    reason: str = Field(description="Reason for the kind of the result (`kept`), in one sentence.")
    run_id: str = Field(description="MLflow run.")
    tasks: tuple[str, ...] = Field(default=(), description="Names of the tasks, main task first; empty if single.")
    scale: float = Field(
        default=1.0,
        description="Calibration factor of the log odds (main task), below 1 if the model was overconfident.",
    )
    other_scales: dict[str, float] = Field(default={}, description="Calibration factor of each further task, by name.")
    combined_by: str = Field(
        default="", description="Label of the combination method; empty for the weighted mean of log odds."
    )
    tried_ne: dict[str, float] = Field(
        default={},
        description="Cross-fitted validation NE by combination method.",
    )

    memory: MemoryFit | None = Field(default=None, description="Effect of --ensemble-memory; None without this option.")
    serving: tuple[Serving, ...] = Field(
        default=(), description="Serving cost of each member, followed by that of the result."
    )

    @property
    def headline(self) -> tuple[str, float]:
        """Label and value of the main figure on the test part."""
        name, label = next(iter(self.test.labels.items()))
        return label, self.test.figures[name]

    @property
    def test_auc(self) -> float:
        """AUC on the test part."""
        return self.test.auc

    def families(self, model: str) -> str:
        """Return the families of the used members, joined by `+`: `model` of the search, and those of baselines."""
        used = [member.name for member in self.members if member.is_used]
        return "+".join(dict.fromkeys(name if name in MODEL_FAMILIES else model for name in used))

    def save(self) -> None:
        """Write the description beside the model: the last write, after which the test part is not scored again."""
        write_json(self.directory / FILE, self.model_dump_json(indent=1))


def read_finished(directory: Path, data_fingerprint: str, names: tuple[str, ...]) -> EnsembleResult | None:
    """Return the finished ensemble of the same data and members in `directory`; None if there is none."""
    path = directory / FILE
    if not path.exists():
        return None
    found = EnsembleResult.model_validate({**read_json(path), "directory": directory})
    is_same = found.data_fingerprint == data_fingerprint and tuple(member.name for member in found.members) == names
    return found if is_same else None
