"""Build the controller of a search from the search's context."""

import math
from collections.abc import Callable, Mapping

from shunter.extensions.nas.architecture_space import ArchitectureSpace
from shunter.extensions.nas.reinforce.actions import Actions
from shunter.extensions.nas.reinforce.checkpoint import CurvePoint
from shunter.extensions.nas.reinforce.controller import Controller
from shunter.extensions.nas.reinforce.experience import History
from shunter.search.context import SearchContext
from shunter.tracking.runs import open_run


def controller_for(context: SearchContext) -> Controller:
    """Return the search method; it starts without a guide if there are no past studies of similar points.

    Raises:
        RequestError: A factor of the space has no values.
        InfeasibleError: Even the smallest architecture takes more memory than the limit allows.
        DataError: An array cannot be read.
        TrackingError: The run of the search cannot be opened.
    """
    space, limits = context.space, context.limits
    defaults, features = space.defaults(), _features_of(context)
    actions = Actions(
        space.factors(),
        default=defaults[0] if defaults else None,
        identity=space.identity,
        bytes_of=space.parameter_bytes if isinstance(space, ArchitectureSpace) else None,
        most_bytes=limits.max_memory_gib * 2**30 if limits and limits.max_memory_gib else None,
    )
    return Controller(
        actions,
        cost=context.cost,
        seed=context.seed,
        defaults=defaults,
        past=[History.of(actions, _in_units(study.features), study.trials) for study in context.past],
        features=_in_units(features),
        horizon=context.trials,
        directory=context.directory,
        on_improved=_logged(context.run_id),
    )


def _logged(run_id: str | None) -> Callable[[CurvePoint], None] | None:
    """Return a function that logs the learning curve to the run of the search."""
    if run_id is None:
        return None
    run = open_run(run_id)

    def log(point: CurvePoint) -> None:
        figures = {
            "best_reward": point.best_reward,
            "entropy_share": point.entropy_share,
            "guide_weight": point.guide_weight,
            "is_guided": float(point.is_guided),
        }
        run.log_metrics({f"search.rl.{name}": value for name, value in figures.items()}, step=point.evaluations)

    return log


def _features_of(context: SearchContext) -> Mapping[str, float]:
    """Return meta-features of the data; empty if no past study has meta-features to compare with."""
    if not any(study.features for study in context.past):
        return {}
    from shunter.extensions.meta_learning.features import meta_features  # already imported by reading the past studies

    return meta_features(context.dataset)


def _in_units(features: Mapping[str, float]) -> dict[str, float]:
    """Return meta-features in units in which data sets are compared, where a difference of one is relevant."""
    if not features:
        return {}
    from shunter.extensions.meta_learning.neighbours import SCALES

    return {
        name: scaled(features[name]) / unit
        for name, (scaled, unit) in SCALES.items()
        if math.isfinite(features.get(name, math.nan))
    }
