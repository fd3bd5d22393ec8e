"""Pass that converts hidden layers to 8-bit integers if that is faster."""

from torch import Tensor, nn

from shunter.errors import InfeasibleError
from shunter.extensions.compression.compressed_linear import CompressedLinear
from shunter.extensions.compression.int8 import Int8Linear
from shunter.extensions.compression.smaller import SmallerModel
from shunter.extensions.compression.subject import (
    CompressionSubject,
    Place,
    hidden_linears,
    inputs_of_layers,
    members_of,
    with_forms,
)
from shunter.models.relu_paths import after_relu


class Int8Layers(SmallerModel):
    """Pass that quantises weights once, and each input row when it is scored (`compression.int8`)."""

    name = "int8"

    def apply(self, subject: CompressionSubject) -> CompressionSubject:
        """Convert each hidden layer to 8 bits if that is faster; all hidden layers if the size is limited.

        Raises:
            InfeasibleError: No layer is faster.
        """
        linears = hidden_linears(subject.model)
        positive = {
            (number, path)
            for number, member in enumerate(members_of(subject.model))
            for path in after_relu(member.layers)
        }
        forms: dict[Place, CompressedLinear] = {}
        for place, rows in inputs_of_layers(subject.model, subject.calibration).items():
            linear, form = linears[place], Int8Linear.of(linears[place], is_signed=place not in positive)
            if subject.limits.max_bytes is not None or _is_faster(subject, form, linear, rows):
                forms[place] = form
        if not forms:
            raise InfeasibleError("no hidden layer is faster in 8 bits on this machine")
        return subject.with_model(with_forms(subject.model, forms))


def _is_faster(subject: CompressionSubject, form: CompressedLinear, linear: nn.Linear, rows: Tensor) -> bool:
    before, after = subject.bench.seconds([lambda: linear(rows), lambda: form(rows)])
    return after < before


PASS = Int8Layers()
