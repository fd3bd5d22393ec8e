"""Losses of labels that are numbers: the loss of each row, and the prediction of an output.

An output is on a scale on which training begins well: with an output of 0 every loss predicts about the mean of the
training part. A further loss is a class with the methods of `NumberLoss` and an entry in `shunter.label_losses`.
"""

import math
from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor, nn

from shunter.errors import DataError, RequestError
from shunter.label_losses import LOSSES, parse_loss
from shunter.models.spec import NumberLabel

MOST_LEVELS = 100
LARGEST_EXPONENT = 30.0  # of a predicted count or amount, so that no output overflows


class NumberLoss(ABC):
    """Loss of a label that is a number.

    Args:
        label: Loss and scale of the label.
        parameter: Parameter of the loss; 0 if it takes none.
    """

    def __init__(self, label: NumberLabel, parameter: float) -> None:
        self.label, self.parameter = label, parameter

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each row, `[rows]`, never negative."""
        return self.losses(outputs, labels)

    @abstractmethod
    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each row, `[rows]`, never negative."""

    @abstractmethod
    def predictions(self, outputs: Tensor) -> Tensor:
        """Return the predicted numbers, in the unit of the label, from outputs."""

    @abstractmethod
    def outputs(self, predictions: Tensor) -> Tensor:
        """Return the model outputs for given predicted numbers; inverse of `predictions`."""

    def best_constant(self, labels: Tensor, weights: Tensor) -> Tensor:
        """Return the model output, a scalar, of the best prediction that is equal for all rows."""
        return self.outputs(weights @ labels / weights.sum())


class _Linear(NumberLoss):
    """Base of losses whose output is the label in standard deviations from its mean."""

    def predictions(self, outputs: Tensor) -> Tensor:
        return self.label.center + self.label.scale * outputs

    def outputs(self, predictions: Tensor) -> Tensor:
        return (predictions - self.label.center) / self.label.scale

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return self.of_errors(self.outputs(labels) - outputs)

    @abstractmethod
    def of_errors(self, errors: Tensor) -> Tensor:
        """Return the loss of each error (label minus prediction, in standard deviations of the label)."""


class SquaredError(_Linear):
    """Squared error, in units of the label's variance; predicts the mean."""

    def of_errors(self, errors: Tensor) -> Tensor:
        """Return the loss of each error (label minus prediction, in standard deviations of the label)."""
        return errors**2


class Huber(_Linear):
    """Squared error that is linear from `parameter` standard deviations on (Huber, 1964); outliers count less."""

    def of_errors(self, errors: Tensor) -> Tensor:
        """Return the loss of each error (label minus prediction, in standard deviations of the label)."""
        return nn.functional.huber_loss(errors, torch.zeros_like(errors), reduction="none", delta=self.parameter)

    def best_constant(self, labels: Tensor, weights: Tensor) -> Tensor:
        """Return the model output, a scalar, of the best prediction that is equal for all rows."""
        return _minimum(self, labels, weights)


class Quantile(_Linear):
    """Pinball loss: predicts the value that exceeds a share `parameter` of the labels."""

    def __init__(self, label: NumberLabel, parameter: float) -> None:
        super().__init__(label, parameter)
        if parameter >= 1:
            raise RequestError(
                f"The quantile of the loss {label.loss} is not between 0 and 1: give a number in that range."
            )

    def of_errors(self, errors: Tensor) -> Tensor:
        """Return the loss of each error (label minus prediction, in standard deviations of the label)."""
        return torch.maximum(self.parameter * errors, (self.parameter - 1) * errors)

    def best_constant(self, labels: Tensor, weights: Tensor) -> Tensor:
        """Return the model output, a scalar, of the best prediction that is equal for all rows."""
        ordered = labels.argsort()
        below = weights[ordered].cumsum(0)
        place = torch.searchsorted(below, self.parameter * below[-1]).clamp(max=len(labels) - 1)
        return self.outputs(labels[ordered][place])


class _Exponential(NumberLoss):
    """Base of losses whose output is the logarithm of the prediction over the label's mean."""

    def predictions(self, outputs: Tensor) -> Tensor:
        return self.label.center * outputs.clamp(max=LARGEST_EXPONENT).exp()

    def outputs(self, predictions: Tensor) -> Tensor:
        return (predictions / self.label.center).clamp_min(math.exp(-LARGEST_EXPONENT)).log()


class Poisson(_Exponential):
    """Half of the Poisson deviance, in units of the label's mean; predicts the mean of a count."""

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each row, `[rows]`, never negative."""
        relative = labels / self.label.center
        likelihood = outputs.clamp(max=LARGEST_EXPONENT).exp() - relative * outputs
        return (likelihood + torch.xlogy(relative, relative) - relative).clamp_min(0)  # 0 within rounding if exact


class WeightedLogistic(_Exponential):
    """Logistic regression in which a positive row counts its label, such as a watch time; predicts the mean amount.

    The odds are the prediction (Covington et al., "Deep Neural Networks for YouTube Recommendations", RecSys 2016).
    In that paper a row is positive or negative, so that the odds are a little too high. In this class each row is also
    a negative of weight 1, so that the odds are the mean.
    """

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each row, `[rows]`, never negative."""
        odds = outputs + math.log(self.label.center)
        softplus = nn.functional.softplus
        return (labels * softplus(-odds) + softplus(odds)) / (1 + self.label.center)


class Ordinal(NumberLoss):
    """Negative log likelihood of ordered levels by proportional odds (McCullagh, 1980); predicts the mean level.

    The output shifts the log odds of every level at once. An output of 0 predicts the shares of the training part.
    """

    def __init__(self, label: NumberLabel, parameter: float) -> None:
        super().__init__(label, parameter)
        odds = torch.tensor([math.inf, *label.odds, -math.inf], dtype=torch.float64)
        steps = torch.tensor(label.levels, dtype=torch.float64).diff()
        self._values = {
            torch.device("cpu"): (torch.tensor(label.levels, dtype=torch.float64), odds[:-1], odds[1:], steps)
        }

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each row, `[rows]`, never negative."""
        levels, above, below, _ = self._on(outputs)
        level = torch.searchsorted(levels, labels.contiguous()).clamp(max=len(levels) - 1)
        # The difference of two sigmoids, without cancelling: s(a) - s(b) = s(a) s(-b) (1 - exp(b - a)).
        upper, lower = above[level], below[level]
        log = nn.functional.logsigmoid
        return -(log(outputs + upper) + log(-outputs - lower) + torch.log1p(-torch.exp(lower - upper)))

    def predictions(self, outputs: Tensor) -> Tensor:
        """Return the predicted numbers, in the unit of the label, from outputs."""
        levels, above, _, steps = self._on(outputs)
        return levels[0] + torch.sigmoid(outputs[..., None] + above[1:]) @ steps

    def outputs(self, predictions: Tensor) -> Tensor:
        """Return the model outputs for given predicted numbers; inverse of `predictions`."""
        raise RequestError(
            "The loss ordinal predicts a probability of each level and no single number: compare such models "
            "by their loss."
        )

    def best_constant(self, labels: Tensor, weights: Tensor) -> Tensor:
        """Return the model output, a scalar, of the best prediction that is equal for all rows."""
        return _minimum(self, labels, weights)

    def _on(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """Return levels, log odds to reach and to exceed each level, and gaps of levels, on the device of `outputs`."""
        if outputs.device not in self._values:  # copied once, for a copy in each step would make the host wait
            kept = self._values[torch.device("cpu")]
            self._values[outputs.device] = tuple(one.to(outputs.device) for one in kept)  # pyright: ignore
        return tuple(one.to(outputs.dtype) for one in self._values[outputs.device])


def number_loss(label: NumberLabel) -> NumberLoss:
    """Return the loss function that the description of a numeric label names."""
    name, parameter = parse_loss(label.loss)
    return LOSSES.load(name)(label, parameter)


def describe_label(loss: str, labels: np.ndarray, column: str) -> NumberLabel:
    """Return loss and scale of a label from its values in the training part, float32 `[rows]`.

    Raises:
        DataError: All labels are equal, or are too many different levels.
        RequestError: The parameter does not suit the loss.
    """
    if not len(labels) or labels.min() == labels.max():
        raise DataError(f"All labels of {column} in the training part are equal: check the label column in the schema.")
    mean, deviation = float(labels.mean(dtype=np.float64)), float(labels.std(dtype=np.float64))
    if parse_loss(loss).labels != "level":
        label = NumberLabel(loss=loss, center=mean, scale=deviation)
        number_loss(label)
        return label
    levels, counts = np.unique(labels, return_counts=True)
    if len(levels) > MOST_LEVELS:
        raise DataError(
            f"The label {column} has {len(levels):,} different values, more than the {MOST_LEVELS} levels "
            f"of --loss {loss}: use --loss mse."
        )
    shares = counts[::-1].cumsum()[::-1][1:] / len(labels)
    odds = tuple((np.log(shares) - np.log1p(-shares)).tolist())
    return NumberLabel(loss=loss, center=mean, scale=deviation, levels=tuple(levels.tolist()), odds=odds)


def _minimum(loss: NumberLoss, labels: Tensor, weights: Tensor) -> Tensor:
    """Return the constant output with the smallest mean loss, which is convex in this output."""
    from scipy.optimize import minimize_scalar

    labels, counts = labels.unique(return_inverse=True)
    shares = torch.bincount(counts, weights, minlength=len(labels)) / weights.sum()

    def mean_loss(output: float) -> float:
        return float(shares @ loss.losses(torch.full_like(labels, output), labels))

    found = minimize_scalar(mean_loss, bounds=(-20.0, 20.0), method="bounded")
    return torch.tensor(found.x, dtype=labels.dtype)  # pyright: ignore[reportAttributeAccessIssue]
