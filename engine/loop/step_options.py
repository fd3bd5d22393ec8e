"""Options of `Execution` that change how the layers are computed in a training step."""

from typing import Any

from shunter.engine.config import Execution
from shunter.errors import TrainingError
from shunter.models.registry import Model
from shunter.registry import Entry, Registry

# Entry points; each has the name of the field of `Execution` that enables the option. An option is an object with the
# methods `apply(model, value)`, which raises ValueError for a value that is not valid in this version, and
# `remove(model)`, which undoes it after training and keeps the learned weights. `apply` is called before the optimizer
# is built; a value that is False or empty switches the option off.
STEP_OPTIONS = Registry(
    "option of a training step",
    {
        "rewriting": Entry(target="shunter.extensions.rewriting.scheme:REWRITTEN_STEP"),
        "packs_activations": Entry(target="shunter.extensions.rewriting.lean_steps:PACKED_STEP"),
        "compacts_dead_units": Entry(target="shunter.extensions.rewriting.lean_steps:COMPACTED_STEP"),
    },
    group="shunter.step_options",
)


def prepare_layers(model: Model, execution: Execution) -> None:
    """Apply the options to a model in training mode, before its optimizer is built.

    Raises:
        TrainingError: The value of an option is not valid for the model in this version.
        MissingExtensionError: An option is of an extension that is not installed.
    """
    for name, value in _asked(execution).items():
        try:
            STEP_OPTIONS.load(name).apply(model, value)
        except ValueError as error:
            raise TrainingError(
                f"The step options of {name} in the checkpoint are of another version of Shunter "
                f"({error}): train again without the checkpoint."
            ) from error


def restore_layers(model: Model, execution: Execution) -> None:
    """Restore the original layers of a model that was trained with options, with the learned weights."""
    for name in _asked(execution):
        STEP_OPTIONS.load(name).remove(model)


def _asked(execution: Execution) -> dict[str, Any]:
    return {name: value for name in STEP_OPTIONS.entries if (value := getattr(execution, name))}
