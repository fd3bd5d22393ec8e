"""Pass that replaces hidden layers by lookup tables where these are faster."""

import copy
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial

import numpy as np
import torch
from torch import nn

from shunter.errors import InfeasibleError
from shunter.extensions.compression.compressed_linear import CompressedLinear, Int8Linear, ProductLinear
from shunter.extensions.compression.compression_passes import Candidate, SmallerModel, fastest_within_limits
from shunter.extensions.compression.fine_tune import LearnedProduct, divergence, learned_products
from shunter.extensions.compression.layer_forms import replaced
from shunter.extensions.compression.subject import (
    CompressionSubject,
    Place,
    Point,
    hidden_linears,
    inputs_of_layers,
    members_of,
)
from shunter.models.layers import after_relu
from shunter.pareto import on_front

# Sub-vector lengths, numbers of prototypes and bits that are tried, by the names in the search.
FORMS: dict[str, dict[str, int]] = {
    f"{length}x{prototypes}@{bits}": {"length": length, "prototypes": prototypes, "bits": bits}
    for length, prototypes in ((8, 16), (16, 16), (32, 16), (64, 16), (32, 64), (64, 64))
    for bits in (8, 4)
}
AS_IT_IS, INT8 = "as it is", "int8"
TRIALS, MOST_CANDIDATES, LEAST_ROWS_A_PROTOTYPE = 24, 7, 8
SCORED_ROWS = 2_048  # calibration rows for the comparison of points before fine-tuning


class ProductLayers(SmallerModel):
    """Pass `product`: searches which layers become lookup tables or 8-bit layers, then fine-tunes the model."""

    name = "product"

    def apply(self, subject: CompressionSubject) -> CompressionSubject:
        """Return the fastest of the searched models that is within the limits after fine-tuning.

        Raises:
            InfeasibleError: No layer is faster as lookup tables, or there are too few rows for prototypes.
        """
        layers = _Layers(subject)
        points = layers.worth_trying()
        counted = 2 if subject.limits.max_bytes is None else 3
        found = subject.search(points, lambda point: layers.costs(point)[:counted], TRIALS)
        # At most `MOST_CANDIDATES` Pareto-optimal points with lookup tables, the fastest first.
        known = [(point, costs) for point, costs in found if any(value in FORMS for value in point.values())]
        marked = on_front(np.array([costs for _, costs in known]))
        best = sorted((one for one, is_best in zip(known, marked, strict=True) if is_best), key=lambda one: one[1][1])
        chosen = np.unique(np.linspace(0, len(best) - 1, MOST_CANDIDATES).round().astype(int))
        return fastest_within_limits(subject, [layers.candidate(best[number][0]) for number in chosen])


class _Layers:
    """Hidden layers of a model, with the measured time of each layer unchanged, in 8 bits and as lookup table."""

    def __init__(self, subject: CompressionSubject) -> None:
        self.subject = subject
        self.linears = hidden_linears(subject.model)
        self.seen = inputs_of_layers(subject.model, subject.calibration)
        self.members = members_of(subject.model)
        self.positive = {
            (number, path) for number, member in enumerate(self.members) for path in after_relu(member.layers)
        }
        with torch.no_grad():
            inputs = [member.layer_inputs(*subject.calibration.inputs) for member in self.members]
        self.inputs = [tuple(one[:SCORED_ROWS] for one in of) for of in inputs]
        self.seconds: dict[tuple[Place, str], float] = {}
        self.learned = lru_cache(maxsize=None)(
            lambda place, name: LearnedProduct(self.linears[place], self.seen[place], FORMS[name])
        )

    def worth_trying(self) -> dict[str, list[str]]:
        """Return the forms to search by layer: those faster than the original, or all if the model's size is limited.

        Raises:
            InfeasibleError: No layer has a lookup table among its forms.
        """
        rows = len(next(iter(self.seen.values())))
        enough = [name for name, form in FORMS.items() if form["prototypes"] * LEAST_ROWS_A_PROTOTYPE <= rows]
        is_for_bytes = self.subject.limits.max_bytes is not None
        points: dict[str, list[str]] = {}
        for place, linear in self.linears.items():
            fitting = [name for name in enough if FORMS[name]["length"] <= linear.in_features]
            int8 = Int8Linear.of(linear, is_signed=place not in self.positive)
            forms = {INT8: int8, **{name: ProductLinear.empty(linear, **FORMS[name]) for name in fitting}}
            seen = self.seen[place][:SCORED_ROWS]
            works = [lambda one=one, seen=seen: one(seen) for one in (linear, *forms.values())]
            own, *others = self.subject.bench.seconds(works)
            self.seconds[place, AS_IT_IS] = own
            self.seconds |= {(place, name): taken for name, taken in zip(forms, others, strict=True)}
            kept = [name for name, taken in zip(forms, others, strict=True) if taken < own or is_for_bytes]
            points[_named(place)] = [AS_IT_IS, *kept]
        if not any(value in FORMS for values in points.values() for value in values):
            raise InfeasibleError("no hidden layer is faster as a lookup table on this machine")
        return points

    def costs(self, point: Point) -> tuple[float, float, float]:
        """Return the costs of a point, one form per layer: divergence before fine-tuning, seconds and bytes.

        The divergence is that of the predictions from the original model's.
        """
        finished = [
            _finish(layers, self._int8_places(point, number)) for number, layers in enumerate(self._learning(point))
        ]
        parts = zip(finished, self.members, self.inputs, strict=True)
        apart = sum(divergence(one, member, inputs) for one, member, inputs in parts)
        seconds = sum(self.seconds[place, point[_named(place)]] for place in self.linears)
        size = sum(tensor.nbytes for layers in finished for tensor in layers.state_dict().values())
        return apart, seconds, float(size)

    def candidate(self, point: Point) -> Candidate:
        """Return the model with the forms of a point, one per layer, as a candidate for fine-tuning."""
        places = [self._int8_places(point, number) for number in range(len(self.members))]

        def finished(learned: Sequence[nn.Module]) -> list[nn.Module]:
            return [_finish(layers, int8) for layers, int8 in zip(learned, places, strict=True)]

        named = ", ".join(f"{path} {point[_named((number, path))]}" for number, path in self.linears)
        return Candidate(named, partial(self._learning, point), finished)

    def _learning(self, point: Point) -> list[nn.Module]:
        """Return a copy of each member's layers, with trainable lookup tables where the point has them."""
        made: list[nn.Module] = []
        for number, member in enumerate(self.members):
            layers = copy.deepcopy(member.layers)
            for place in self.linears:
                if place[0] == number and point[_named(place)] in FORMS:
                    layers.set_submodule(place[1], copy.deepcopy(self.learned(place, point[_named(place)])))
            made.append(layers)
        return made

    def _int8_places(self, point: Point, number: int) -> Mapping[str, bool]:
        """Return the paths of a member's layers that become 8-bit, each with True if its inputs are signed."""
        return {
            path: (of, path) not in self.positive
            for of, path in self.linears
            if of == number and point[_named((of, path))] == INT8
        }


def _finish(layers: nn.Module, int8: Mapping[str, bool]) -> nn.Module:
    """Return a copy of layers for scoring: lookup tables as trained, and the layers in `int8` as 8-bit layers."""
    forms: dict[str, CompressedLinear] = {path: one.finished_copy() for path, one in learned_products(layers).items()}
    for path, is_signed in int8.items():
        linear = layers.get_submodule(path)
        assert isinstance(linear, nn.Linear)
        forms[path] = Int8Linear.of(linear, is_signed=is_signed)
    return replaced(layers, forms)


def _named(place: Place) -> str:
    return f"{place[0]}.{place[1]}"


PASS = ProductLayers()
