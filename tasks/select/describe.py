"""What the training asks of a machine, and how much of it there is: counted from model, data and request."""

import math

import numpy as np

from engine.dataset import Dataset
from hardware.types import Frozen, Workload
from models.counting import count_model
from models.spec import ModelSpec
from tasks.request import TrainRequest

# Hyperband's reduction factor in the tuning step: one in three settings goes on to three times the epochs.
REDUCTION_FACTOR = 3
# Forward pass against forward, backward and update: the backward of a layer is two products where forward is one.
EVALUATION_SHARE = 1 / 3


class JobSize(Frozen):
    """How much training the whole job asks for, estimated upwards, so that limits are not promised away."""

    tuning_epochs: float
    final_epochs: float
    evaluation_share: float

    @property
    def epochs(self) -> float:
        """Passes over the training part, each validation counted as the part of a pass that it costs."""
        return (self.tuning_epochs + self.final_epochs) * (1 + self.evaluation_share)


def describe(dataset: Dataset, spec: ModelSpec) -> Workload:
    """Demand of one sample of `dataset` through the model `spec`.

    Raises:
        RequestError: the model family is unknown, or cannot take these features.
    """
    counts = count_model(spec, dataset.features, ids_per_sample=_ids_per_sample(dataset))
    return Workload(
        matmul_flops_per_sample=counts.matmul_flops_per_sample,
        lookups_per_sample=counts.lookups_per_sample,
        lookup_bytes_per_sample=counts.lookup_bytes_per_sample,
        input_bytes_per_sample=counts.input_bytes_per_sample,
        parameter_bytes=counts.parameter_bytes,
        optimizer_bytes=counts.optimizer_bytes,
        activation_bytes_per_sample=counts.activation_bytes_per_sample,
        operators_per_step=counts.operators_per_step,
        train_samples=dataset.splits["train"].rows,
    )


def job_size(dataset: Dataset, request: TrainRequest) -> JobSize:
    """Epochs of tuning by `hyperband_epochs`, and of the members as if each trained for `max_epochs`."""
    train, validation = dataset.splits["train"].rows, dataset.splits["validation"].rows
    return JobSize(
        tuning_epochs=hyperband_epochs(request.trials, request.max_epochs),
        final_epochs=request.ensemble_size * request.max_epochs,
        evaluation_share=EVALUATION_SHARE * validation / train,
    )


def hyperband_epochs(trials: int, max_epochs: int) -> int:
    """Epochs that Hyperband spends on `trials` settings of at most `max_epochs` each, rounded up at every rung.

    Li et al., "Hyperband", JMLR 18, 2018, in the asynchronous form that Optuna runs: the brackets share the settings;
    bracket b has its first rung after 3^b epochs and each next one at three times as many. A setting passes a rung when
    it is among the best third of those that have reached it so far, and the first to arrive always passes, so the m-th
    of settings in random order passes with probability max(1, floor(m / 3)) / m: more than one third. This is above the
    mean but no bound: settings that arrive from worst to best all pass, which is what the budget is for.
    """
    brackets = 1 + math.floor(math.log(max_epochs, REDUCTION_FACTOR) + 1e-9)
    total = 0
    for bracket in range(brackets):
        settings, reached = math.ceil(trials / brackets), 0
        rung = REDUCTION_FACTOR**bracket
        while reached < max_epochs:
            epochs = min(rung, max_epochs)
            total += settings * (epochs - reached)
            settings, reached, rung = _passing(settings), epochs, rung * REDUCTION_FACTOR
    return min(total, trials * max_epochs)


def _passing(settings: int) -> int:
    """Settings, out of those that reach a rung, that are expected to pass it, rounded up."""
    return math.ceil(sum(max(1, count // REDUCTION_FACTOR) / count for count in range(1, settings + 1)) - 1e-9)


def _ids_per_sample(dataset: Dataset) -> dict[str, float]:
    """Mean length of each multi-valued field's bag in the training part."""
    rows = dataset.splits["train"].rows
    means = {}
    for index, field in enumerate(dataset.features.categorical):
        if field.multi_valued:
            values = np.load(dataset.directory / f"train.bag{index}.values.npy", mmap_mode="r")
            means[field.name] = len(values) / rows
    return means
