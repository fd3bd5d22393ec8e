"""Members of a champion that is a graph model, with their training settings for nightly retraining."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shunter.engine.config import Repeats
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.engine.ranking.result import TrainedRanker
from shunter.errors import RequestError
from shunter.models.graph import GraphSpec, graph_spec
from shunter.models.graph.spec import By
from shunter.tracking.registry.versions import Version

MEMBERS = "nightly.rankers"  # tag of a version: its members, with their training settings


@dataclass(frozen=True)
class RankerOrigin:
    """Member of a champion, which nightly retraining trains anew for the challenger.

    Attributes:
        member: Number of the member in the champion.
        spec: Architecture of the member.
        hyperparameters: Hyperparameters of the first training.
        epochs: Best number of epochs in the first training.
    """

    member: int
    spec: GraphSpec
    hyperparameters: RankingHyperparameters
    epochs: int


@dataclass(frozen=True)
class RankerOrigins:
    """All members of a champion.

    Attributes:
        members: Members by number.
        by: Kind of scores that the ensemble sums over its members; None for a single model.
        repeats: Whether pairs that occur in earlier rows count in evaluations of the model.
    """

    members: tuple[RankerOrigin, ...]
    by: By | None
    repeats: Repeats = "drop"


def ranker_tags(members: Sequence[TrainedRanker], by: By | None = None) -> dict[str, str]:
    """Return tags of a registered version with its members' training settings, for nightly retraining.

    Args:
        members: Members of the version, by number, from their first training.
        by: Kind of scores that the ensemble sums over its members; None for a single model.
    """
    kept = [_kept(one.spec, one.hyperparameters, one.best_epoch) for one in members]
    return {MEMBERS: json.dumps({"by": by, "members": kept, "repeats": members[0].schedule.repeats})}


def challenger_tags(origins: RankerOrigins) -> dict[str, str]:
    """Return the tags of a challenger, which has the training settings of its champion."""
    kept = [_kept(one.spec, one.hyperparameters, one.epochs) for one in origins.members]
    return {MEMBERS: json.dumps({"by": origins.by, "members": kept, "repeats": origins.repeats})}


def origins_of(version: Version) -> RankerOrigins:
    """Return the members and training settings from the tags that `ranker_tags` wrote.

    Raises:
        RequestError: The version has no such tags, because an older release registered it.
    """
    if MEMBERS not in version.tags:
        raise RequestError(
            f"The training settings of version {version.version} of {version.name!r}, a ranking model, are "
            "unknown: train and register a new one, or name another model with --register-as."
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
    return RankerOrigins(members=members, by=kept["by"], repeats=kept.get("repeats", "drop"))


def _kept(spec: GraphSpec, hyperparameters: RankingHyperparameters, epochs: int) -> dict[str, Any]:
    return {"spec": spec.to_dict(), "learned_with": hyperparameters.to_dict(), "epochs": epochs}
