"""Functions of `import shunter`: the commands as functions that accept data frames and return results."""

import os
from typing import TYPE_CHECKING, Any

from shunter.errors import RequestError
from shunter.flows.command.options import build
from shunter.flows.python.frames import NAME, is_path, pandas_of, schema_path, store_frame
from shunter.flows.python.session import run
from shunter.flows.python.training import Choice, Search, Training
from shunter.requests import SelectRequest, TrainRequest
from shunter.requests.job import model_name_of

if TYPE_CHECKING:
    import pandas as pd

    from shunter.ingestion.check import Checked

PARTS = ("validation", "test")  # options that accept a data frame too


def train(
    data: Any = None, schema: Any = None, *, fresh: bool = False, repeat: str | None = None, **options: Any
) -> Training:
    """Train a recommender within the limits and register it, as `shunter train` does.

    After an interruption, Ctrl-C or a notebook's stop button, the same call resumes where it stopped.

    Args:
        data: Click log: a DataFrame of pandas or polars, an Arrow table, a NumPy structured array, a file, folder, glob
            or comma-separated list, or a name from `shunter datasets`. MovieLens-100K if omitted.
        schema: Roles of the columns: a file, a mapping, or text such as that of `shunter.check(frame).schema`.
        fresh: Start anew instead of resuming an interrupted run of the same request.
        repeat: Finished run to repeat bit by bit: its id, the beginning of it, its name, or `latest`.
        options: Fields of `TrainRequest`, which are the options of the command: `max_hours=2`, `objective="energy"`.
            The options `validation` and `test` take frames too.

    Returns:
        The training, with its model, its figures and its report.

    Raises:
        RequestError: An option is unknown or out of range, or the options contradict each other.
        ShunterError: The data or the machine does not permit the training run.

    Examples:
        >>> training = shunter.train(log, SCHEMA, trials=1, max_epochs=4, model="dnn", register_as="shop",
        ...                          ensemble_size=1, baselines="none", promote="always")
        >>> training.model
        <ClickRecommender shop/1: price, user, item>
    """
    request = build(TrainRequest, _options(data, schema, options))
    if repeat is not None:
        from shunter.flows.command.flow_commands import check_alone

        check_alone(request, repeat, is_dry=False)
    return Training(run("shunter.flows.train:train", request, fresh=fresh, repeat=repeat or ""))


def tune(data: Any = None, schema: Any = None, **options: Any) -> Search:
    """Search settings without a full training run, as `shunter tune` does; an interrupted search is resumed.

    Args:
        data: Click log, see `train`.
        schema: Roles of the columns, see `train`.
        options: Fields of `TrainRequest`; those of the ensemble are not used.

    Raises:
        RequestError: See `train`.
        ShunterError: The data or the machine does not permit the search.
    """
    return Search(run("shunter.flows.tuning:tune_only", build(TrainRequest, _options(data, schema, options))))


def select(data: Any = None, schema: Any = None, **options: Any) -> Choice:
    """Choose where a training run would run, without training, as `shunter select` does.

    Args:
        data: Click log, see `train`.
        schema: Roles of the columns, see `train`.
        options: Fields of `SelectRequest`, such as `offers="local"` or `max_cost=10`.

    Raises:
        RequestError: See `train`.
        InfeasibleError: No placement keeps the limits.
        ShunterError: The data or the machine does not permit the choice of a placement.

    Examples:
        >>> choice = shunter.select(log, SCHEMA, offers="local", probe_seconds=0)
        >>> choice.decision.placement.device
        'cpu'
        >>> choice.table.shape[0] == choice.decision.considered
        True
    """
    request = build(SelectRequest, _options(data, schema, options))
    return Choice(run("shunter.flows.selection:choose_placement", request))


def check(data: Any, schema: Any = None, *, format: str | None = None, where: str | None = None) -> "Checked":
    """Examine a log and infer its schema, as `shunter check` does.

    Args:
        data: A frame, file, folder, glob or comma-separated list.
        schema: Schema to check the log with; if omitted, a schema is inferred.
        format: Format of files, such as `csv`, `parquet` or `movielens`; guessed if omitted.
        where: Rows that are read, such as `day >= '2026-03-01'`; all if omitted.

    Returns:
        Findings, and the inferred schema as text with comments.

    Raises:
        DataError: No row can be read, or no schema can be inferred.

    Examples:
        >>> checked = shunter.check(log)
        >>> checked.rows, checked.bad_rows
        (1000, 0)
        >>> checked.schema.splitlines()[1].partition("#")[0].strip()
        'label: click'
    """
    from shunter.ingestion.check import check as check_files

    return check_files(_path(data), format, None if schema is None else schema_path(schema), where)


def history(limit: int = 1_000, *, where: str | None = None, sort: str = "started") -> "pd.DataFrame":
    """Return past training runs with quality, time, energy and placement, as `shunter runs` lists them.

    Args:
        limit: Largest number of training runs.
        where: Condition, such as `auc > .8 and energy < 2 kJ`.
        sort: `started` (newest first), `auc`, `ne`, `time`, `energy` or `auc-per-kj`, best first.

    Returns:
        A row for each training run; figures that it did not record are missing. `started` is a time in UTC.

    Raises:
        RequestError: The condition or the order is unknown.
        TrackingError: The store cannot be read.

    Examples:
        >>> shunter.history()["registered"].tolist()
        ['shop/1']
    """
    import pandas as pd

    from shunter.flows.command.listings import selected_runs
    from shunter.tracking.listing import COLUMNS

    rows = selected_runs(limit, sort, where)
    frame = pandas_of(rows) if rows else pd.DataFrame(columns=pd.Index(["run_id", "started", "status", *COLUMNS]))
    return frame.assign(started=pd.to_datetime(frame["started"].astype(float), unit="s", utc=True))


def _options(data: Any, schema: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a request, with frames and schemas replaced by files."""
    if schema is not None and options.get("schema_file") is not None:
        raise RequestError("The schema is given twice: leave out `schema` or `schema_file`.")
    given = {"data": data, **{part: options.get(part) for part in PARTS}}
    # The name of a frame is the name of the data, and the default name of the model.
    names = {"data": model_name_of(str(options.get("register_as") or NAME)), **{part: part for part in PARTS}}
    found = {name: _path(rows, names[name]) for name, rows in given.items() if rows is not None}
    schemas = {} if schema is None else {"schema_file": schema_path(schema)}
    return {**options, **found, **schemas}


def _path(data: Any, name: str = NAME) -> str:
    """Return the path of a log; a frame is written to the home."""
    return os.fspath(data) if is_path(data) else str(store_frame(data, name))
