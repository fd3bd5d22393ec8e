"""Layers of a finished model that its family does not build, and the entries that describe and restore them.

An alteration is named as its key in `model.json`, whose value has a description for each member of the model.

Capabilities:
    keeps_weights: Whether the model keeps the weights of the layers that its family builds, which score equally within
        rounding: the model can learn on, and scores without the alteration where that is not installed.
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
    """Role of an alteration."""

    def describe(self, model: Recommender) -> Any:
        """Return the plain values from which `finish` restores the altered layers of a model."""
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


def finish(members: Sequence[Recommender], descriptions: Mapping[str, Sequence[Any]]) -> None:
    """Restore the altered layers of the members of a loaded model in evaluation mode; inverse of `descriptions_of`.

    Raises:
        ValueError: A description is not valid in this version.
        MissingExtensionError: A model lacks its original weights, and the extension that restores it is not installed.
    """
    for name, described in descriptions.items():
        entry = ALTERATIONS.entries.get(name)
        if entry and entry.capabilities.get("keeps_weights") and not entry.is_installed:
            log.warning("A model scores with its original layers, since the extension %r is not installed.", name)
            continue
        for member, one in zip(members, described, strict=True):
            ALTERATIONS.load(name).finish(member, one)


def is_altered(model: nn.Module) -> bool:
    """Return True if a model, or a member of an ensemble, has altered layers."""
    return any(True for _ in _altered(model))


def keeps_weights(model: nn.Module) -> bool:
    """Return True if a model, or each member of an ensemble, has all weights of the layers that its family builds."""
    return all(ALTERATIONS.capability(layers.alteration, "keeps_weights") for layers in _altered(model))


def _altered(model: nn.Module) -> Iterator[AlteredLayers]:
    return (module for module in model.modules() if isinstance(module, AlteredLayers))
