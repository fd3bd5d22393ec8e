"""Cycles of an accelerator that leaves out products with zeros, of one linear layer: a simulation.

P lanes work in step, each on an output of its own, and an operand goes to all lanes at once. An accelerator that skips
inputs does not spend a cycle on an operand that is zero; one that skips outputs does not give a lane to an output that
nobody needs (Sarma et al., "Exploiting Activation based Gradient Output Sparsity to Accelerate Backpropagation in
CNNs", arXiv 2109.07710). With `z = W a` and `a' = relu(z)`, backward knows both beforehand: the zeros of the gradient
of z are those of the ReLU above, and where the ReLU below gave zero the gradient of a is not needed.
"""

from dataclasses import dataclass

import numpy as np

LANES = 16


@dataclass(frozen=True)
class Skipping:
    """What an accelerator leaves out.

    Attributes:
        inputs: Operands that are zero.
        outputs: Results that nobody needs.
    """

    inputs: bool = False
    outputs: bool = False


DENSE, INPUT, OUTPUT, BOTH = Skipping(), Skipping(inputs=True), Skipping(outputs=True), Skipping(True, True)


@dataclass(frozen=True)
class LayerZeros:
    """How many numbers of a layer count, sample by sample.

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
    """Cycles of the three products of a layer.

    Attributes:
        forward: Outputs from inputs.
        data: Gradients of inputs from those of outputs; 0 where none is needed.
        weights: Gradients of weights from both.
    """

    forward: int
    data: int
    weights: int

    @property
    def backward(self) -> int:
        """Of both products of the backward pass."""
        return self.data + self.weights


def cycles(zeros: LayerZeros, skipping: Skipping, lanes: int = LANES) -> PhaseCycles:
    """Cycles of a batch on so many lanes.

    Forward, which outputs a ReLU will zero is not known yet, so that inputs alone are skipped. The gradient of a weight
    is a sum over samples: lanes take the inputs of a sample, and the gradients of its outputs go to all of them.
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
