"""Command-line options made from a pydantic model: the command, the Prefect form and Python share one definition."""

import inspect
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import typer
from pydantic import ValidationError

from shunter.errors import RequestError
from shunter.flows.command.help import OUTPUT, panel
from shunter.flows.command.output_options import option_parameter
from shunter.registry import Entry, Registry
from shunter.requests import JobRequest, Request
from shunter.requests.groups import option_name
from shunter.requests.job_file import read_job
from shunter.secrets import check_is_path
from shunter.validation import expected, own_text, sentence, shown, unknown

Asked = TypeVar("Asked", bound=Request)


JOB_REQUESTS = Registry(  # kinds of requests with similar job files
    "job request",
    {
        "train": Entry(target="shunter.requests:TrainRequest"),
        "select": Entry(target="shunter.requests:SelectRequest"),
        "nightly": Entry(target="shunter.retraining.nightly_request:NightlyRequest"),
    },
    "shunter.job_requests",
)
CONTEXT = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
CONFIG = option_parameter(
    "config",
    str | None,
    typer.Option(
        "--config",
        help="Job file (path or address) to start from, such as the job.yaml of a run; options override it.",
        rich_help_panel=OUTPUT,
    ),
)


def options_of(model: type[Request]) -> list[inspect.Parameter]:
    """Return one keyword parameter, which Typer reads as an option, for each option of the request and its groups."""
    return [
        option_parameter(
            name,
            _typed(field.annotation),
            typer.Option(option_name(name), help=field.description, rich_help_panel=panel(name, title)),
            field.default,
        )
        for title, options in model.options_by_group()
        for name, field in options.items()
    ]


def build(model: type[Asked], values: dict[str, Any]) -> Asked:
    """Return a request with the given option values.

    Raises:
        RequestError: A value is out of range or the values contradict each other.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise RequestError(sentence([_clause(fault, model) for fault in error.errors()])) from error


def requested(model: type[Asked], options: dict[str, Any]) -> Asked:
    """Return the request of a command, from its job file and its options, which have precedence.

    Args:
        model: Class of the request.
        options: Keyword arguments of the command, including the context and the job file that `with_options` adds.

    Raises:
        RequestError: The file cannot be read, a value is out of range, or the values contradict each other.
    """
    context, config = options.pop("context"), options.pop("config", None)
    sources = {name: context.get_parameter_source(name) for name in options}
    # An option on the command line counts as given even with its default value.
    given = {name: options[name] for name, source in sources.items() if source and source.name != "DEFAULT"}
    if config is None:
        return build(model, given)
    from shunter.ingestion.sources.addresses import local_path, parse_address, without_file_scheme

    if parse_address(config) is None:
        check_is_path(path := without_file_scheme(config))
    else:
        path = local_path(config)
    return read_job(Path(path), model, given, tuple(map(JOB_REQUESTS.load, JOB_REQUESTS.names)))


def with_options(
    model: type[Request], *extra: inspect.Parameter
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command the options of `model`, the `extra` parameters and `--config`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        takes_file = [CONFIG] if issubclass(model, JobRequest) else []
        parameters = [CONTEXT, *options_of(model), *takes_file, *extra]
        command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def _typed(annotation: Any) -> Any:
    """Return the type of an option: text for a date, and a list for several values, which the model parses."""
    if annotation == tuple[str, ...]:  # an option that can be repeated
        return list[str]
    return str | None if annotation == date | None else annotation


def _clause(fault: Any, model: type[Request]) -> str:
    name = option_name(str(fault["loc"][-1])) if fault["loc"] else ""
    if fault["type"] == "extra_forbidden":
        return unknown(name, [option_name(field) for field in model.options()], "option")
    if fault["type"] == "value_error":
        return own_text(fault, name)
    return f"{name} is {shown(fault['input'])}: give {expected(fault)}"
