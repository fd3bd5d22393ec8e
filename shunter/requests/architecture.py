"""Request group of the model to train."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from shunter.label_losses import LOSSES, is_for_numbers
from shunter.model_families import model_names
from shunter.requests.groups import Group


def _as_entries(value: Any) -> Any:
    """Convert a mapping, as in a job file, to entries `field=value`, as on the command line."""
    if not isinstance(value, Mapping):
        return value
    return tuple(f"{name}={_as_text(one)}" for name, one in value.items())


def _as_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_as_text, value))
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _checked_entries(entries: tuple[str, ...]) -> tuple[str, ...]:
    """Return the entries sorted by name, so that equal requests are stored alike; raise if one is malformed."""
    parts = [entry.partition("=") for entry in entries]
    for entry, (name, equals, _) in zip(entries, parts, strict=True):
        if not (name.strip() and equals):
            raise ValueError(f"--set {entry} has no value: write it as field=value, such as batch_norm=true")
    names = [name.strip() for name, *_ in parts]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"--set gives {twice} twice: leave one of them out")
    return tuple(sorted(f"{name.strip()}={text.strip()}" for name, _, text in parts))


def settings_over(of_file: Any, given: Sequence[str]) -> tuple[str, ...]:
    """Return the settings of a job file, overridden by those given beside it.

    Args:
        of_file: `set` in the file: entries, or keys with values.
        given: Entries `field=value`.
    """
    entries = _as_entries(of_file)
    if not isinstance(entries, list | tuple):
        return tuple(given)
    named = {_field_of(entry) for entry in given}
    return (*(entry for entry in entries if _field_of(str(entry)) not in named), *given)


def _field_of(entry: str) -> str:
    return entry.partition("=")[0].strip()


class ModelRequest(Group, frozen=True, title="Model"):
    """Model family and its options."""

    model: str = Field(
        default="dlrm",
        description="Model family, such as dlrm, dcnv2, din or lightgcn; auto compares several click models.",
        json_schema_extra=lambda schema: schema.update(enum=[*model_names()]),
    )
    loss: str | None = Field(
        default=None,
        min_length=1,
        description="Loss: for clicks such as focal, for numbers such as mse, huber or poisson; default: log loss.",
        json_schema_extra=lambda schema: schema.update(examples=[*LOSSES.names]),
    )
    towers: int | None = Field(
        default=None,
        ge=1,
        description="Number of towers of --model dmt; if omitted 4, or one per field if there are fewer.",
    )

    set: Annotated[tuple[str, ...], BeforeValidator(_as_entries), AfterValidator(_checked_entries)] = Field(
        default=(),
        description="Fix a setting, such as batch_norm=true. Fixed settings are not searched. Repeatable.",
    )

    @property
    def settings(self) -> tuple[str, ...]:
        """Return the fixed settings, with the loss if it is for clicks; a loss for numbers belongs to the label."""
        return self.set if self.loss is None or is_for_numbers(self.loss) else (*self.set, f"loss={self.loss}")

    @model_validator(mode="after")
    def _check_loss(self) -> Self:
        if self.loss is not None and any(entry.startswith("loss=") for entry in self.set):
            raise ValueError("--loss and --set loss= name the loss twice: leave one of them out")
        return self
