"""Simulated cycles of one linear layer on an accelerator that skips products with zeros.

P lanes work in lockstep, each on its own output, and each operand is broadcast to all lanes. An accelerator that skips
inputs spends no cycle on an operand that is zero. An accelerator that skips outputs assigns no lane to an output that
is not needed (Sarma et al., "Exploiting Activation based Gradient Output Sparsity to Accelerate Backpropagation in
CNNs", arXiv 2109.07710). With `z = W a` and `a' = relu(z)`, backward knows both sets beforehand. The zeros of the
gradient of z are those of the ReLU above, and the gradient of a is not needed where the ReLU below gave zero.
"""

from dataclasses import dataclass

import numpy as np

LANES = 16


@dataclass(frozen=True)
class Skipping:
    """Products that an accelerator skips.

    Attributes:
        inputs: Skip operands that are zero.
        outputs: Skip results that are not needed.
    """

    inputs: bool = False
    outputs: bool = False


DENSE, INPUT, OUTPUT, BOTH = Skipping(), Skipping(inputs=True), Skipping(outputs=True), Skipping(True, True)


@dataclass(frozen=True)
class LayerZeros:
    """Number of useful values of a layer, for each sample.

    Attributes:
        inputs: Width of the input.
        outputs: Width of the output.
        active_inputs: int64 `[batch]`, inputs that are not zero.
        needed_inputs: int64 `[batch]`, inputs whose gradient is needed.
        active_gradients: int64 `[batch]`, outputs whose gradient is not zero.
    """

    inputs: int
    outputs: int
    active_inputs: np.ndarray
    needed_inputs: np.ndarray
    active_gradients: np.ndarray


@dataclass(frozen=True)
class PhaseCycles:
    """Cycles of the three matrix products of a layer.

    Attributes:
        forward: Cycles of the outputs from the inputs.
        data: Cycles of the input gradients from the output gradients; 0 if no input gradient is needed.
        weights: Cycles of the weight gradients from inputs and output gradients.
    """

    forward: int
    data: int
    weights: int

    @property
    def backward(self) -> int:
        """Cycles of both products of the backward pass."""
        return self.data + self.weights


def cycles(zeros: LayerZeros, skipping: Skipping, lanes: int = LANES) -> PhaseCycles:
    """Return the cycles of a batch on this number of lanes.

    In the forward pass it is not yet known which outputs a ReLU will set to zero, so only inputs are skipped. The
    gradient of a weight is a sum over samples: each lane has one input of a sample, and output gradients are broadcast
    to all.
    """
    batch = len(zeros.active_inputs)
    every_input, every_output = np.full(batch, zeros.inputs), np.full(batch, zeros.outputs)
    operands = zeros.active_inputs if skipping.inputs else every_input
    gradients = zeros.active_gradients if skipping.inputs else every_output
    wanted = zeros.needed_inputs if skipping.outputs else np.where(zeros.needed_inputs.any(), every_input, 0)
    rows = zeros.active_inputs if skipping.outputs else every_input
    return PhaseCycles(
        forward=int((operands * -(-zeros.outputs // lanes)).sum()),
        data=int((-(-wanted // lanes) * gradients).sum()),
        weights=int((-(-rows // lanes) * gradients).sum()),
    )
