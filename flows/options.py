"""Command-line options made from a pydantic model: the command, the Prefect form and Python share one definition."""

import inspect
from collections.abc import Callable, Iterator
from datetime import date
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from shunter.errors import RequestError

OPTION_NAMES = {"schema_file": "--schema"}  # where the field's own name would not be what one types


def option_name(field: str) -> str:
    """The option of a field: `max_hours` becomes `--max-hours`."""
    return OPTION_NAMES.get(field, "--" + field.replace("_", "-"))


def options_of(model: type[BaseModel]) -> list[inspect.Parameter]:
    """One keyword parameter per field of `model`; the fields of a nested model come under a heading of their own."""
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=Annotated[
                _typed(field.annotation),  # pyright: ignore[reportInvalidTypeForm]
                typer.Option(option_name(name), help=field.description, rich_help_panel=panel),
            ],
        )
        for panel, name, field in _flat_fields(model)
    ]


def build(model: type[BaseModel], values: dict[str, Any]) -> Any:
    """The model from flat option values.

    Raises:
        RequestError: a value is out of range or the values contradict each other.
    """
    nested = {
        name: {inner: values[inner] for inner in inner_model.model_fields}
        for name, inner_model in _nested_models(model).items()
    }
    plain = {name: values[name] for name in model.model_fields if name not in nested}
    try:
        return model.model_validate({**plain, **nested})
    except ValidationError as error:
        raise RequestError("; ".join(_sentence(problem) for problem in error.errors()) + ".") from error


def with_options(
    model: type[BaseModel], *extra: inspect.Parameter
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


def _nested_models(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    return {
        name: field.annotation
        for name, field in model.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }


def _flat_fields(model: type[BaseModel], panel: str = "Options") -> Iterator[tuple[str, str, FieldInfo]]:
    nested = _nested_models(model)
    for name, field in model.model_fields.items():
        if name in nested:
            yield from _flat_fields(nested[name], panel=name.capitalize())
        else:
            yield panel, name, field


def _sentence(problem: Any) -> str:
    message = str(problem["msg"]).removeprefix("Value error, ").rstrip(".")
    if not problem["loc"]:
        return message
    message = message[0].lower() + message[1:]
    return f"{option_name(str(problem['loc'][-1]))} {problem['input']}: {message}"
