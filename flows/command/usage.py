"""Messages about an invalid command line, of one sentence with the name, the value and the remedy."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import ValidationError
from typer._click.exceptions import BadOptionUsage, BadParameter, MissingParameter, NoSuchOption, UsageError

from shunter.validation import expected, own_text, shown, unknown


def unknown_command(name: str, known: list[str]) -> str:
    """Return the message about an unknown command, with the most similar command."""
    sentence = unknown(name, known, "command")
    return _capital(sentence if sentence.endswith("?") else f"{sentence}.")


def extra_arguments(command: str, words: Sequence[str]) -> str:
    """Return the message about arguments that a command does not take."""
    return f"`{command}` does not take {' '.join(words)!r}: leave it out, or put the name of an option before it."


def usage_message(error: UsageError) -> str:
    """Return the message of a usage error as one sentence."""
    command = f"`{error.ctx.command_path}`" if error.ctx else "The command"
    if isinstance(error, NoSuchOption):
        return _no_option(error, command)
    if isinstance(error, MissingParameter) and error.param is not None:
        help_text = str(getattr(error.param, "help", "") or "").rstrip(".")
        return f"{command} requires {str(error.param.name).upper()} ({help_text}): give it."
    if isinstance(error, BadParameter):
        return _bad_value(error)
    if isinstance(error, BadOptionUsage):
        options = error.ctx.command.params if error.ctx else []
        is_switch = any(getattr(one, "is_flag", False) for one in options if error.option_name in one.opts)
        what = "is a switch and takes no value: leave the value out" if is_switch else "requires a value: give one"
        return f"{error.option_name} {what}."
    return f"{command} was called wrongly ({error.message.rstrip('.')}): see `{command.strip('`')} -h`."


def _no_option(error: NoSuchOption, command: str) -> str:
    """Return the message about an unknown option, with the most similar option or argument."""
    parameters = error.ctx.command.params if error.ctx else []
    arguments = [str(one.name) for one in parameters if one.param_type_name == "argument"]
    if (name := error.option_name.lstrip("-").replace("-", "_")) in arguments:
        return f"{command} takes {name.upper()} without an option: leave out {error.option_name}."
    options = [name for one in parameters if one.param_type_name == "option" for name in one.opts]
    near = unknown(error.option_name, options, "option", command)
    return (
        _capital(near)
        if near.endswith("?")
        else f"There is no option {error.option_name} in {command}: {command[:-1]} -h` lists them."
    )


def _bad_value(error: BadParameter) -> str:
    """Return the message about an invalid value: the parameter, the value, and the allowed values."""
    parameter = error.param
    name = str(parameter.opts[0] if parameter is not None else "a value")
    if name.isidentifier():  # the name is that of an argument, not an option
        name = name.upper()
    if not isinstance(error.__cause__, ValidationError):
        return f"{name} cannot be read ({error.message.rstrip('.')}): give another value."
    fault: Mapping[str, Any] = error.__cause__.errors(include_url=False)[0]  # pyright: ignore[reportAssignmentType]
    values = _choices(getattr(getattr(parameter, "type_descriptor", None), "annotation", None))
    if fault["type"] == "value_error" and not values:
        return f"{own_text(fault, name)}."
    what = f"{', '.join(values[:-1])} or {values[-1]}" if values else expected(fault)
    return f"{name} is {shown(fault['input'])}: give {what}."


def _choices(kind: Any) -> list[str]:
    """Return the allowed values of a parameter of an enumeration or a literal type."""
    return [str(one.value) for one in getattr(kind, "__members__", {}).values()] or [
        word for word in get_args(kind) if isinstance(word, str)
    ]


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
