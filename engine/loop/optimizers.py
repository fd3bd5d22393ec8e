"""Builders of the built-in optimizers of the dense layers (`shunter.models.optimizers` lists them)."""

from typing import Any

from torch.optim import Optimizer

from shunter.engine.loop.fused_adam import FusedAdam
from shunter.hardware.uncompiled import SGD, Adagrad

ParameterGroups = list[dict[str, Any]]


def build_adam(groups: ParameterGroups, learning_rate: float) -> Optimizer:
    """Build Adam (Kingma and Ba, ICLR 2015), which updates all parameters of a group with one operator."""
    return FusedAdam(groups, lr=learning_rate)


def build_adagrad(groups: ParameterGroups, learning_rate: float) -> Optimizer:
    """Build Adagrad (Duchi et al., JMLR 2011); torch has a fused version for CPUs only."""
    return Adagrad(groups, lr=learning_rate, fused=groups[0]["params"][0].device.type == "cpu")


def build_sgd(groups: ParameterGroups, learning_rate: float) -> Optimizer:
    """Build stochastic gradient descent without momentum."""
    return SGD(groups, lr=learning_rate, fused=True)
