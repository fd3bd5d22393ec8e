"""Check whether a model version keeps its promised quality on a day that it was not trained on."""

from collections.abc import Mapping
from datetime import date

from shunter.engine.ensemble.guarantee import Bounds, bounds
from shunter.frozen import Frozen
from shunter.ingestion.sources.days import DayLog
from shunter.retraining.findings import Finding
from shunter.retraining.losses import scores_of
from shunter.tracking.promise import PREFIX, promised
from shunter.tracking.registry.versions import ModelFiles, Version

CARRIED = ("min_auc", "max_ne", "confidence", "unit")


class DayCheck(Frozen):
    """Check of a version's promised quality on one day.

    Attributes:
        version: Version in use.
        day: Day of the check.
        is_broken: Whether the whole confidence interval of the day's quality is beyond the promised limit.
        is_sure: Whether the whole confidence interval of the day's quality is within the promised limit.
        words: Result of the check, one sentence.
        bounds: Confidence bounds of the quality on the day.
    """

    version: int
    day: date
    is_broken: bool
    is_sure: bool
    words: str
    bounds: Bounds

    @property
    def finding(self) -> Finding:
        """Finding of the nightly run that the champion has missed its guaranteed quality."""
        return Finding(day=self.day, kind="promise", words=self.words)

    @property
    def metrics(self) -> dict[str, float]:
        """MLflow metrics `nightly.*`: quality on the day with bounds, and whether the promise is broken."""
        names = ("auc", "auc_low", "auc_high", "ne", "ne_low", "ne_high", "rows", "units")
        figures = {f"nightly.{PREFIX}{name}": float(getattr(self.bounds, name)) for name in names}
        return {**figures, f"nightly.{PREFIX}is_broken": float(self.is_broken)}


def promise_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of a replaced champion's promise, which its successor takes over; empty without a promise."""
    names = [f"{PREFIX}{name}" for name in CARRIED]
    return {name: tags[name] for name in names if name in tags} if promised(tags) else {}


def check_day(version: Version, files: ModelFiles, log: DayLog, day: date, *, seed: int = 0) -> DayCheck | None:
    """Check the promise of a version on a day; return None without a promise or without rows.

    Raises:
        CheckpointError: The model is damaged.
        DataError: The encoder or the day cannot be read.
    """
    asked = promised(version.tags)
    if asked is None:
        return None
    labels, logits, groups = scores_of(files, log, unit=version.tags.get(f"{PREFIX}unit"))
    if not len(labels):
        return None
    min_auc, max_ne, confidence = asked
    found = bounds(labels, logits, confidence=confidence, groups=groups, seed=seed)
    is_broken = (min_auc is not None and found.auc_high < min_auc) or (max_ne is not None and found.ne_low > max_ne)
    is_sure = (min_auc is None or found.auc_low >= min_auc) and (max_ne is None or found.ne_high <= max_ne)
    asks = []
    if min_auc is not None:
        asks.append(f"AUC {found.auc:.4f} ({found.auc_low:.4f} to {found.auc_high:.4f}), promised {min_auc:g}")
    if max_ne is not None:
        asks.append(f"NE {found.ne:.4f} ({found.ne_low:.4f} to {found.ne_high:.4f}), promised {max_ne:g}")
    how = "breaks its promise" if is_broken else "keeps its promise" if is_sure else "may keep its promise"
    advice = "; put the version before it back with `shunter rollback`" if is_broken else ""
    return DayCheck(
        version=version.version,
        day=day,
        is_broken=is_broken,
        is_sure=is_sure,
        words=f"Version {version.version} {how} on {day}: {'; '.join(asks)}, each bound with confidence "
        f"{confidence:g}{advice}.",
        bounds=found,
    )
