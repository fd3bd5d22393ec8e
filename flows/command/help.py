"""Help of commands, with options in panels: common options by default, all options with `--help-all`."""

from typing import Any

import typer

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
    """Return the panel of a request's option."""
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
