"""Tables of data sets, runs, models and leftovers, made without slow imports."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.errors import DataError
from shunter.flows.command.rendering import TextTable, duration, energy, number, quality
from shunter.settings import Settings

MOST_COMPARED = 10_000  # number of newest runs that are filtered and sorted
OF_NUMBERS = {"test_rmse": "RMSE", "test_mae": "MAE"}
BY_KIND = {"test_ndcg20": "NDCG@20", "test_rmse": "RMSE", "test_auc": "AUC"}  # main metric of a version, by its kind
STATUSES = {"SCHEDULED": "interrupted"}  # shown names of MLflow's statuses

if TYPE_CHECKING:
    from shunter.tasks.doctor import Finding
    from shunter.tracking.leftovers import Leftover


def named_datasets_table() -> TextTable:
    """Return a table of the data sets that `--data` accepts by name."""
    from shunter.ingestion.sources.names import named_datasets

    rows = [(one.name, f"{one.description}\n{one.size}\nTerms: {one.licence}") for one in named_datasets()]
    return TextTable(("name", "what"), rows)


def cache_table(datasets: Sequence[dict[str, Any]]) -> TextTable:
    """Return a table of the data sets in the cache, from the result of `cached_datasets`."""
    rows = [
        (
            one["name"],
            f"{one['rows']:,}",
            str(one["numeric_fields"]),
            str(one["categorical_fields"]),
            number(one["base_rate"]),
            Path(one["folder"]).name[:12],
        )
        for one in datasets
    ]
    columns = ("name", "rows", "numeric", "categorical", "base rate", "folder in the cache")
    return TextTable(columns, rows, "Ingested, ready to train on")


def doctor_table(found: "Sequence[Finding]") -> TextTable:
    """Return the findings of `shunter doctor` as a table."""
    rows = [(one.part, f"{one.files:,}", one.state, one.action.value, one.path) for one in found]
    return TextTable(("part", "files", "state", "done", "path"), rows)


def cached_datasets() -> list[dict[str, Any]]:
    """Return the data sets in the cache, without unreadable ones, which the next run makes again."""
    found: list[dict[str, Any]] = []
    for path in sorted(Settings().cache_directory.glob("*/dataset.json")):
        from shunter.engine.data.dataset import Dataset  # imported here, since numpy is not needed without data sets

        try:
            dataset = Dataset.load(path.parent)
        except (OSError, DataError):
            continue
        found.append(
            {
                "name": dataset.name,
                "rows": dataset.rows,
                "numeric_fields": len(dataset.features.dense),
                "categorical_fields": len(dataset.features.categorical),
                "base_rate": dataset.splits["train"].base_rate,
                "folder": str(path.parent),
            }
        )
    return found


def leftovers_table(leftovers: "Sequence[Leftover]") -> TextTable:
    """Return a table of leftovers, which `shunter clean` can remove, with age in days and size in MiB."""
    rows = [(one.what, one.name, number(one.age_seconds / 86_400), number(one.size_bytes / 2**20)) for one in leftovers]
    return TextTable(("what", "where", "days old", "MiB"), rows)


def selected_runs(limit: int, sort: str, where: str | None) -> list[dict[str, Any]]:
    """Return the past runs that meet a condition, best first, as rows of `shunter.tracking.listing.list_trainings`.

    Args:
        limit: Largest number of runs.
        sort: Order, see `shunter.tracking.run_filter.SORTED_BY`.
        where: Condition, see `shunter.tracking.run_filter.parse_filter`; None for all runs.

    Raises:
        RequestError: The condition or the order is unknown.
        TrackingError: The store cannot be read.
    """
    from shunter.tracking.listing import list_trainings
    from shunter.tracking.run_filter import parse_filter, select_runs

    conditions = parse_filter(where) if where else ()
    is_whole = bool(conditions) or sort != "started"
    return select_runs(list_trainings(MOST_COMPARED if is_whole else limit), conditions, sort, limit)


def runs_table(trainings: Sequence[dict[str, Any]]) -> TextTable:
    """Return a table of past runs, from rows of `shunter.tracking.listing.list_trainings`."""
    shown = {"test_ne": "NE", "test_auc": "AUC"}  # metrics of numeric labels are added only if a run has them
    shown |= {key: name for key, name in OF_NUMBERS.items() if any(run[key] is not None for run in trainings)}
    rows = [
        (
            str(run["run_id"])[:8],
            f"{_time(run['started']):%m-%d %H:%M}",
            run["data"] or "",
            *(quality(run[key]) for key in shown),
            duration(run["total_seconds"]),
            energy(run["energy_joules"], run["energy_source"]),
            number(run["auc_per_kilojoule"]) if run["auc_per_kilojoule"] is not None else "",
            run["placement"] or "",
            run["registered"] or STATUSES.get(run["status"], str(run["status"]).lower()),
        )
        for run in trainings
    ]
    columns = ("run", "start (UTC)", "data", *shown.values(), "time", "energy", "gain/kJ", "placement", "outcome")
    caption = "Quality on the test part; gain/kJ: AUC above 0.5 by kilojoule; ~ estimated"
    return TextTable(columns, rows, caption=caption)


def models_table(versions: Sequence[dict[str, Any]]) -> TextTable:
    """Return a table of registered versions, from rows of `shunter.tracking.listing.list_versions`."""
    rows = [
        (
            f"{one['name']}/{one['version']}",
            " ".join(one["aliases"]),
            one["data"] or "",
            one["model"] or "",
            next((f"{name} {quality(one[key])}" for key, name in BY_KIND.items() if one[key] is not None), ""),
            duration(one["total_seconds"]),
            energy(one["energy_joules"], one["energy_source"]),
            f"{_time(one['registered_at']):%y-%m-%d}",
            str(one["run_id"] or "")[:8],
        )
        for one in versions
    ]
    columns = ("model", "alias", "data", "family", "test quality", "time", "energy", "date (UTC)", "run")
    return TextTable(columns, rows, caption="~ estimated")


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
