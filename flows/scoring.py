"""Flows that use a registered model without training: score rows of files, and copy the model into a folder."""

from pathlib import Path

from prefect import flow
from prefect.runtime import flow_run

from shunter.errors import RequestError
from shunter.ingestion.sources.guard import check_text, is_foreign_request, roots_of_deployments
from shunter.settings import Settings
from shunter.tasks.flow_runs import named_by, notify
from shunter.tasks.run_log import markdown_table, show_result
from shunter.tracking.registry.named import NAMED, export_model
from shunter.tracking.registry.versions import only_model, version_by_number

FIRST_ROWS = 10  # number of scores that Prefect shows


@flow(name="predict", flow_run_name=named_by("model", "data"), on_failure=[notify], on_crashed=[notify])
def predict(model: str = "", data: str = "", keep: str = "", top: int | None = None) -> Path:
    """Score rows of files with a registered model, into a file of the home.

    Args:
        model: Registered model: NAME (champion), NAME@ALIAS or NAME/VERSION; if omitted, the only one.
        data: Rows to score (CSV, Parquet or Criteo): file, folder, glob or comma-separated list.
        keep: Columns of the files to put before the scores, separated by commas.
        top: For ranking models: number of best items to write per user.

    Returns:
        File of the scores.

    Raises:
        RequestError: No rows are named.
    """
    import polars as pl

    from shunter.flows.command.predict import predict_file
    from shunter.flows.command.top import best_items_of_file

    if not data.strip():
        folder = roots_of_deployments()[0]
        raise RequestError(
            f"The deployment predict needs rows to score: name their files in --data, such as rows.csv in {folder}."
        )
    out = _folder("predictions") / "scores.csv"
    out.parent.mkdir(parents=True, exist_ok=True)
    if top is None:
        columns = [name.strip() for name in keep.split(",") if name.strip()]
        scored = predict_file(chosen_model(model), data, str(out), keep=columns)
    else:
        scored = best_items_of_file(chosen_model(model), data, str(out), top)
    first = pl.read_csv(out, n_rows=FIRST_ROWS)
    rows = [{name: str(value) for name, value in row.items()} for row in first.iter_rows(named=True)]
    notice = f" {scored.counts.notice()}" if scored.counts.notice() else ""
    sentence = f"{scored.rows:,} rows of {data} scored by {scored.model}: {out}.{notice}"
    table = f"The first {len(rows)} rows:\n\n{markdown_table(rows)}"
    show_result("predict", sentence, table, run_id=_training_run(scored.model))
    return out


@flow(name="export", flow_run_name=named_by("model"), on_failure=[notify], on_crashed=[notify])
def export(model: str = "") -> Path:
    """Copy a registered model into a folder of the home, which MLflow and `shunter serve` load.

    Args:
        model: Registered model: NAME (champion), NAME@ALIAS or NAME/VERSION; if omitted, the only one.

    Returns:
        Folder of the copy.
    """
    folder = _folder("exports") / "model"
    folder.parent.mkdir(parents=True, exist_ok=True)
    done = export_model(chosen_model(model), folder)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    rows = [{"file": str(path.relative_to(folder)), "bytes": f"{path.stat().st_size:,}"} for path in files]
    sentence = f"{done.title} is in {folder}; its fingerprint is {done.fingerprint}."
    show_result("export", sentence, markdown_table(rows), run_id=_training_run(done.title))
    return folder


def chosen_model(named: str) -> str:
    """Return the name of a model; for an empty text, the name of the only registered model.

    Raises:
        RequestError: A run of a deployment names a folder that it may not read, or there is no single model.
    """
    if named and is_foreign_request() and NAMED.fullmatch(named) is None:
        check_text(named)
    return named or only_model()


def _training_run(title: str) -> str | None:
    """Return the MLflow run that trained an opened model; None for a folder."""
    name, _, number = title.rpartition("/")
    is_version = number.isdigit() and not Path(title).exists()
    return version_by_number(name, int(number)).run_id or None if is_version else None


def _folder(kind: str) -> Path:
    """Return a new folder of the home for the files of this run."""
    return Settings().home / kind / (flow_run.get_id() or "local")
