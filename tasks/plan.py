"""A plan that members are trained by: read, held against the data, and handed to the processes."""

from pathlib import Path

from engine.executors.this_machine import ThisMachine
from engine.fixed import read_fixed
from engine.job import ClickJob, TrainingJob
from engine.parallel import GivenTable
from models.spec import ModelSpec
from planner.describe import spec_of
from planner.parallel.demand import table_names
from planner.parallel.plan import Plan, check_fits, read_plan
from shunter.errors import RequestError
from shunter.requests import TrainRequest
from tasks.run_context import RunContext


def check_plan(run: RunContext) -> None:
    """Refuse a plan of another model before anything is trained.

    Raises:
        RequestError: It names other tables or rows, another model, or what is only simulated, or it divides columns and
            their width is still to be searched.
    """
    path = run.request.training.plan
    if path is None:
        return
    plan = read_plan(Path(path))
    if plan.model != run.request.model:
        raise RequestError(f"The plan {path} is for --model {plan.model}, not {run.request.model}: make one for it.")
    copied = next((name for name, table in plan.tables.items() if table.replicated_rows), None)
    if copied is not None or plan.layers:
        what = f"copies of rows of {copied!r}" if copied is not None else "divided layers"
        raise RequestError(f"The plan {path} has {what}, which are only simulated: search with --space exact.")
    if plan.divided_width not in (None, _fixed_width(run.request)):
        raise RequestError(
            f"The plan {path} divides columns, so that no other width of a row can be tried: add --set "
            f"embedding_dim={plan.divided_width}."
        )
    features = run.dataset.features
    names = table_names(run.dataset)
    shapes = [
        (name, rows, plan.tables[name].width if name in plan.tables else 1)
        for name, rows in zip(names, features.table_rows, strict=True)
    ]
    check_fits(plan, shapes, path)


def _fixed_width(request: TrainRequest) -> int | None:
    """Width of an embedding row, where it is not searched."""
    fixed = read_fixed(request.model, request.architecture.set).architecture
    if "embedding_dim" not in fixed and request.search.most_trials != 1:
        return None
    spec = spec_of(request.model, request.architecture.towers, fixed)
    assert isinstance(spec, ModelSpec), "graph models take no plan"
    return spec.embedding_dim


def place_of_plan(run: RunContext, job: ClickJob) -> ThisMachine | None:
    """This machine, dividing the tables of a job as the plan says; None where there is no plan.

    Raises:
        RequestError: The plan divides columns of other widths.
    """
    path = run.request.training.plan
    if path is None:
        return None
    plan = read_plan(Path(path))
    assert isinstance(job, TrainingJob), "graph models take no plan"
    names, shapes = table_names(run.dataset), job.spec.tables(job.dataset.features)
    check_fits(plan, [(name, s.rows, s.width) for name, s in zip(names, shapes, strict=True)], path, any_width=True)
    return ThisMachine(given_tables(plan, names), plan.precision)


def given_tables(plan: Plan, names: list[str]) -> tuple[GivenTable, ...]:
    """The placements in the order of the tables."""
    return tuple(GivenTable(kind=plan.tables[name].kind, processes=plan.tables[name].devices) for name in names)
