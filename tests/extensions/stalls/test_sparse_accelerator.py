"""The cycles of an accelerator that skips zeros, against one that is stepped cycle by cycle."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shunter.extensions.stalls.useful_share import (
    BOTH,
    DENSE,
    INPUT,
    OUTPUT,
    LayerZeros,
    PhaseCycles,
    Skipping,
    cycles,
)


def stepped(operands: np.ndarray, wanted: np.ndarray, skipping: Skipping, lanes: int, *, whole: bool) -> int:
    """Cycles of one sample: lanes take outputs in order, and all see one operand a cycle.

    Args:
        operands: Which are not zero.
        wanted: Which outputs are needed.
        skipping: What is left out.
        lanes: Lanes.
        whole: Whether anything is needed at all.
    """
    queue = [output for output in range(len(wanted)) if wanted[output] or not skipping.outputs] if whole else []
    clock = 0
    while queue:
        queue = queue[lanes:]
        for is_active in operands:
            if is_active or not skipping.inputs:
                clock += 1
    return clock


def brute_force(
    inputs: np.ndarray, needed: np.ndarray, gradients: np.ndarray, skipping: Skipping, lanes: int
) -> PhaseCycles:
    forward = data = weights = 0
    everything = np.ones(gradients.shape[1], bool)
    for sample in range(len(inputs)):
        forward += stepped(inputs[sample], everything, skipping, lanes, whole=True)
        data += stepped(gradients[sample], needed[sample], skipping, lanes, whole=bool(needed.any()))
        weights += stepped(gradients[sample], inputs[sample], skipping, lanes, whole=True)
    return PhaseCycles(forward, data, weights)


def masks(batch: int, width: int) -> st.SearchStrategy[np.ndarray]:
    return arrays.arrays(bool, (batch, width))


@settings(max_examples=30, deadline=None)
@given(data=st.data(), lanes=st.integers(1, 5))
def test_formulas_are_what_stepping_gives_and_skipping_never_costs(data: st.DataObject, lanes: int) -> None:
    batch, width, height = (data.draw(st.integers(1, 5)) for _ in range(3))
    inputs, needed = data.draw(masks(batch, width)), data.draw(masks(batch, width))
    gradients = data.draw(masks(batch, height))
    zeros = LayerZeros(width, height, inputs.sum(1), needed.sum(1), gradients.sum(1))
    found = {skipping: cycles(zeros, skipping, lanes) for skipping in (DENSE, INPUT, OUTPUT, BOTH)}
    for skipping, one in found.items():
        assert one == brute_force(inputs, needed, gradients, skipping, lanes)
    assert found[BOTH].backward <= min(found[INPUT].backward, found[OUTPUT].backward)
    assert max(found[INPUT].backward, found[OUTPUT].backward) <= found[DENSE].backward
