"""Earlier searches, as they are kept in MLflow and read back: of what data, and what came of which points.

A search writes what its data is like to its run (`meta.*`), and each trial its point and what came of it to its own
(`trial.parameters`, `trial.outcome`). So a search that was killed halfway has taught what it had tried.
"""

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from shunter.checked_json import read_or_quarantine
from shunter.engine.checkpoint.storage import write_json
from shunter.engine.data.dataset import Dataset
from shunter.errors import TrackingError
from shunter.extensions.meta_learning.features import MetaFeatures, meta_features
from shunter.extensions.meta_learning.neighbours import distance
from shunter.search.context import PastStudy
from shunter.search.noise import NOISE, TOO_FEW
from shunter.search.protocol import Outcome, Parameters
from shunter.search.study.trial import OUTCOME, OUTCOMES, PARAMETERS
from shunter.tracking.history import TrackedRun, read_children, read_runs
from shunter.tracking.runs import open_run

PREFIX = "meta."
MOST_RUNS = 500  # of which nearness is judged, the newest
MOST_STUDIES = 20
MOST_OF_ONE_NAME = 5  # studies of data of one name: a nightly training shall not crowd out all others
FEWEST_TRIALS = 3  # with a result: fewer teach nothing

FILE = "past.choice.json"
TAUGHT = "search.past"

_STUDIES = TypeAdapter(tuple[PastStudy, ...])


def begin_from_past(
    dataset: Dataset, directory: Path, run_id: str, *, is_cold: bool = False, trials: int | None = None
) -> tuple[PastStudy, ...]:
    """What a search may begin from; and what its own data is like is written to its run, for later ones.

    To judge the data takes a second or two: a search that is too short to teach later ones does so only where there are
    earlier ones to begin from.

    The past is read once and kept with the search, so that one which was interrupted goes on as it would have although
    others have ended since.

    Args:
        dataset: Data set of the search.
        directory: Folder of the search alone.
        run_id: Its MLflow run.
        is_cold: Leave the past alone.
        trials: Points that the search may try; None where something else ends it.

    Returns:
        The nearest first; empty where there is none, and while the store is away.

    Raises:
        DataError: An array cannot be read.
        TrackingError: The store cannot be written.
    """
    file = directory / FILE
    kept = _kept(file)
    if kept is not None:
        return kept
    studies: tuple[PastStudy, ...] = ()
    earlier: tuple[TrackedRun, ...] = ()
    with contextlib.suppress(TrackingError):  # a training goes on while the server is away
        earlier = () if is_cold else _judged_runs(exclude=run_id)
    if earlier or trials is None or trials >= FEWEST_TRIALS:
        features = log_meta_features(run_id, dataset)
        with contextlib.suppress(TrackingError):
            studies = _nearest(features, earlier, MOST_STUDIES)
    directory.mkdir(parents=True, exist_ok=True)
    write_json(file, json.dumps({"studies": _STUDIES.dump_python(studies, mode="json")}))
    open_run(run_id).set_tags({TAUGHT: format_past(studies)})
    return studies


def format_past(studies: Sequence[PastStudy]) -> str:
    """One line on what the past is; names and figures, nothing of the data itself."""
    if not studies:
        return "No earlier search to begin from."
    named = ", ".join(
        f"{study.name} ({len(study.with_result)} trials, distance {study.distance:.2f})" for study in studies
    )
    return f"Begins from what did best on {named}."


def _kept(file: Path) -> tuple[PastStudy, ...] | None:
    """What an interrupted attempt of this search had read; None where it had not come so far."""

    def parse(text: bytes) -> tuple[PastStudy, ...]:
        kept = json.loads(text)
        return _STUDIES.validate_python(
            kept["studies"] if isinstance(kept, dict) else kept
        )  # a list in former versions

    return read_or_quarantine(file, parse)


def log_meta_features(run_id: str, dataset: Dataset) -> MetaFeatures:
    """Judge what the data is like, and write it to the run so that later searches find it.

    Raises:
        DataError: An array cannot be read.
        TrackingError: The store fails.
    """
    features = meta_features(dataset)
    open_run(run_id).log_metrics({f"{PREFIX}{name}": value for name, value in features.items()})
    return features


def past_studies(
    features: Mapping[str, float], *, exclude: str | None = None, limit: int = MOST_STUDIES
) -> tuple[PastStudy, ...]:
    """The earlier searches whose data is most like this, the nearest first; what cannot be read is passed over.

    Args:
        features: Meta-features of the present data.
        exclude: Run of the present search.
        limit: Most studies.

    Raises:
        TrackingError: The store cannot be read.
    """
    return _nearest(features, _judged_runs(exclude), limit)


def _judged_runs(exclude: str | None) -> tuple[TrackedRun, ...]:
    """Earlier runs whose data was judged, and told their settings apart."""
    runs = read_runs(("train", "tune"), limit=MOST_RUNS)
    return tuple(run for run in runs if run.run_id != exclude and _features(run) and TOO_FEW not in run.tags)


def _nearest(features: Mapping[str, float], runs: Sequence[TrackedRun], limit: int) -> tuple[PastStudy, ...]:
    found = [(far, run) for run in runs if math.isfinite(far := _distance(features, run))]
    found.sort(key=lambda pair: pair[0])
    studies: list[PastStudy] = []
    for place in in_rounds([run.params.get("data.name", "") for _, run in found]):
        if len(studies) == limit:
            break
        far, run = found[place]
        name = run.params.get("data.name", "")
        if [study.name for study in studies].count(name) < MOST_OF_ONE_NAME:
            study = PastStudy(
                name=name,
                trials=_trials_of(run.run_id),
                distance=far,
                run_id=run.run_id,
                features=_features(run),
                noise=run.metrics.get(NOISE),
            )
            studies += [study] if len(study.with_result) >= FEWEST_TRIALS else []
    return tuple(sorted(studies, key=lambda study: study.distance))


def in_rounds(names: Sequence[str]) -> list[int]:
    """Places in an order that goes round the names: the first of each, then the second of each.

    Many kinds of data teach more than many searches of a few kinds: what did well on all of them does well on the next.
    """
    rounds = [names[:place].count(name) for place, name in enumerate(names)]
    return sorted(range(len(names)), key=lambda place: rounds[place])


def spread(studies: Sequence[PastStudy], limit: int = MOST_STUDIES) -> tuple[PastStudy, ...]:
    """Of many studies those that a search begins from: in rounds over their names, the nearest first."""
    ordered = sorted(studies, key=lambda study: study.distance)
    names = [study.name for study in ordered]
    chosen = [place for place in in_rounds(names) if names[:place].count(names[place]) < MOST_OF_ONE_NAME]
    return tuple(ordered[place] for place in sorted(chosen[:limit]))


def _distance(features: Mapping[str, float], run: TrackedRun) -> float:
    return distance(features, _features(run))


def _features(run: TrackedRun) -> MetaFeatures:
    return {name.removeprefix(PREFIX): value for name, value in run.metrics.items() if name.startswith(PREFIX)}


def _trials_of(run_id: str) -> tuple[tuple[Parameters, Outcome], ...]:
    children = read_children(run_id, "trial")
    return tuple(trial for child in children if (trial := _trial(child)) is not None)


def _trial(run: TrackedRun) -> tuple[Parameters, Outcome] | None:
    """The point and its outcome; None where the run does not hold both in a form that can be read.

    A trial counts as failed from its beginning, until it is known better; one that was killed did not fail.
    """
    try:
        parameters: Any = json.loads(run.tags.get(PARAMETERS, ""))
        outcome = OUTCOMES.validate_json(run.tags.get(OUTCOME, ""))
    except (ValueError, ValidationError):
        return None
    if not isinstance(parameters, dict) or not parameters:
        return None
    if outcome.validation_ne is None and run.status != "FAILED":
        return None
    if outcome.validation_ne is not None and not 0 < outcome.validation_ne < math.inf:
        return None
    family = run.params.get("model.family")
    return {**({"family": family} if family else {}), **parameters}, outcome
