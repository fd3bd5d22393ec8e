"""Command-line options made from a pydantic model: the command, the Prefect form and Python share one definition."""

import inspect
from collections.abc import Callable, Iterator
from datetime import date
from typing import Annotated, Any, TypeVar

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from shunter.errors import RequestError
from shunter.requests import Request
from shunter.validation import expected, own_words, sentence, shown, unknown

Asked = TypeVar("Asked", bound=Request)

OPTION_NAMES = {"schema_file": "--schema"}  # where the field's own name would not be what one types


def option_name(field: str) -> str:
    """The option of a field: `max_hours` becomes `--max-hours`."""
    return OPTION_NAMES.get(field, "--" + field.replace("_", "-"))


def options_of(model: type[Request]) -> list[inspect.Parameter]:
    """One keyword parameter for each option of the request, whatever its group."""
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=Annotated[
                _typed(field.annotation),  # pyright: ignore[reportInvalidTypeForm]
                typer.Option(option_name(name), help=field.description),
            ],
        )
        for name, field in _flat_fields(model)
    ]


def build(model: type[Asked], values: dict[str, Any]) -> Asked:
    """The request from flat option values.

    Raises:
        RequestError: A value is out of range or the values contradict each other.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise RequestError(sentence([_clause(fault, model) for fault in error.errors()])) from error


def with_options(
    model: type[Request], *extra: inspect.Parameter
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: give a command that takes `**options` the options of `model` and the `extra` parameters."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = [*options_of(model), *extra]
        command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def _typed(annotation: Any) -> Any:
    """The type of an option: a date is written as text, which the model reads."""
    return str | None if annotation == date | None else annotation


def _flat_fields(model: type[Request]) -> Iterator[tuple[str, FieldInfo]]:
    groups = model.groups()
    for name, field in model.model_fields.items():
        if name in groups:
            yield from groups[name].model_fields.items()
        else:
            yield name, field


def _clause(fault: Any, model: type[Request]) -> str:
    name = option_name(str(fault["loc"][-1])) if fault["loc"] else ""
    if fault["type"] == "extra_forbidden":
        return unknown(name, [option_name(field) for field, _ in _flat_fields(model)], "option")
    if fault["type"] == "value_error":
        return own_words(fault, name)
    return f"{name} is {shown(fault['input'])}: give {expected(fault)}"
