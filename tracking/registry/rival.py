"""The other model beside a new version: the champion that it replaced, or that it did not."""

from collections.abc import Mapping
from dataclasses import dataclass

from shunter.errors import RequestError
from shunter.tracking.registry.versions import CHAMPION, PREVIOUS, version_by_alias
from shunter.tracking.store import open_store, tracking_errors

FIGURES = {"AUC": "quality.test.auc", "NE": "quality.test.ne", "NDCG@20": "quality.test.ndcg20"}


@dataclass(frozen=True)
class Rival:
    """Another version with its quality.

    Attributes:
        version: Its number.
        figures: Its quality on its own test part, by the names that people use.
        fingerprint: Of the data that it was trained on; None where its run does not say.
    """

    version: int
    figures: Mapping[str, float]
    fingerprint: str | None


def rival_of(name: str, version: int) -> Rival | None:
    """The champion, or where this version is the champion the one before; None where there is none.

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
        figures = {title: run.metrics[key] for title, key in FIGURES.items() if key in run.metrics}
        return Rival(found.version, figures, run.params.get("data.fingerprint"))
    return None
