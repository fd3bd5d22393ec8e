"""Model that an ensemble selection describes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from shunter.engine.ensemble.result import MemoryFit
from shunter.engine.ensemble.verdict import Verdict
from shunter.models.combination import Combination
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model


def combined_as(verdict: Verdict, models: Sequence[Model]) -> Model | Ensemble:
    """Combine models by an ensemble selection; a single model without calibration is returned unchanged.

    Args:
        verdict: Ensemble selection.
        models: Models of `verdict.chosen`, in their order.
    """
    chosen, combination = verdict.chosen, _combination(verdict)
    assert len(models) == len(chosen), f"{len(models)} models were given for {len(chosen)} that are chosen"
    is_changed = (verdict.scale != 1).any() or combination is not None
    if len(models) == 1 and not is_changed:
        return models[0]
    return Ensemble(models, verdict.weights[chosen].tolist(), verdict.scale.tolist(), combination)


def _combination(verdict: Verdict) -> Combination | None:
    """Return the combination, reduced to the chosen members: ranks and votes have reference values for each member."""
    found = verdict.combination
    if found is None or not found.references:
        return found
    return replace(found, references=tuple(found.references[index] for index in verdict.chosen))


@dataclass(frozen=True, kw_only=True)
class PackedResult:
    """Result whose members are packed into a memory limit.

    Attributes:
        verdict: Weights of all members.
        logits: Log odds on validation, those of packed members as they are packed, `[members, rows]`.
        tensors: Packed weights of the members in the result, by their number; empty if none is packed.
        fit: Figures of the packing.
    """

    verdict: Verdict
    logits: np.ndarray
    tensors: Mapping[int, Mapping[str, Tensor]]
    fit: MemoryFit
