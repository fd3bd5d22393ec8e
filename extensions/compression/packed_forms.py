"""Search for the packing options with the least log loss within a file size: bits, and share of hidden units."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from shunter.engine.ensemble.calibration import log_losses
from shunter.extensions.compression.evaluation_sample import EvaluationSample
from shunter.extensions.compression.packing import Form, pack, unpack
from shunter.models.registry import Model

# Values to try, the least lossy first; fewer bits and units leave room for more rows.
CHOICES: dict[str, tuple[float, ...]] = {
    "layer_bits": (8, 4),
    "unit_share": (1.0, 0.75, 0.5, 0.25),
    "row_bits": (8, 4, 2),
}
ALIKE = 1.0002  # ratio to the unpacked model's log loss at which the search ends


@dataclass(frozen=True, kw_only=True)
class Packed:
    """Model in packed form: its options, weights and loss.

    Attributes:
        form: Packing options.
        tensors: Packed weights by name, from `shunter.extensions.compression.packing.pack`.
        loss: Log loss on a sample of validation rows, in nats.
    """

    form: Form
    tensors: Mapping[str, Tensor]
    loss: float

    @property
    def label(self) -> str:
        """Label such as `rows of 4 bits, layers of 8 bits, 0.5 of the hidden units`."""
        units = "" if self.form.unit_share == 1 else f", {self.form.unit_share:g} of the hidden units"
        checks = ", with check bits" if self.form.has_check_bits else ""
        return f"rows of {self.form.row_bits} bits, layers of {self.form.layer_bits} bits{units}{checks}"


def log_loss(rows: EvaluationSample, model: Model) -> float:
    """Return the mean log loss of the main label on a sample of rows, in nats."""
    return float(np.average(log_losses(rows.labels, rows.main_logits(model)), weights=rows.weights))


def best_form(
    model: Model,
    scratch: Model,
    uses: Sequence[np.ndarray],
    limit: int,
    rows: EvaluationSample,
    *,
    has_check_bits: bool = False,
) -> Packed | None:
    """Search for the packing options with the least log loss within a file size, by one pass of hill climbing.

    The search begins with 8 bits and all units. It then changes the bits of the layers, the share of the units and the
    bits of the rows in this order. Each option is set to the value with the least loss. The most used table rows are
    kept, as many as fit. E2CNN searches the number of channels in the same way, but no bits.

    Args:
        model: Model on the CPU in evaluation mode; it does not change.
        scratch: Model of the same architecture, whose weights are overwritten.
        uses: Number of lookups of each row in training, one array for each table.
        limit: Largest file size in bytes.
        rows: Evaluation sample on which the options are compared.
        has_check_bits: Whether check bits are stored with the weights; they count towards the limit.

    Returns:
        Best packed model; None if no options are small enough.
    """

    def tried(form: Form) -> Packed | None:
        tensors = pack(model, form, uses, limit)
        if tensors is None:
            return None
        scratch.load_state_dict(unpack(model, tensors))
        return Packed(form=form, tensors=tensors, loss=log_loss(rows, scratch))

    return climb(tried, Form(has_check_bits=has_check_bits), enough=log_loss(rows, model) * ALIKE)


def climb(tried: Callable[[Form], Packed | None], form: Form = Form(), *, enough: float) -> Packed | None:  # noqa: B008
    """Return the packed model with the least log loss of one pass over the options in `CHOICES`, from `form`.

    The pass is skipped if `form` itself has a log loss of at most `enough`. None if no options fit.
    """
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
