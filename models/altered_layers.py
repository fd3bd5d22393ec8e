"""Layers of a finished model that its family does not build, and the entries that describe and restore them.

The name of an alteration is a key in `model.json`, whose value has a description for each member of the model.

Capabilities:
    keeps_weights: Whether the model keeps the weights of the layers that its family builds, and these layers score
        equally within rounding. Such a model can be trained further, and scores where the alteration is not installed.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from torch import nn

from shunter.models.recommender import Recommender
from shunter.registry import Entry, Registry

log = logging.getLogger(__name__)

ALTERATIONS = Registry(
    "alteration of layers",
    {
        "compression": Entry(target="shunter.extensions.compression.layer_forms:COMPRESSION"),
        "rewriting": Entry(
            target="shunter.extensions.rewriting.scheme:REWRITING",
            capabilities={"keeps_weights": True},
        ),
    },
    group="shunter.alterations",
    defaults={"keeps_weights": False},
)


class AlteredLayers(nn.Module):
    """Layers of a finished model in place of layers that its family builds.

    Attributes:
        alteration: Name of the alteration.
    """

    alteration: ClassVar[str]


class Alteration(Protocol):
    """Interface of an alteration, which replaces layers of a trained model, such as compression or rewriting."""

    def describe(self, model: Recommender) -> Any:
        """Return the plain values from which `prepare` and `finish` restore the altered layers of a model."""
        ...

    def prepare(self, layers: nn.Module, description: Any) -> None:
        """Replace layers that a family builds by altered layers without weights, before weights are loaded.

        Raises:
            ValueError: The description is not valid in this version.
        """
        ...

    def finish(self, model: Recommender, description: Any) -> None:
        """Restore altered layers in a model that has its weights and is in evaluation mode.

        Raises:
            ValueError: The description is not valid in this version.
        """
        ...


def descriptions_of(members: Sequence[Recommender]) -> dict[str, list[Any]]:
    """Return the descriptions of the altered layers of the members of a model, by the name of the alteration."""
    names = dict.fromkeys(layers.alteration for member in members for layers in _altered(member))
    ordered = sorted(names, key=(*ALTERATIONS.entries, *names).index)
    return {name: [ALTERATIONS.load(name).describe(member) for member in members] for name in ordered}


def prepare(layers: nn.Module, alterations: Mapping[str, Any]) -> None:
    """Replace layers that a family builds by altered layers without weights.

    Args:
        layers: Layers of one model.
        alterations: Descriptions of that model, by the name of the alteration.

    Raises:
        ValueError: A description is not valid in this version.
        MissingExtensionError: The weights depend on an alteration whose extension is not installed.
    """
    for name, description in alterations.items():
        if not _is_left_out(name):
            ALTERATIONS.load(name).prepare(layers, description)


def finish(model: Recommender, alterations: Mapping[str, Any]) -> None:
    """Restore the altered layers of a loaded model in evaluation mode; skip alterations that are not installed."""
    for name, description in alterations.items():
        if _is_left_out(name):
            log.warning("A model scores with its original layers, because the extension %r is not installed.", name)
        else:
            ALTERATIONS.load(name).finish(model, description)


def _is_left_out(name: str) -> bool:
    """Return True if an alteration is not installed and the model can score without it."""
    entry = ALTERATIONS.entries.get(name)
    return entry is not None and bool(entry.capabilities.get("keeps_weights")) and not entry.is_installed


def is_altered(model: nn.Module) -> bool:
    """Return True if a model, or a member of an ensemble, has altered layers."""
    return any(True for _ in _altered(model))


def keeps_weights(model: nn.Module) -> bool:
    """Return True if a model, or each member of an ensemble, has all weights of the layers that its family builds."""
    return all(ALTERATIONS.capability(layers.alteration, "keeps_weights") for layers in _altered(model))


def _altered(model: nn.Module) -> Iterator[AlteredLayers]:
    return (module for module in model.modules() if isinstance(module, AlteredLayers))
