"""What the step hands on, and keeps beside the model."""

import math
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field

from engine.checkpoint.storage import read_json, write_text
from engine.metrics import Metrics
from shunter.frozen import Frozen

FILE = "ensemble.json"
MIB = 2**20


class Member(Frozen):
    """A trained model and its share in the result."""

    name: str
    weight: float = Field(description="Share of its logits in the result; 0 for a member that was left out.")
    other_weights: dict[str, float] = Field(
        default={}, description="With several tasks, the same share in each beside the main one, by name."
    )

    trial: int | None = Field(
        default=None, description="Trial of the search that trained it; None where it was trained as a member."
    )

    @property
    def is_used(self) -> bool:
        """Whether the result holds it."""
        return self.weight > 0 or any(self.other_weights.values())


class TriedSize(Frozen):
    """So many members, packed so that all of them have room."""

    members: int
    weight_bytes: int = Field(description="Bytes of the weights that are left of them.")
    ne: float = Field(description="NE on the half of validation that fitted no weights.")


class MemoryFit(Frozen):
    """A result that was given a number of bytes: what it takes, and what that costs."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    limit_bytes: int
    bytes_before: int = Field(description="Of the weights of what would be the result without the limit.")
    bytes_after: int = Field(description="Of the file of the weights of the result.")
    ne_before: float = Field(default=math.nan, description="On validation, of what would be the result without it.")
    ne_after: float = Field(default=math.nan, description="The same of the result.")
    tried: tuple[TriedSize, ...] = Field(default=(), description="Empty where all had room as they were.")
    forms: dict[str, str] = Field(default={}, description="How each member of the result is packed, in words.")

    @property
    def words(self) -> str:
        """In one sentence."""
        limit, before, after = (
            f"{count / MIB:.2f} MiB" for count in (self.limit_bytes, self.bytes_before, self.bytes_after)
        )
        if not self.forms:
            return f"Its weights take {before}, within --ensemble-memory {limit} as they are."
        of = "; ".join(f"{name}: {form}" for name, form in self.forms.items())
        return (
            f"Its weights are stored in {after} instead of {before}, within --ensemble-memory {limit} ({of}): NE "
            f"{self.ne_after:.4f} instead of {self.ne_before:.4f} on validation."
        )

    @property
    def metrics(self) -> dict[str, float]:
        """Figures for the run."""
        names = ("limit_bytes", "bytes_before", "bytes_after", "ne_before", "ne_after")
        tried = {f"ensemble.memory.tried_ne.{one.members}": one.ne for one in self.tried}
        return {**{f"ensemble.memory.{name}": float(getattr(self, name)) for name in names}, **tried}


class EnsembleResult(Frozen):
    """The model that the training ends with; it lies in `directory`, for `engine.checkpoint.storage.load_model`."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    directory: Path
    data_fingerprint: str
    kept: Literal["ensemble", "single"] = Field(description="Which of the two is the result.")
    members: tuple[Member, ...] = Field(description="All that were given, in their order.")
    best_single: str = Field(description="Name of the member with the lowest NE on validation.")
    judged_ensemble: Metrics | None = Field(
        description="The ensemble on the half of validation that fitted no weights; None with one member."
    )
    judged_single: Metrics | None = Field(description="The best single on the same half.")
    validation: Metrics = Field(description="The result on the whole validation part.")
    test: Metrics = Field(description="The result on the test part, which nothing before has seen.")
    reason: str = Field(description="Which was kept and why, in one sentence.")
    run_id: str = Field(description="MLflow run.")
    tasks: tuple[str, ...] = Field(default=(), description="Names of several tasks, the main one first.")
    scale: float = Field(
        default=1.0,
        description="Factor of the result's log odds, below 1 where it was too sure; with several tasks of the main.",
    )
    other_scales: dict[str, float] = Field(
        default={}, description="With several tasks, the same of each beside the main one, by name."
    )
    combined_by: str = Field(
        default="", description="What takes the place of the weighted mean of log odds, by its label; empty: nothing."
    )
    tried_ne: dict[str, float] = Field(
        default={},
        description="NE of each way to combine on validation, each half predicted by what the other has fitted.",
    )

    memory: MemoryFit | None = Field(
        default=None, description="What --ensemble-memory has done; None where it was not asked for."
    )

    def save(self) -> None:
        """Write the description beside the model: the last write, after which the test part is not scored again."""
        write_text(self.directory / FILE, self.model_dump_json(indent=1))


def read_finished(directory: Path, data_fingerprint: str, names: tuple[str, ...]) -> EnsembleResult | None:
    """The finished ensemble of the same members in `directory`, None when there is none."""
    path = directory / FILE
    if not path.exists():
        return None
    found = EnsembleResult.model_validate({**read_json(path), "directory": directory})
    is_same = found.data_fingerprint == data_fingerprint and tuple(member.name for member in found.members) == names
    return found if is_same else None
