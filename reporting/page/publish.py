"""Report page of a run and statistics of its features, built and logged as artifacts of the run."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from shunter.engine.data.dataset import Dataset
from shunter.errors import ShunterError
from shunter.reporting.page.features import FEATURES, FeatureSummary, Scale, most_frequent, summarise
from shunter.reporting.page.render import render_page
from shunter.reporting.page.sections import REPORT_SECTIONS
from shunter.requests import JobRequest
from shunter.settings import Settings
from shunter.tracking.history import read_runs
from shunter.tracking.reports import log_files
from shunter.tracking.tree import RunTree, read_artifact, read_tree

PAGE = "report.html"


def log_report(run_id: str, dataset: Dataset, request: JobRequest, end: Callable[[], None] = lambda: None) -> None:
    """Write `features.json` and `report.html` to a parent run.

    `end` is called before the page is built, to log the totals that the page shows.

    Raises:
        TrackingError: The store fails.
        DataError: The encoder of the data set cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        features, page = Path(folder) / FEATURES, Path(folder) / PAGE
        if dataset.features.number is None:  # the section shows shares of positives, which numeric labels lack
            features.write_text(describe_features(dataset, request).model_dump_json(indent=1))
            log_files(run_id, [features])
        end()
        page.write_text(build_report(run_id), encoding="utf-8")
        log_files(run_id, [page])


def build_report(run_id: str) -> str:
    """Return the report page of a run; for a trial or a member, the page of its parent run.

    Raises:
        TrackingError: The store cannot be read, or has no such run.
    """
    tree = read_tree(run_id)
    return render_page(replace(tree, artifacts={**tree.artifacts, **_artifacts_of_profile(tree)}))


def describe_features(dataset: Dataset, request: JobRequest) -> FeatureSummary:
    """Return cardinalities, missing shares and base rates by value; values have names if the log is available.

    Raises:
        DataError: The encoder of the data set cannot be read.
    """
    from shunter.ingestion.encoding.encoder import Encoder
    from shunter.ingestion.names import value_names
    from shunter.ingestion.sources.open import open_source

    folder = dataset.directory / "encoder"
    if not folder.exists():
        return summarise(dataset, {}, {})
    encoder = Encoder.load(folder)
    try:
        source = open_source(
            request.data,
            request.source.format,
            request.source.schema_file,
            Settings().downloads_directory,
            where=request.source.where,
        )
        names = value_names(source, encoder, most_frequent(dataset))
    except ShunterError:  # if the log was moved after its ingestion, values are shown as numbers
        names = {}
    scales = {field.name: Scale(mean=field.mean, deviation=field.deviation) for field in encoder.numeric}
    return summarise(dataset, names, scales)


def _artifacts_of_profile(tree: RunTree) -> dict[str, str]:
    """Return the artifacts that sections show from the newest profile of the same data and model."""
    about = [REPORT_SECTIONS.entry(name).capabilities for name in REPORT_SECTIONS.names]
    names = [str(one["profile_artifact"]) for one in about if "profile_artifact" in one]
    wanted = (tree.parent.params.get("data.name"), tree.parent.params.get("request.model"))
    for run in read_runs(("profile",)) if names else ():
        if (run.params.get("data.name"), run.params.get("model.family")) == wanted:
            texts = {name: read_artifact(run.run_id, name) for name in names}
            return {name: text for name, text in texts.items() if text is not None}
    return {}
