"""Version that a new model version is compared with: the champion, or the champion that the new version replaced."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from shunter.errors import RequestError
from shunter.tracking.convention import figures_of
from shunter.tracking.registry.versions import CHAMPION, PREVIOUS, version_by_alias
from shunter.tracking.store import open_store, tracking_errors

FIGURES = {
    "AUC": "quality.test.auc",
    "NE": "quality.test.ne",
    "NDCG@20": "quality.test.ndcg20",
    "RMSE": "quality.test.rmse",
    "relative loss": "quality.test.relative_loss",
}


@dataclass(frozen=True)
class Rival:
    """Version to compare with, and its quality.

    Attributes:
        version: Number of the version.
        figures: Metrics on the version's own test split, by their names in `FIGURES`.
        fingerprint: Fingerprint of the training data; None if the run does not record the fingerprint.
    """

    version: int
    figures: Mapping[str, float]
    fingerprint: str | None


def rival_of(name: str, version: int) -> Rival | None:
    """Return the champion, or the previous champion if `version` is the champion; None if there is none.

    Raises:
        TrackingError: The store cannot be read.
    """
    for alias in (CHAMPION, PREVIOUS):
        try:
            found = version_by_alias(name, alias)
        except RequestError:
            continue
        if found.version == version:
            continue
        with tracking_errors():
            run = open_store().mlflow.get_run(found.run_id).data
        known = figures_of(run.params, run.metrics, run.tags)
        figures = {title: known[key] for title, key in FIGURES.items() if not math.isnan(known.get(key, math.nan))}
        return Rival(found.version, figures, run.params.get("data.fingerprint"))
    return None
