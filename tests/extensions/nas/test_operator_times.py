"""Operators are measured with the work that a step has of them."""

import pytest
import torch
from torch import nn

from shunter.extensions.nas.supernet.costs import measure_operators, module_work


def test_each_piece_of_work_has_a_time_of_its_own() -> None:
    device = torch.device("cpu")
    works = {width: module_work(nn.Linear(width, width), (64, width), device) for width in (8, 512)}
    seconds, watts = measure_operators(works, "cpu", seconds_each=0.01)
    assert seconds.keys() == works.keys()
    assert all(figure.source == "measured" and figure.value > 0 for figure in seconds.values())
    assert watts is None or watts.source in ("measured", "estimated")


@pytest.mark.parametrize("is_first", [False, True])
def test_the_gradient_of_the_input_is_left_out_of_the_first_layer(is_first: bool) -> None:
    gradients = module_work(nn.Linear(3, 4), (16, 3), torch.device("cpu"), is_first=is_first)()
    assert isinstance(gradients, tuple)
    shapes = [tuple(gradient.shape) for gradient in gradients]
    assert shapes == [*([] if is_first else [(16, 3)]), (4, 3), (4,)]


def test_modules_without_weights_have_work_too() -> None:
    (gradient,) = module_work(nn.ReLU(), (4, 2, 3), torch.device("cpu"))()  # pyright: ignore[reportGeneralTypeIssues]
    assert gradient.shape == (4, 2, 3)
