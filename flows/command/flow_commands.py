"""Commands that start a flow."""

import contextlib
import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shunter.errors import RequestError, TrackingError
from shunter.flows.command.environment import ensure_home
from shunter.flows.command.options import requested, with_options
from shunter.flows.command.output_options import option_parameter
from shunter.flows.command.rendering import TextTable, print_table
from shunter.flows.command.start import start
from shunter.flows.command.tables import choice_rows, decision_table, front_table
from shunter.flows.command.terminal import (
    AGAIN,
    console,
    one_sentence_errors,
    print_json,
    print_line,
    print_run,
    report_undelivered,
)
from shunter.masked_console import is_verbose
from shunter.model_families import is_ranking
from shunter.python_processes import process_age_seconds
from shunter.requests import LOCAL_OFFERS, ProfileRequest, SelectRequest, TrainRequest
from shunter.requests.groups import option_name

if TYPE_CHECKING:
    from shunter.flows.train import TrainSummary
    from shunter.planner.decide import Decision


def switch(name: str, option: str, description: str) -> inspect.Parameter:
    """Return the function parameter that Typer reads as a command-line flag, off by default."""
    return option_parameter(name, bool, typer.Option(option, help=description), False)


REPEAT = option_parameter(
    "repeat",
    str | None,
    typer.Option(
        "--repeat",
        metavar="RUN",
        help="Repeat a finished run bit by bit: id of the run, start of the id, name, or latest.",
    ),
)
FRESH = switch("fresh", "--fresh", "Start anew instead of resuming an interrupted run of the same request.")
AS_JSON = switch("as_json", "--json", "Print one JSON object, errors too.")
DRY_RUN = switch("dry_run", "--dry-run", "Choose the placement and print the plan; nothing is trained.")
EVERY_ROW = switch("every_row", "--every-row", "Print every placement, not only the best of each accelerator.")
REFRESH = switch("refresh", "--refresh", "Measure again even if today's figures are there.")


@with_options(TrainRequest, FRESH, REPEAT, DRY_RUN, AS_JSON)
def train(**options: Any) -> None:
    """Train a recommender within limits and register it."""
    fresh, is_dry, as_json = options.pop("fresh"), options.pop("dry_run"), options.pop("as_json")
    repeat = options.pop("repeat")
    with one_sentence_errors(AGAIN, as_json=as_json):
        request = requested(TrainRequest, options)
        if repeat is not None:
            check_alone(request, repeat, is_dry=is_dry)
        if is_dry:
            _show_plan(request, as_json=as_json)
            return
        if not as_json:  # printed before slow imports, so that the user sees at once what was started
            what = f"Training on {request.data}" if repeat is None else f"Repeating the run {repeat}"
            print_line(f"{what}. `shunter ui` shows the run in Prefect and MLflow.")
        summary = start("shunter.flows.train:train", request, fresh=fresh, repeat=repeat or "")
        if as_json:
            from shunter.flows.command.summary_json import summary_as_json

            print_json(summary_as_json(summary))
        else:
            from shunter.flows.command.summary import print_summary

            print_summary(console, summary, verbose=is_verbose())
        report_undelivered()
        _keep_end(summary)


@with_options(TrainRequest, AS_JSON)
def tune(**options: Any) -> None:
    """Search settings or architectures, without a full training."""
    as_json = options.pop("as_json")
    with one_sentence_errors(AGAIN, as_json=as_json):
        request = requested(TrainRequest, options)
        tuned = start("shunter.flows.tuning:tune_only", request)
        if as_json:
            from shunter.flows.command.summary_json import search_as_json

            print_json(search_as_json(tuned))
        else:
            print_table(console, front_table(tuned))
            print_run(tuned.run_id)
        report_undelivered()


def _keep_end(summary: "TrainSummary") -> None:
    """Log the seconds of the command outside all steps, which later runs with a time limit reserve for their end."""
    from shunter.tasks.step_clock import END
    from shunter.tracking.convention import STEP_SECONDS
    from shunter.tracking.runs import open_run

    seconds = process_age_seconds() - sum(summary.step_seconds.values())
    with contextlib.suppress(TrackingError):
        open_run(summary.run_id).log_figures("end", {STEP_SECONDS.format(END): seconds})


def check_alone(request: TrainRequest, repeat: str, *, is_dry: bool = False) -> None:
    """Raise if options are given besides `--repeat` that a repetition takes from the original run.

    Raises:
        RequestError: Such an option or `--dry-run` is given.
    """
    alone = TrainRequest(register_as=request.register_as, promote=request.promote)
    given = [option_name(name) for name, value in request.flat().items() if value != alone.flat()[name]]
    if given or is_dry:
        raise RequestError(
            f"A repeated run takes its options from the original run {repeat}: leave out "
            f"{', '.join([*given, *['--dry-run'] * is_dry])}."
        )


def _show_plan(request: TrainRequest, *, as_json: bool) -> None:
    """Print the placement that a training run would choose, and its later steps."""
    asked = request.flat()
    shared = {name: asked[name] for name in asked.keys() & SelectRequest().flat().keys()}
    choice = SelectRequest.model_validate({**shared, "offers": LOCAL_OFFERS})
    decision = start("shunter.flows.selection:choose_placement", choice)
    from shunter.flows.command.tables import decision_as_json

    plan = plan_of(request, decision.placement.label)
    if as_json:
        print_json({**decision_as_json(decision), "plan": list(plan)})
        return
    _print_choice(decision, every_row=False)
    for sentence in plan:
        print_line(sentence)
    print_run(decision.run_id)


def _print_choice(decision: "Decision", *, every_row: bool) -> None:
    """Print the candidates and the choice; with `--verbose` the explanation and the notes too."""
    print_table(console, decision_table(decision, every_row=every_row))
    console.print()
    print_table(console, TextTable((), choice_rows(decision)))
    for paragraph in (decision.explanation, *decision.notes) if is_verbose() else ():
        console.print(paragraph, highlight=False, markup=False)


def plan_of(request: TrainRequest, placement: str) -> tuple[str, ...]:
    """Return the steps after the choice of the placement, one sentence each."""
    trials, size = request.search.most_trials, request.ensemble.most
    limits = request.limits.model_dump(exclude_defaults=True)
    budget = f"{trials} setting{'s' if trials != 1 else ''}" if trials else "as many settings as its budget permits"
    result = f"an ensemble of {size} at most" if size > 1 else "the best of them alone"
    within = ", ".join(f"{option_name(name)} {value:g}" for name, value in limits.items()) or "no limit"
    name = "the name of the data" if request.register_as is None else repr(request.register_as)
    epochs = f"for {request.longest_epochs} epochs at most"
    tried = f"Would try {budget} of {request.model} on {placement}, each {epochs}."
    if is_ranking(request.model):
        result = "what ranks the validation part best, baselines included, alone or together, learned again with it"
    return (
        tried,
        f"Would keep {result}, within {within}, and register it as {name}.",
        "Nothing was trained: leave out --dry-run to begin.",
    )


@with_options(SelectRequest, AS_JSON, EVERY_ROW)
def select(**options: Any) -> None:
    """Choose the placement of a training job and explain it."""
    as_json, every_row = options.pop("as_json"), options.pop("every_row")
    with one_sentence_errors(as_json=as_json):
        request = requested(SelectRequest, options)
        decision = start("shunter.flows.selection:choose_placement", request)
        from shunter.flows.command.tables import decision_as_json

        if as_json:
            print_json(decision_as_json(decision))
            return
        _print_choice(decision, every_row=every_row)
        print_run(decision.run_id)


@with_options(ProfileRequest, REFRESH, AS_JSON)
def profile(**options: Any) -> None:
    """Measure this machine, and where a training job waits."""
    refresh, as_json = options.pop("refresh"), options.pop("as_json")
    with one_sentence_errors(as_json=as_json):
        request = requested(ProfileRequest, options)
        summary = start("shunter.flows.profiling:profile", request, refresh=refresh)
        if as_json:
            from shunter.flows.command.summary_json import defined

            print_json(defined(summary.model_dump(mode="json")))
            return
        from shunter.flows.command.profile_tables import print_profile

        print_profile(console, summary)
        print_run(summary.run_id)


def rollback(
    model: Annotated[str, typer.Option(help="Name of the registered model; if omitted, the only one.")] = "",
    to: Annotated[
        int | None, typer.Option(min=1, help="Version to make the champion; if omitted, the former champion.")
    ] = None,
) -> None:
    """Restore the former champion.

    A second rollback restores the champion before that one; --to promotes any version.
    """
    with one_sentence_errors():
        ensure_home()
        from shunter.tasks.rollback import restore_champion
        from shunter.tracking.store import import_mlflow_alone

        import_mlflow_alone()
        # Call the function instead of the flow, because a rollback need not wait for a server that only records it.
        print_line(restore_champion(model, to).explanation)
