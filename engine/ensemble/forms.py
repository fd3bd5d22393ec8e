"""The form in which a model loses least within some bytes: how many bits, and how many of its hidden units."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from shunter.engine.checkpoint.packing import Form, pack, unpack
from shunter.engine.ensemble.calibration import log_losses
from shunter.engine.loop.some_rows import SomeRows
from shunter.models.registry import Model

# What is tried of each, the least loss first; fewer bits and units leave room for more rows.
CHOICES: dict[str, tuple[float, ...]] = {
    "layer_bits": (8, 4),
    "unit_share": (1.0, 0.75, 0.5, 0.25),
    "row_bits": (8, 4, 2),
}
ALIKE = 1.0002  # a log loss so near to that of the model as it is leaves nothing to look for


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A model in a form.

    Attributes:
        form: How it is packed.
        tensors: Its weights by name, as `shunter.engine.checkpoint.packing.pack` gives them.
        loss: Log loss on some rows of the validation part, in nats.
    """

    form: Form
    tensors: Mapping[str, Tensor]
    loss: float

    @property
    def words(self) -> str:
        """For instance `rows of 4 bits, layers of 8 bits, 0.5 of the hidden units`."""
        units = "" if self.form.unit_share == 1 else f", {self.form.unit_share:g} of the hidden units"
        checks = ", with check bits" if self.form.has_check_bits else ""
        return f"rows of {self.form.row_bits} bits, layers of {self.form.layer_bits} bits{units}{checks}"


def log_loss(rows: SomeRows, model: Model) -> float:
    """Mean log loss of the main label on some rows, in nats."""
    return float(np.average(log_losses(rows.labels, rows.main_logits(model)), weights=rows.weights))


def best_form(
    model: Model,
    scratch: Model,
    uses: Sequence[np.ndarray],
    limit: int,
    rows: SomeRows,
    *,
    has_check_bits: bool = False,
) -> Packed | None:
    """Look for the form with the least log loss within some bytes, by one pass of hill climbing.

    It begins with 8 bits and all units; the bits of the layers, then the share of the units, then the bits of the rows
    are changed one after the other, each to what loses least with as many rows as that leaves room for (the refinement
    of E2CNN's heuristic, with bits beside its channels).

    Args:
        model: The model, on the CPU in evaluation mode; it stays as it is.
        scratch: One that is built alike, whose weights are overwritten.
        uses: How often training looked up each row of each table.
        limit: Bytes at most.
        rows: What the forms are compared on.
        has_check_bits: Whether check bits lie beside the weights; they count among the bytes.

    Returns:
        The best; None where no form is small enough.
    """

    def tried(form: Form) -> Packed | None:
        tensors = pack(model, form, uses, limit)
        if tensors is None:
            return None
        scratch.load_state_dict(unpack(model, tensors))
        return Packed(form=form, tensors=tensors, loss=log_loss(rows, scratch))

    return climbed(tried, Form(has_check_bits=has_check_bits), enough=log_loss(rows, model) * ALIKE)


def climbed(tried: Callable[[Form], Packed | None], form: Form = Form(), *, enough: float) -> Packed | None:  # noqa: B008
    """The best of the forms that one pass over `CHOICES` tries, which ends where the log loss is low enough."""
    best = tried(form)
    if best is not None and best.loss <= enough:
        return best
    for name, values in CHOICES.items():
        for value in values[1:]:
            found = tried(replace(form, **{name: value}))
            if found is not None and (best is None or found.loss < best.loss):
                best = found
        form = best.form if best is not None else replace(form, **{name: values[-1]})
    return best
