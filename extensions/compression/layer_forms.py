"""Compressed forms of a model's layers, as saved in `model.json` under `compression`."""

import copy
from collections.abc import Mapping
from typing import Any

from torch import nn

from shunter.extensions.compression.compressed_linear import CompressedLinear, Int8Linear, ProductLinear, PrunedLinear
from shunter.models.recommender import Recommender

FORMS: dict[str, type[CompressedLinear]] = {form.form: form for form in (Int8Linear, ProductLinear, PrunedLinear)}


class LayerCompression:
    """Alteration of a trained model: compressed forms of its linear layers."""

    def describe(self, model: Recommender) -> dict[str, Any]:
        """Return the form and its options for each compressed layer, by its path, as stored in the model's file."""
        forms = {path: one for path, one in model.layers.named_modules() if isinstance(one, CompressedLinear)}
        return {"layers": {path: {"form": one.form, **one.options} for path, one in forms.items()}}

    def prepare(self, layers: nn.Module, description: Mapping[str, Any]) -> None:
        """Replace layers by the forms of a description, without weights.

        Raises:
            ValueError: A path, a form or an option does not exist.
        """
        if set(description) != {"layers"}:
            raise ValueError(f"unknown compression: {', '.join(sorted(description))}")
        for path, values in description["layers"].items():
            form, options = values["form"], {name: value for name, value in values.items() if name != "form"}
            if not all(isinstance(value, int) for value in options.values()):
                raise ValueError(f"the compressed layer {path!r} has an option that is not a whole number")
            linear = linears_of(layers).get(path)
            if linear is None or form not in FORMS:
                raise ValueError(f"the model has no linear layer {path!r} that could be compressed as {form!r}")
            layers.set_submodule(path, FORMS[form].empty(linear, **options))

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
