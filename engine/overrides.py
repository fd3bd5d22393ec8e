"""Overrides by `--set`: fields of a model family's configuration and of the hyperparameters."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from pydantic import TypeAdapter, ValidationError

from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.errors import RequestError
from shunter.label_losses import predicts_probability
from shunter.model_families import AUTO, MODEL_FAMILIES, is_ranking, is_solved
from shunter.models.graph import graph_spec
from shunter.models.graph.registry import check_graph_spec
from shunter.models.names import auto_families
from shunter.models.optimizers import DENSE_OPTIMIZERS
from shunter.models.registry import build_layers, family_of, model_spec
from shunter.models.spec import Features
from shunter.validation import unknown

OWN_OPTIONS = {"towers": "--towers", "tower_fields": "--tower-partition", "task_weights": "--task-weights"}
PATIENCE = "patience"


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """Overrides by field name; other fields are searched, or have their defaults.

    Attributes:
        architecture: Fields of the family's configuration.
        learning: Fields of the hyperparameters.
        patience: Epochs without a better validation figure after which training stops; None is the default.
    """

    architecture: dict[str, Any] = field(default_factory=dict)
    learning: dict[str, Any] = field(default_factory=dict)
    patience: int | None = None


def read_overrides(model: str, entries: Sequence[str]) -> Overrides:
    """Parse the `--set` entries for a model; for `auto`, all families that it stands for must have the field.

    Args:
        model: Name of a family, or `auto`.
        entries: `field=value`; values of a list are separated by commas, and `none` means no value.

    Raises:
        RequestError: A field is unknown or belongs to other families, or a value is not of the field's type.
    """
    families = auto_families() if model == AUTO else (model,)
    classes = [type(graph_spec(one)) if is_ranking(one) else family_of(one).spec for one in families]
    learned_with = None  # a closed-form model has only an architecture
    if not is_solved(model):
        learned_with = RankingHyperparameters if is_ranking(model) else Hyperparameters
    found = Overrides()
    for entry in entries:
        name, _, text = entry.partition("=")
        if name in OWN_OPTIONS:
            raise RequestError(
                f"The setting {name} has an option of its own: use {OWN_OPTIONS[name]} instead of --set."
            )
        if name == PATIENCE:
            found = replace(found, patience=_value(Schedule, name, text))
        elif learned_with is not None and name in _types(learned_with):
            found.learning[name] = _value(learned_with, name, text)
        elif all(name in _types(one) for one in classes):
            found.architecture[name] = _value(classes[0], name, text)
        else:
            rates = [] if learned_with is None else [*_types(learned_with)]
            shared = [own for own in _types(classes[0]) if all(own in _types(one) for one in classes)]
            raise _not_known(name, model, [*rates, PATIENCE, *shared])
    if "dense_optimizer" in found.learning:
        DENSE_OPTIMIZERS.entry(found.learning["dense_optimizer"])
    if "loss" in found.learning:
        loss = found.learning["loss"]
        if not predicts_probability(loss):
            raise RequestError(f"--set loss={loss} is for a label that is a number: use --loss {loss}.")
    return found


def check_overrides(model: str, overrides: Overrides, features: Features) -> None:
    """Check that overrides build a model of these features, before anything is measured or trained.

    Raises:
        RequestError: No model can be built; the message states the reason.
    """
    if is_ranking(model):
        check_graph_spec(graph_spec(model, **overrides.architecture))
        return
    for family in auto_families(features) if model == AUTO else (model,):
        if because := why_not_built(family, overrides.architecture, features):
            raise RequestError(because)


def why_not_built(family: str, architecture: Mapping[str, Any], features: Features) -> str | None:
    """Return why a family's layers cannot be built with the configuration `architecture`; None if they can."""
    try:
        with torch.device("meta"):
            build_layers(model_spec(family, **architecture), features)
    except RequestError as error:
        return str(error)
    except (ValueError, RuntimeError, ZeroDivisionError) as error:
        given = ", ".join(f"{name}={value}" for name, value in architecture.items())
        return f"A model of family {family!r} cannot be built with {given} ({error}): change them."
    return None


def _types(kind: type) -> Mapping[str, Any]:
    """Return the types of the fields of a dataclass, by name."""
    hints = get_type_hints(kind)
    return {one.name: hints[one.name] for one in fields(kind)}


def _not_known(name: str, model: str, known: Sequence[str]) -> RequestError:
    owners = [family for family in MODEL_FAMILIES.names if name in _types(family_of(family).spec)]
    if owners:
        return RequestError(
            f"--set {name} does nothing for --model {model}: leave it out, or use --model {' or '.join(owners)}."
        )
    named = unknown(name, [one for one in known if one not in OWN_OPTIONS], "field", f"--set of --model {model}")
    return RequestError(f"{named[0].upper()}{named[1:]}" + ("" if named.endswith("?") else "."))


def _value(kind: type, name: str, text: str) -> Any:
    """Return the value of a field, parsed from its text; raise RequestError if the text does not suit the field."""
    hint = _types(kind)[name]
    try:
        value = TypeAdapter(hint).validate_python(_parsed(text.strip(), hint))
    except ValidationError:
        raise RequestError(f"--set {name}={text} has an unsuitable value: give {_expected(hint)}.") from None
    least = 1 if name == PATIENCE else 0
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, int | float) and not (math.isfinite(number) and number >= least):
            raise RequestError(f"--set {name}={text} is too small: give a number of at least {least}.")
    return value


def _parsed(text: str, hint: Any) -> Any:
    """Split the text of a list into its items, and turn `none` into None; return any other text unchanged."""
    if NoneType in get_args(hint) and text.lower() in ("none", "null", ""):
        return None
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        return tuple(_parsed(part.strip(), inner) for part in text.strip("[]()").split(",") if part.strip())
    return text


def _expected(hint: Any) -> str:
    """Return a description of the values that a field takes."""
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}
    if hint in words:
        return words[hint]
    parts = get_args(hint)
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if get_origin(hint) is tuple:
        plural = {int: "whole numbers", float: "numbers", str: "names"}
        what = plural.get(parts[0], f"values, each {_expected(parts[0])}")
        return f"{what} with commas between them"
    return " or ".join("none" if part is NoneType else _expected(part) for part in parts)
