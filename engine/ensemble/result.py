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
    """Ensemble member: a trained model and its weight in the ensemble."""

    name: str
    weight: float = Field(
        description="Weight of the member's logits in the ensemble, from 0 to 1; 0 if the member was left out."
    )
    other_weights: dict[str, float] = Field(
        default={}, description="Weight of the member's logits for each further task, by name of the task."
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
    """Cost to serve one row with a model: time, energy and size."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    name: str
    ne: float | None = Field(
        description="Validation NE (normalised entropy) of the member alone; None for the ensemble."
    )
    milliseconds: float = Field(description="Measured time to score one row, in milliseconds.")
    weight_bytes: int = Field(description="Size of the weights in memory, in bytes.")
    joules: float | None = Field(
        description="Energy to score one row, in joules; None if no meter or estimate is available."
    )
    joules_by: str = Field(description="Source of the energy figure: measured or estimated.")

    @classmethod
    def of(cls, name: str, ne: float | None, cost: ServingCost) -> Self:
        """Return the serving cost from a measurement."""
        return cls(name=name, ne=ne, **asdict(cost))

    @property
    def metrics(self) -> dict[str, float]:
        """Serving cost of the model, as metrics of the MLflow run."""
        figures = {"milliseconds": self.milliseconds, "weight_bytes": self.weight_bytes, "joules": self.joules}
        return {f"serving.{figure}.{self.name}": value for figure, value in figures.items() if value is not None}


FILE_OVERHEAD_BYTES = 1_024  # size of a weights file beyond its members' weights


class TriedSize(Frozen):
    """Result of compressing an ensemble of a given size into the memory limit."""

    members: int
    weight_bytes: int = Field(description="Size of the compressed weights, in bytes.")
    ne: float = Field(
        description="NE on the half of the validation part that was not used to fit the ensemble weights."
    )
    ne_under_errors: float | None = Field(
        default=None, description="NE under simulated memory bit flips; None if no bit error rate was given."
    )


class MemoryFit(Frozen):
    """Size of an ensemble with a memory limit, and its quality with and without the limit."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    limit_bytes: int
    bytes_before: int = Field(description="Size of the weights without the memory limit, in bytes.")
    bytes_after: int = Field(description="Size of the weights file of the compressed model, in bytes.")
    ne_before: float = Field(default=math.nan, description="Validation NE of the model without the memory limit.")
    ne_after: float = Field(default=math.nan, description="Validation NE of the model within the memory limit.")
    error_rate: float | None = Field(default=None, description="Expected share of stored bits that flip.")
    tried: tuple[TriedSize, ...] = Field(
        default=(), description="Ensemble sizes that were tried within the memory limit; empty if all members fit."
    )
    forms: dict[str, str] = Field(
        default={}, description="Bits per weight and share of kept table rows of each compressed member, as text."
    )

    @property
    def sentence(self) -> str:
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
        """Size and quality with the memory limit, as metrics of the MLflow run."""
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
    kept: Literal["ensemble", "single"] = Field(description="Whether the final model is an ensemble or a single model.")
    members: tuple[Member, ...] = Field(description="All candidate members of the ensemble.")
    best_single: str = Field(description="Name of the member with the lowest validation NE.")
    judged_ensemble: Metrics | None = Field(
        description="Validation metrics of the ensemble with cross-fitted weights; None with one member."
    )
    judged_single: Metrics | None = Field(
        description="Metrics of the best single member on the rows on which the ensemble was evaluated."
    )
    validation: Metrics = Field(description="Metrics of the final model on the whole validation part.")
    test: Metrics = Field(description="Metrics of the final model on the test part, which is scored once.")
    reason: str = Field(description="Why an ensemble or a single model was selected, in one sentence.")
    run_id: str = Field(description="Id of the MLflow run.")
    tasks: tuple[str, ...] = Field(
        default=(), description="Names of the tasks, main task first; empty if there is only one task."
    )
    scale: float = Field(
        default=1.0,
        description="Factor by which calibration multiplies the log odds of the main task; below 1 if the model was "
        "overconfident.",
    )
    other_scales: dict[str, float] = Field(
        default={}, description="Calibration factor of the log odds of each further task, by name."
    )
    combined_by: str = Field(
        default="", description="Method that combines the members; empty for the weighted mean of log odds."
    )
    tried_ne: dict[str, float] = Field(
        default={},
        description="Cross-fitted validation NE of each tried combination method, by name.",
    )

    memory: MemoryFit | None = Field(
        default=None, description="Size and quality with and without --ensemble-memory; None without this option."
    )
    serving: tuple[Serving, ...] = Field(
        default=(), description="Serving cost of each member, followed by that of the final model."
    )

    @property
    def headline(self) -> tuple[str, float]:
        """Label and value of the main figure on the test part."""
        name, label = next(iter(self.test.labels.items()))
        return label, self.test.figures[name]

    @property
    def test_auc(self) -> float:
        """AUC of the final model on the test part."""
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
