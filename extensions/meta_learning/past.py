"""Storage and reading of earlier searches in MLflow: meta-features of their data, and points with outcomes.

A search logs the meta-features of its data to its run (`meta.*`), and each trial logs its point and outcome to its own
run (`trial.parameters`, `trial.outcome`). Later searches can therefore use a killed search too.
"""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from shunter.checked_json import read_or_quarantine, write_checked
from shunter.engine.checkpoint.checked_files import write_json
from shunter.engine.data.dataset import Dataset
from shunter.errors import TrackingError
from shunter.extensions.meta_learning.features import MetaFeatures, distance, meta_features
from shunter.files import digest_of_sources
from shunter.search.context import PastStudy
from shunter.search.noise import NOISE, TOO_FEW
from shunter.search.protocol import Outcome, Parameters
from shunter.search.study.trial import OUTCOME, OUTCOMES, PARAMETERS
from shunter.settings import settings
from shunter.tracking.history import TrackedRun, read_children, read_runs
from shunter.tracking.runs import open_run

PREFIX = "meta."
MOST_RUNS = 500  # number of newest runs whose distance is computed
MOST_STUDIES = 20
MOST_OF_ONE_NAME = 5  # largest number of studies per data set, so that nightly runs do not displace all others
FEWEST_TRIALS = 3  # smallest number of trials with a result in a study

FILE = "past.choice.json"
TAUGHT = "search.past"

_FEATURES = TypeAdapter(dict[str, float])
_STUDIES = TypeAdapter(tuple[PastStudy, ...])


def begin_from_past(
    dataset: Dataset, directory: Path, run_id: str, *, is_cold: bool = False, trials: int | None = None
) -> tuple[PastStudy, ...]:
    """Return the past studies for a search, and log the meta-features of its own data for later searches.

    Computing meta-features takes a second or two. A search that is too short to help later searches computes them only
    if there are earlier searches to start from.

    The past studies are read once and saved with the search, so that an interrupted search resumes with the same past
    studies even if other searches have ended since.

    Args:
        dataset: Data set of the search.
        directory: Folder of this search.
        run_id: MLflow run of the search.
        is_cold: Whether to ignore earlier searches.
        trials: Limit on the number of trials; None if another limit ends the search.

    Returns:
        Past studies, the nearest first; empty if there are none or the store is unreachable.

    Raises:
        DataError: An array cannot be read.
        TrackingError: The store cannot be written.
    """

    def parse(text: bytes) -> tuple[PastStudy, ...]:
        kept = json.loads(text)  # earlier versions stored a list
        return _STUDIES.validate_python(kept["studies"] if isinstance(kept, dict) else kept)

    file = directory / FILE
    kept = read_or_quarantine(file, parse)
    if kept is not None:  # saved by an interrupted attempt of this search
        return kept
    studies: tuple[PastStudy, ...] = ()
    earlier: tuple[TrackedRun, ...] = ()
    with contextlib.suppress(TrackingError):  # a training run continues while the server is unreachable
        earlier = () if is_cold else evaluated_runs(exclude=run_id)
    if earlier or trials is None or trials >= FEWEST_TRIALS:
        features = log_meta_features(run_id, dataset)
        with contextlib.suppress(TrackingError):
            studies = nearest_studies(features, earlier)
    directory.mkdir(parents=True, exist_ok=True)
    write_json(file, json.dumps({"studies": _STUDIES.dump_python(studies, mode="json")}))
    open_run(run_id).set_tags({TAUGHT: format_past(studies)})
    return studies


def format_past(studies: Sequence[PastStudy]) -> str:
    """Return one line about the past studies, with names and figures but no content of the data."""
    if not studies:
        return "No earlier search to begin from."
    named = ", ".join(
        f"{study.name} ({len(study.with_result)} trials, distance {study.distance:.2f})" for study in studies
    )
    return f"Begins from what did best on {named}."


def log_meta_features(run_id: str, dataset: Dataset) -> MetaFeatures:
    """Compute the meta-features of the data, and log them to the run for later searches.

    Raises:
        DataError: An array cannot be read.
        TrackingError: The tracking store fails.
    """
    features = _features_of(dataset)
    open_run(run_id).log_figures("meta", {f"{PREFIX}{name}": value for name, value in features.items()})
    return features


def _features_of(dataset: Dataset) -> MetaFeatures:
    """Return the meta-features that Shunter's home folder caches, or compute and store them."""
    code = digest_of_sources(Path(__file__).parent) + version("scikit-learn")
    key = hashlib.sha256(f"{dataset.fingerprint} {code}".encode()).hexdigest()[:32]
    path = settings().data_features_directory / f"{key}.json"
    known = read_or_quarantine(path, _FEATURES.validate_json)
    if known is not None:
        with contextlib.suppress(OSError):
            os.utime(path)  # records the use, so that unused features can be removed
        return known
    features = meta_features(dataset)
    with contextlib.suppress(OSError):
        write_checked(path, json.dumps(features))
    return features


def evaluated_runs(exclude: str | None) -> tuple[TrackedRun, ...]:
    """Return earlier runs with meta-features, and with a validation part large enough to distinguish settings.

    Raises:
        TrackingError: The store cannot be read.
    """
    runs = read_runs(("train", "tune"), limit=MOST_RUNS)
    return tuple(run for run in runs if run.run_id != exclude and _features(run) and TOO_FEW not in run.tags)


def nearest_studies(
    features: Mapping[str, float], runs: Sequence[TrackedRun], limit: int = MOST_STUDIES
) -> tuple[PastStudy, ...]:
    """Return the searches with the most similar data among runs, the nearest first; unreadable ones are skipped.

    Raises:
        TrackingError: The store cannot be read.
    """
    found = [(far, run) for run in runs if math.isfinite(far := distance(features, _features(run)))]
    found.sort(key=lambda pair: pair[0])
    studies: list[PastStudy] = []
    for place in in_rounds([run.params.get("data.name", "") for _, run in found]):
        if len(studies) == limit:
            break
        far, run = found[place]
        name = run.params.get("data.name", "")
        if [study.name for study in studies].count(name) < MOST_OF_ONE_NAME:
            trials = (trial for child in read_children(run.run_id, "trial") if (trial := _trial(child)) is not None)
            study = PastStudy(
                name=name,
                trials=tuple(trials),
                distance=far,
                run_id=run.run_id,
                features=_features(run),
                noise=run.metrics.get(NOISE),
            )
            studies += [study] if len(study.with_result) >= FEWEST_TRIALS else []
    return tuple(sorted(studies, key=lambda study: study.distance))


def in_rounds(names: Sequence[str]) -> list[int]:
    """Return indices in round-robin order over the names: the first of each, then the second of each.

    Many kinds of data are more informative than many searches on a few kinds.
    """
    rounds = [names[:place].count(name) for place, name in enumerate(names)]
    return sorted(range(len(names)), key=lambda place: rounds[place])


def _features(run: TrackedRun) -> MetaFeatures:
    return {name.removeprefix(PREFIX): value for name, value in run.metrics.items() if name.startswith(PREFIX)}


def _trial(run: TrackedRun) -> tuple[Parameters, Outcome] | None:
    """Return the point and its outcome; None if the run lacks point or outcome, or one cannot be parsed.

    A trial is logged as failed from its beginning until it has a result; a killed trial does not count as failed.
    """
    try:
        parameters: Any = json.loads(run.tags.get(PARAMETERS, ""))
        outcome = OUTCOMES.validate_json(run.tags.get(OUTCOME, ""))
    except (ValueError, ValidationError):
        return None
    ne = outcome.validation_ne
    is_usable = run.status == "FAILED" if ne is None else 0 < ne < math.inf
    if not isinstance(parameters, dict) or not parameters or not is_usable:
        return None
    family = run.params.get("model.family")
    return {**({"family": family} if family else {}), **parameters}, outcome
