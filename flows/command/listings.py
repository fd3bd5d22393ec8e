"""What there is: data sets, trainings, models, leftovers. Printed at once, so nothing heavy is imported here."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

from shunter.errors import DataError
from shunter.settings import Settings

if TYPE_CHECKING:
    from shunter.tasks.doctor import Finding
    from shunter.tracking.leftovers import Leftover


def named_datasets_table() -> Table:
    """The data sets that `--data` takes by name."""
    from shunter.ingestion.sources.names import named_datasets

    table = Table("name", "what", title="Data sets by name", box=box.SIMPLE, show_header=False)
    for dataset in named_datasets():
        text = f"{dataset.description}\n{dataset.size}\nTerms: {dataset.licence}"
        table.add_row(escape(dataset.name), escape(text))
    return table


def cache_table() -> Table:
    """The data sets that have been ingested on this machine."""
    table = Table(title="Ingested, ready to train on", box=box.SIMPLE)
    for title in ("name", "rows", "fields", "base rate", "folder in the cache"):
        table.add_column(title, overflow="fold")
    for one in cached_datasets():
        fields = f"{one['numeric_fields']} num, {one['categorical_fields']} cat"
        table.add_row(
            escape(one["name"]), f"{one['rows']:,}", fields, f"{one['base_rate']:.3f}", Path(one["folder"]).name[:12]
        )
    return table


def doctor_table(found: "Sequence[Finding]") -> Table:
    """Return what an examination of the home found."""
    table = Table(title="Home", box=box.SIMPLE)
    for title in ("part", "files", "state", "done", "path"):
        table.add_column(title, overflow="fold")
    for one in found:
        table.add_row(one.part, f"{one.files:,}", one.state, one.action.value, escape(one.path))
    return table


def cached_datasets() -> list[dict[str, Any]]:
    """The data sets in the cache; one that cannot be read is left out, and made anew by the next run that needs it."""
    found: list[dict[str, Any]] = []
    for path in sorted(Settings().cache_directory.glob("*/dataset.json")):
        from shunter.engine.data.dataset import Dataset  # loads numpy, which a home without data sets needs not

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


def leftovers_table(leftovers: "Sequence[Leftover]") -> Table:
    """What could be removed."""
    table = Table(box=box.SIMPLE)
    for title in ("what", "where", "days old", "MiB"):
        table.add_column(title, overflow="fold")
    for leftover in leftovers:
        age, size = f"{leftover.age_seconds / 86_400:,.1f}", f"{leftover.size_bytes / 2**20:,.1f}"
        table.add_row(*map(escape, (leftover.what, leftover.name, age, size)))
    return table


def runs_table(trainings: Sequence[dict[str, Any]]) -> Table:
    """Past trainings, as `shunter.tracking.listing.list_trainings` gives them."""
    table = Table(box=box.SIMPLE, padding=0, title="Trainings: quality on the test part, ≈ marks estimated energy")
    for title in ("run", "start (UTC)", "data, placement", "AUC", "NE", "s", "J", "outcome"):
        table.add_column(title, no_wrap=True, max_width=20)
    for run in trainings:
        table.add_row(
            str(run["run_id"])[:8],
            f"{_time(run['started']):%m-%d %H:%M}",
            escape(f"{run['data'] or ''}\n{run['placement'] or ''}"),
            _number(run["test_auc"], ".4f"),
            _number(run["test_ne"], ".4f"),
            _number(run["total_seconds"], ".0f"),
            _joules(run),
            escape(run["registered"] or str(run["status"]).lower()),
        )
    return table


def models_table(versions: Sequence[dict[str, Any]]) -> Table:
    """Registered models, a row for each version, as `shunter.tracking.listing.list_versions` gives them."""
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), title="Quality on the test part, ≈ marks estimated energy")
    for title in ("model", "alias", "data", "family", "quality", "s", "J", "date (UTC)", "run"):
        table.add_column(title, overflow="fold")
    for one in versions:
        is_ranker = one["test_ndcg20"] is not None
        auc, ndcg = _number(one["test_auc"], ".4f"), _number(one["test_ndcg20"], ".4f")
        table.add_row(
            escape(f"{one['name']}/{one['version']}"),
            escape(" ".join(one["aliases"])),
            escape(one["data"] or ""),
            escape(one["model"] or ""),
            f"NDCG@20 {ndcg}" if is_ranker else f"AUC {auc}" if auc else "",
            _number(one["total_seconds"], ".0f"),
            _joules(one),
            f"{_time(one['registered_at']):%y-%m-%d}",
            str(one["run_id"] or "")[:8],
        )
    return table


def _joules(run: Mapping[str, Any]) -> str:
    joules = _number(run["energy_joules"], ",.0f")
    return f"≈{joules}" if joules and run["energy_source"] == "estimated" else joules


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
