"""Model that an ensemble selection describes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from shunter.engine.ensemble.ensemble_selection import EnsembleSelection
from shunter.engine.ensemble.result import MemoryFit
from shunter.models.combination import Combination
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model


def combined_as(selection: EnsembleSelection, models: Sequence[Model]) -> Model | Ensemble:
    """Combine models by an ensemble selection; a single model without calibration is returned unchanged.

    Args:
        selection: Ensemble selection.
        models: Models of `selection.chosen`, in their order.
    """
    chosen, combination = selection.chosen, _combination(selection)
    assert len(models) == len(chosen), f"{len(models)} models were given for {len(chosen)} that are chosen"
    is_changed = (selection.scale != 1).any() or combination is not None
    if len(models) == 1 and not is_changed:
        return models[0]
    return Ensemble(models, selection.weights[chosen].tolist(), selection.scale.tolist(), combination)


def _combination(selection: EnsembleSelection) -> Combination | None:
    """Return the combination with the reference values (of ranks or votes) of the chosen members only."""
    found = selection.combination
    if found is None or not found.references:
        return found
    return replace(found, references=tuple(found.references[index] for index in selection.chosen))


@dataclass(frozen=True, kw_only=True)
class PackedResult:
    """Result whose members are packed into a memory limit.

    Attributes:
        selection: Weights of all members.
        logits: Log odds on validation, `[members, rows]`; packed members predict with their packed weights.
        tensors: Packed weights of the members in the result, by their number; empty if none is packed.
        fit: Size of the packed ensemble, and its quality with and without the memory limit.
    """

    selection: EnsembleSelection
    logits: np.ndarray
    tensors: Mapping[int, Mapping[str, Tensor]]
    fit: MemoryFit
