"""Subject of a compression: a trained model, calibration rows, limits, and the search for the forms of its layers."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, product
from typing import Literal

import torch
from torch import Tensor, nn

from shunter.engine.data.batch import Batch
from shunter.engine.metrics import Metrics
from shunter.extensions.compression.bench import Bench
from shunter.extensions.compression.compressed_linear import CompressedLinear
from shunter.extensions.compression.fine_tune import FineTuning
from shunter.extensions.compression.layer_forms import linears_of, replaced
from shunter.models.ensemble import Ensemble
from shunter.models.output_layer import OutputLayer
from shunter.models.registry import Model
from shunter.search.methods.samplers import tpe_sampler

Choices = Mapping[str, Sequence[str]]
Point = dict[str, str]
Costs = tuple[float, ...]  # all are minimised
# Search of a discrete space: returns at most as many distinct points as its last argument, each with its costs.
FormSearch = Callable[[Choices, Callable[[Point], Costs], int], Sequence[tuple[Point, Costs]]]
LEAST_WIDTH = 32  # on both sides of a layer, for a compressed form


def every_point(choices: Choices, costs: Callable[[Point], Costs], trials: int) -> list[tuple[Point, Costs]]:
    """Return the first `trials` points of the space with their costs, in the order of the listed values."""
    points = (dict(zip(choices, values, strict=True)) for values in product(*choices.values()))
    return [(point, costs(point)) for point in islice(points, trials)]


def search_choices(choices: Choices, costs: Callable[[Point], Costs], trials: int) -> Sequence[tuple[Point, Costs]]:
    """Try points of a space; see `shunter.extensions.compression.subject.FormSearch`.

    If the space has at most `trials` points, all are tried. Otherwise the first points have one value for all choices,
    such as `int8` for every layer; the others are sampled by multi-objective TPE (Ozaki et al., GECCO 2020).

    Args:
        choices: Values of each choice.
        costs: Function that returns the costs of a point, all of which are minimised.
        trials: Largest number of points.
    """
    if math.prod(map(len, choices.values())) <= trials:
        return every_point(choices, costs, trials)
    import optuna

    alike = [dict.fromkeys(choices, value) for value in dict.fromkeys(one for of in choices.values() for one in of)]
    first = [point for point in alike if all(value in choices[name] for name, value in point.items())]
    found: dict[tuple[str, ...], tuple[Point, Costs]] = {}

    def costs_of(point: Point) -> Costs:
        key = tuple(point.values())
        if key not in found:
            found[key] = point, costs(point)
        return found[key][1]

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = None
        for number in range(3 * trials):  # a sampler may repeat points
            if len(found) >= trials:
                break
            point = first[number] if number < len(first) else None
            if study is None:
                point = point or {name: values[0] for name, values in choices.items()}
                width = len(costs_of(point))
                study = optuna.create_study(
                    directions=[optuna.study.StudyDirection.MINIMIZE] * width, sampler=tpe_sampler(0, trials)
                )
            if point is not None:
                study.enqueue_trial(point)
            trial = study.ask()
            drawn = {name: trial.suggest_categorical(name, tuple(values)) for name, values in choices.items()}
            study.tell(trial, costs_of(drawn))
    finally:
        optuna.logging.set_verbosity(verbosity)
    return list(found.values())


Place = tuple[int, str]  # index of the member, path within its layers


@dataclass(frozen=True)
class QualityLimit:
    """Limit on the quality on validation.

    Attributes:
        metric: Metric that is limited: `auc` of predicted clicks, or `rmse` of predicted numbers.
        bound: Lowest allowed AUC, or highest allowed RMSE.
    """

    metric: Literal["auc", "rmse"]
    bound: float

    @property
    def label(self) -> str:
        """Return the name of the metric as shown to users: `AUC` or `RMSE`."""
        return self.metric.upper()

    def of(self, metrics: Metrics) -> float:
        """Return the value of the limited metric."""
        value = getattr(metrics, self.metric)
        return math.nan if value is None else float(value)

    def loss(self, value: float) -> float:
        """Return the metric's value with a sign such that lower is better."""
        return -value if self.metric == "auc" else value

    def is_kept(self, value: float) -> bool:
        """Return True if a value of the metric meets the limit; NaN does not."""
        return self.loss(value) <= self.loss(self.bound)


@dataclass(frozen=True)
class CompressionLimits:
    """Limits on a compressed model.

    Attributes:
        quality: Limit on the compressed model's quality on validation.
        max_bytes: Largest number of bytes of the compressed model's weights; None for no limit.
    """

    quality: QualityLimit
    max_bytes: int | None = None


@dataclass(frozen=True)
class CompressionSubject:
    """Trained model, with everything that its compression needs.

    Attributes:
        model: Model, on the CPU in evaluation mode.
        bench: Bench that compares models.
        calibration: Training rows with labels, to which a compressed model is calibrated.
        limits: Limits on the compressed model.
        fine_tuning: Settings of the fine-tuning.
        search: Search for the forms of the layers.
        form_name: Name of the compressed form, if a compression has several.
    """

    model: Model | Ensemble
    bench: Bench
    calibration: Batch
    limits: CompressionLimits
    fine_tuning: FineTuning = FineTuning()  # noqa: RUF009 - frozen
    search: FormSearch = every_point
    form_name: str = ""

    def with_model(self, model: Model | Ensemble) -> "CompressionSubject":
        """Return a copy of this subject with another model to compress."""
        return replace(self, model=model)


def members_of(model: Model | Ensemble) -> tuple[Model, ...]:
    """Return the members of an ensemble, or the single model."""
    return model.models if isinstance(model, Ensemble) else (model,)


def hidden_linears(model: Model | Ensemble) -> dict[Place, nn.Linear]:
    """Return the linear layers that may be compressed: all wide layers except the last, which returns logits."""
    return {
        (number, path): linear
        for number, member in enumerate(members_of(model))
        for path, linear in linears_of(member.layers).items()
        if not isinstance(linear, OutputLayer) and min(linear.in_features, linear.out_features) >= LEAST_WIDTH
    }


def with_forms(model: Model | Ensemble, forms: Mapping[Place, CompressedLinear]) -> Model | Ensemble:
    """Return a model whose layers in `forms` are replaced by compressed ones; all else is shared with `model`."""
    made: list[Model] = []
    for number, member in enumerate(members_of(model)):
        own = {path: form for (of, path), form in forms.items() if of == number}
        made.append(member.with_layers(replaced(member.layers, own)).eval())
    return with_members(model, made)


def with_members(model: Model | Ensemble, members: list[Model]) -> Model | Ensemble:
    """Return an ensemble of `members` with the weights and combiner of `model`; for a single model, the one member."""
    if not isinstance(model, Ensemble):
        return members[0]
    ensemble = Ensemble(members, model.weights.tolist())
    ensemble.weights, ensemble.combiner = model.weights, model.combiner
    return ensemble.eval()


@torch.no_grad()
def inputs_of_layers(model: Model | Ensemble, batch: Batch) -> dict[Place, Tensor]:
    """Return the inputs of each compressible layer for a batch, float32 `[rows, inputs]`."""
    places = hidden_linears(model)
    seen: dict[Place, Tensor] = {}

    def keep(place: Place, _: nn.Module, given: tuple[Tensor, ...]) -> None:
        seen[place] = given[0].detach().float().reshape(-1, given[0].shape[-1])

    handles = [linear.register_forward_pre_hook(partial(keep, place)) for place, linear in places.items()]
    try:
        model(*batch.inputs)
    finally:
        for handle in handles:
            handle.remove()
    return seen
