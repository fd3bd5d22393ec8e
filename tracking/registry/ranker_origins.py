"""Members of a champion that is a graph model, with their training settings, from which a night continues."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shunter.engine.ranking.config import RankingHyperparameters
from shunter.engine.ranking.result import TrainedRanker
from shunter.errors import RequestError
from shunter.models.graph import GraphSpec, graph_spec
from shunter.models.graph.fusion import By
from shunter.tracking.registry.versions import Version

MEMBERS = "nightly.rankers"  # tag of a version: its members, each with what it was learned with


@dataclass(frozen=True)
class RankerOrigin:
    """A member that a challenger has too.

    Attributes:
        member: Number of the member in the champion.
        spec: Its architecture.
        hyperparameters: What it was learned with at first.
        epochs: Epochs that were best then.
    """

    member: int
    spec: GraphSpec
    hyperparameters: RankingHyperparameters
    epochs: int


@dataclass(frozen=True)
class RankerOrigins:
    """All members of a champion.

    Attributes:
        members: The members, in their order.
        by: What is added up of several; None of a single one.
    """

    members: tuple[RankerOrigin, ...]
    by: By | None


def ranker_tags(members: Sequence[TrainedRanker], by: By | None = None) -> dict[str, str]:
    """Return tags with the settings of a version, for later nights.

    Args:
        members: Its members, in their order, as they were learned at first.
        by: What is added up of several.
    """
    kept = [_kept(one.spec, one.hyperparameters, one.best_epoch) for one in members]
    return {MEMBERS: json.dumps({"by": by, "members": kept})}


def tags_again(origins: RankerOrigins) -> dict[str, str]:
    """Return the tags of a challenger that continues from a champion with the same settings."""
    kept = [_kept(one.spec, one.hyperparameters, one.epochs) for one in origins.members]
    return {MEMBERS: json.dumps({"by": origins.by, "members": kept})}


def origins_of(version: Version) -> RankerOrigins:
    """Read back what `ranker_tags` keeps with a version.

    Raises:
        RequestError: The version was registered before it was kept.
    """
    if MEMBERS not in version.tags:
        raise RequestError(
            f"Version {version.version} of {version.name!r} ranks, and its training settings are unknown: train "
            "and register a newer one, or name another model with --register-as."
        )
    kept = json.loads(version.tags[MEMBERS])
    members = tuple(
        RankerOrigin(
            member=number,
            spec=graph_spec(**one["spec"]),
            hyperparameters=RankingHyperparameters(**one["learned_with"]),
            epochs=one["epochs"],
        )
        for number, one in enumerate(kept["members"])
    )
    return RankerOrigins(members=members, by=kept["by"])


def _kept(spec: GraphSpec, hyperparameters: RankingHyperparameters, epochs: int) -> dict[str, Any]:
    return {"spec": spec.to_dict(), "learned_with": hyperparameters.to_dict(), "epochs": epochs}
