"""Help of commands, and messages about an invalid command line.

The help has options in panels: common options by default, all options with `--help-all`. A message has one sentence
with the name, the value and the remedy.
"""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import typer
from pydantic import ValidationError
from typer._click.exceptions import BadOptionUsage, BadParameter, MissingParameter, NoSuchOption, UsageError

from shunter.validation import expected, own_text, shown, similar, unknown

ALL = "shunter.help_all"  # key in the context of a command whose complete help is shown
FEW = 20  # largest number of options that are shown at once, in one panel
OPTIONS, OUTPUT = "Options", "Output"
PANELS = {
    **{"objective": "Limits", "seed": "Advanced: training"},
    **dict.fromkeys(("register_as", "promote", "log_to"), OUTPUT),
}
# Options in the short help of a command with many options, by parameter name.
COMMON = {
    *(
        "data",
        "schema_file",
        "model",
        "objective",
        "max_hours",
        "max_kwh",
        "min_auc",
        "preset",
        "trials",
        "search_minutes",
    ),
    *("ensemble_size", "register_as", "config", "dry_run", "as_json", "verbose", "help"),
    *("offers", "every_row", "day", "train_days", "timezone"),
    *("devices", "accelerator", "machine", "batch_size", "max_device_gib", "out"),
}


def panel(name: str, title: str | None) -> str:
    """Return the panel of a request's option.

    Args:
        name: Field of the option.
        title: Title of the option's group; None without a group.
    """
    from shunter.requests.groups import (
        ADVANCED,  # imported here, because the list of commands does not need the requests
    )

    return (PANELS.get(name) or title or OPTIONS).removeprefix(ADVANCED).capitalize()


def show_all(context: typer.Context, is_requested: bool) -> None:
    """Print the complete help of a command and exit."""
    if is_requested:
        context.meta[ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


def write_options(command: Any, context: Any, formatter: Any) -> None:
    """Write the options of a command in panels; of a long list, only the common options without `--help-all`."""
    shows_all = context.meta.get(ALL, False)
    rows = [(one, one.get_help_record(context)) for one in command.get_params(context) if one.name != "help_all"]
    is_short = len(rows) <= FEW
    panels: dict[str, list[tuple[str, str]]] = {}
    hidden = 0
    for parameter, record in rows:
        if record is None:
            continue
        if parameter.param_type_name == "argument":
            title = "Arguments"
        elif is_short:
            title = OPTIONS
        elif shows_all or parameter.name in COMMON:
            title = getattr(parameter, "rich_help_panel", None) or OUTPUT
        else:
            hidden += 1
            continue
        panels.setdefault(title, []).append(record)
    width = max((len(name) for records in panels.values() for name, _ in records if len(name) <= 30), default=0)
    for title, records in panels.items():
        with formatter.section(title):
            formatter.write_dl([(f"{name:<{width}}", text) for name, text in records])
    if hidden:
        with formatter.section("More"):
            formatter.write_dl([(f"{'--help-all':<{width}}", f"Show {hidden} more options.")])


def unknown_command(name: str, known: list[str]) -> str:
    """Return the message about an unknown command, with the most similar command."""
    return _capital(unknown(name, known, "command")) + ("" if similar(name, known) else ".")


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
        options = error.ctx.command.get_params(error.ctx) if error.ctx else []
        is_switch = any(getattr(one, "is_flag", False) for one in options if error.option_name in one.opts)
        what = "is a switch and takes no value: leave the value out" if is_switch else "requires a value: give one"
        return f"{error.option_name} {what}."
    return f"{command} was called wrongly ({error.message.rstrip('.')}): see `{command.strip('`')} -h`."


def _no_option(error: NoSuchOption, command: str) -> str:
    """Return the message about an unknown option, with the most similar option or argument."""
    parameters = error.ctx.command.get_params(error.ctx) if error.ctx else []
    arguments = [str(one.name) for one in parameters if one.param_type_name == "argument"]
    if (name := error.option_name.lstrip("-").replace("-", "_")) in arguments:
        return f"{command} takes {name.upper()} without an option: leave out {error.option_name}."
    options = [name for one in parameters if one.param_type_name == "option" for name in one.opts]
    if similar(error.option_name, options):
        return _capital(unknown(error.option_name, options, "option", command))
    return f"There is no option {error.option_name} in {command}: {command[:-1]} -h` lists them."


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
