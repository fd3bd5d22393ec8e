"""Compressed forms of a model's layers, as saved in `model.json` under `compression`."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from shunter.extensions.compression.compressed_linear import CompressedLinear
from shunter.extensions.compression.int8 import Int8Linear
from shunter.extensions.compression.product import ProductLinear
from shunter.extensions.compression.pruned import PrunedLinear
from shunter.models.recommender import Recommender

FORMS: dict[str, type[CompressedLinear]] = {form.form: form for form in (Int8Linear, ProductLinear, PrunedLinear)}


@dataclass(frozen=True, kw_only=True)
class LayerForm:
    """Compressed form of one linear layer, with its options.

    Attributes:
        form: Name of the form in `shunter.extensions.compression.layer_forms`.
        options: Options of the form besides the layer's shape.
    """

    form: str
    options: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Compression:
    """Compressed forms of the layers of a model.

    Attributes:
        layers: Forms by the path of a linear layer within `Recommender.layers`.
    """

    layers: Mapping[str, LayerForm] = field(default_factory=dict)

    @classmethod
    def of(cls, layers: nn.Module) -> "Compression":
        """Return the forms in the layers of a model."""
        return cls(
            layers={
                path: LayerForm(form=module.form, options=module.options)
                for path, module in layers.named_modules()
                if isinstance(module, CompressedLinear)
            }
        )

    def apply(self, layers: nn.Module) -> None:
        """Replace layers of a model by compressed ones without weights, before the weights are loaded.

        Raises:
            ValueError: A path or a form does not exist.
        """
        for path, form in self.layers.items():
            place = linears_of(layers).get(path)
            if place is None or form.form not in FORMS:
                raise ValueError(f"the model has no linear layer {path!r} that could be compressed as {form.form!r}")
            layers.set_submodule(path, FORMS[form.form].empty(place, **form.options))

    def __bool__(self) -> bool:
        return bool(self.layers)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"layers": {path: {"form": one.form, **one.options} for path, one in self.layers.items()}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Compression":
        """Return the forms from the values of `to_dict`.

        Raises:
            ValueError: The values belong to another version.
        """
        if set(values) != {"layers"}:
            raise ValueError(f"unknown compression: {', '.join(sorted(values))}")
        layers: dict[str, LayerForm] = {}
        for path, form in values["layers"].items():
            options = {name: value for name, value in form.items() if name != "form"}
            if not all(isinstance(value, int) for value in options.values()):
                raise ValueError(f"the compressed layer {path!r} has an option that is not a whole number")
            layers[path] = LayerForm(form=form["form"], options=options)
        return cls(layers=layers)


class LayerCompression:
    """Alteration of a trained model: compressed forms of its linear layers."""

    def describe(self, model: Recommender) -> dict[str, Any]:
        """Return how each layer of a model is compressed, as plain values that are stored in the model's file."""
        return Compression.of(model.layers).to_dict()

    def prepare(self, layers: nn.Module, description: Mapping[str, Any]) -> None:
        """Replace layers by the forms of a description, without weights.

        Raises:
            ValueError: A path, a form or an option does not exist.
        """
        Compression.from_dict(description).apply(layers)

    def finish(self, model: Recommender, description: Mapping[str, Any]) -> None:
        """Do nothing, because the loaded weights already have the compressed form."""


COMPRESSION = LayerCompression()


def linears_of(layers: nn.Module) -> dict[str, nn.Linear]:
    """Return the linear layers of a module by their path."""
    return {path: module for path, module in layers.named_modules() if isinstance(module, nn.Linear)}


def replaced(layers: nn.Module, forms: Mapping[str, CompressedLinear]) -> nn.Module:
    """Return a copy of layers with replacements at some paths; all others share weights with the original."""
    shared = {id(tensor): tensor for tensor in [*layers.parameters(), *layers.buffers()]}
    made = copy.deepcopy(layers, shared)  # pyright: ignore[reportArgumentType] - a memo maps ids to what stands for them
    for path, form in forms.items():
        made.set_submodule(path, form)
    return made


def is_compressed(model: nn.Module) -> bool:
    """Return True if a model, or a member of an ensemble, has compressed layers."""
    return any(isinstance(module, CompressedLinear) for module in model.modules())
