"""Registry of the commands of `shunter`; the module of a command is imported when the command is looked up.

Other Python packages add commands by entry points of the group `shunter.commands`, which refer to a result of
`command_entry`. A name with a space is a command of a group, such as `fleet run`.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, cast

import typer
import typer.main
from typer._click.core import Command
from typer._click.exceptions import BadOptionUsage, NoArgsIsHelpError, UsageError
from typer.core import TyperCommand, TyperGroup

from shunter.errors import RequestError
from shunter.flows.command.help import extra_arguments, unknown_command, usage_message, write_options
from shunter.flows.command.output_options import with_accepted_models, with_output_options
from shunter.flows.command.terminal import INTERRUPTED, one_sentence_errors, say
from shunter.registry import Entry, Registry
from shunter.secrets import check_is_path

PROGRAM = "shunter"
AS_JSON = "--json"


def command_entry(
    target: str, line: str, *, accepts_models: bool = False, runs_alone: bool = False, needs: str = ""
) -> Entry:
    """Return the entry of a command.

    Args:
        target: Function of the command, as `module:attribute`; its docstring is the command's own help.
        line: Help in the list of commands.
        accepts_models: Whether the command loads registered models, and takes `--accept`.
        runs_alone: Whether a group runs without one of its commands; otherwise it prints its help.
        needs: Additional extension that the command needs.
    """
    capabilities = {"help": line, "accepts_models": accepts_models, "runs_alone": runs_alone}
    return Entry(target=target, capabilities=capabilities, needs=needs)


# Modules with several commands.
RUNS = "shunter.flows.command.run_commands"
FLOWS = "shunter.flows.command.flow_commands"
MODELS = "shunter.flows.command.model_commands"
SERVICES = "shunter.operation.service_commands"
COMPRESSION = "shunter.extensions.compression.compression_commands"
FLEET = "shunter.extensions.fleet.commands"
PLANS = "shunter.extensions.distributed.plan_commands"
# Name of each command, module with its function, named as the last part of the command, and help in the list.
OWN_COMMANDS = (
    ("check", RUNS, "Check a click log and infer its schema; train nothing."),
    ("train", FLOWS, "Train a recommender within limits and register it."),
    ("tune", FLOWS, "Search settings or architectures, without a full training."),
    ("select", FLOWS, "Choose the placement of a training job and explain it."),
    ("profile", FLOWS, "Measure this machine, and where a training job waits."),
    ("prices", RUNS, "Update the catalogue's prices from a SkyPilot catalogue."),
    ("nightly", "shunter.retraining.nightly_command", "Learn the newest days; promote only a better champion."),
    ("rollback", FLOWS, "Restore the former champion."),
    ("predict", MODELS, "Score rows of files with a registered model."),
    ("export", MODELS, "Copy a registered model, or its changes, into a folder."),
    ("compress", COMPRESSION, "Make a registered model smaller and faster."),
    ("robustness", COMPRESSION, "Measure quality under simulated memory bit flips."),
    ("serve", "shunter.serving.command", "Serve a registered or exported model over HTTP."),
    ("models", RUNS, "List registered models with quality, time and energy."),
    ("datasets", RUNS, "List named data sets, and those in the cache."),
    ("runs", RUNS, "List runs with quality, time, energy and placement."),
    ("report", RUNS, "Write the report page of a run, or of a model's retrainings."),
    ("sync", RUNS, "Upload runs recorded while MLflow was unreachable."),
    ("clean", RUNS, "List or remove leftovers of killed and old runs."),
    ("doctor", RUNS, "Check files and runs of Shunter's home and repair them."),
    ("explain", RUNS, "Explain an error code: its cause and its remedy."),
    ("up", SERVICES, "Start Prefect, MLflow and a worker in the background."),
    ("down", SERVICES, "Stop what `shunter up` has started."),
    ("status", SERVICES, "Show services, training jobs and the next nightly run."),
    ("ui", SERVICES, "Start the web pages of Prefect and MLflow until Ctrl-C."),
    ("fleet", FLEET, "Simulate or run many training jobs on one cluster."),
    ("fleet simulate", FLEET, "Compare scheduling policies on a simulated cluster."),
    ("fleet run", FLEET, "Run a queue of training jobs on a Ray cluster."),
    ("fleet learn", FLEET, "Train a scheduling policy in the simulator."),
    ("plan", PLANS, "Divide a model's tables over several devices."),
    ("plan diff", PLANS, "Compare two plans line by line."),
    ("plan memory", "shunter.extensions.tiers.plan_memory_command", "Compare servers with different kinds of memory."),
    ("plan scale", "shunter.extensions.distributed.plan_scale", "Simulate a model on 1 to 128 hosts."),
)
ACCEPTING = {"nightly", "rollback", "predict", "export", "compress", "robustness", "serve"}

COMMANDS = Registry(
    "command",
    {
        name: command_entry(
            f"{module}:{name.rpartition(' ')[2]}",
            line,
            accepts_models=name in ACCEPTING,
            runs_alone=name == "plan",
            needs="distributed" if name == "fleet run" else "",
        )
        for name, module, line in OWN_COMMANDS
    },
    "shunter.commands",
)


class RegisteredCommands(Mapping[str, Command]):
    """Mapping from the last part of a name to a command of `shunter` or of a group; a look-up imports the module.

    Commands of absent applications and extensions are not listed; their look-up raises MissingExtensionError.

    Attributes:
        prefix: First part of the commands' names, with a space; empty for those of `shunter`.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._loaded: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        """Return a command; raise MissingExtensionError if its application or extension is not installed."""
        if name not in self._loaded:
            full = f"{self.prefix}{name}"
            if full not in COMMANDS.entries and full not in COMMANDS.names:
                raise KeyError(name)
            self._loaded[name] = load_command(full)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the installed commands in the order of the registry."""
        listed = (name.removeprefix(self.prefix) for name in COMMANDS.names if name.startswith(self.prefix))
        return (name for name in listed if " " not in name)

    def __len__(self) -> int:
        """Return the number of installed commands."""
        return sum(1 for _ in self)

    def line(self, name: str) -> str:
        """Return the description of a command in the list of commands, without importing its module."""
        return str(COMMANDS.entry(f"{self.prefix}{name}").capabilities.get("help", ""))


class Commands(TyperGroup):
    """Group of registered commands; a usage error prints one sentence and exits with the code of an invalid request."""

    def __init__(self, *, name: str | None = None, **options: Any) -> None:
        super().__init__(name=name, **options)
        self.registered = RegisteredCommands("" if name == PROGRAM else f"{name} ")
        self.commands = cast(MutableMapping[str, Command], self.registered)

    def main(  # pyright: ignore[reportIncompatibleMethodOverride] - by name
        self, args: Sequence[str] | None = None, **options: Any
    ) -> Any:
        """Run a command and exit, or return its result if `standalone_mode` is false."""
        if not options.pop("standalone_mode", True):
            return super().main(args, standalone_mode=False, **options)
        given = sys.argv[1:] if args is None else list(args)
        with one_sentence_errors(as_json=AS_JSON in given):
            try:
                code = super().main(args, standalone_mode=False, **options)
            except NoArgsIsHelpError as error:
                error.show()
                raise SystemExit(RequestError.exit_code) from None
            except UsageError as error:
                raise RequestError(usage_message(error)) from error
        if code == INTERRUPTED:  # Ctrl-C before a command has begun
            say("Interrupted.")
        raise SystemExit(code if isinstance(code, int) else 0)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before a command of the group; raise `AddressNotTakenError` if a path is an address."""
        return _parsed(super().parse_args, ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; if it does not exist, raise an error that suggests a similar command."""
        if args and self.get_command(ctx, args[0]) is None:
            raise RequestError(unknown_command(args[0], list(self.registered)))
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options in panels, and the list of commands without importing their modules."""
        write_options(self, ctx, formatter)
        if names := list(self.registered):
            with formatter.section("Commands"):
                formatter.write_dl([(name, self.registered.line(name)) for name in names])


class SingleCommand(TyperCommand):
    """Command whose help has its options in panels."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options; raise `AddressNotTakenError` if a path is an address, RequestError for extra arguments."""
        extra = _parsed(super().parse_args, ctx, args)
        if extra and not ctx.resilient_parsing:
            raise RequestError(extra_arguments(ctx.command_path, extra))
        return extra

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options in panels."""
        write_options(self, ctx, formatter)


def _parsed(parse: Callable[[Any, list[str]], list[str]], ctx: Any, given: Sequence[str]) -> list[str]:
    """Parse arguments, and return the remaining ones; raise AddressNotTakenError if a path option is an address.

    Options that accept an address, such as `s3://...`, are parsed as texts instead of paths.
    """
    try:
        left = parse(ctx, [*given])
    except BadOptionUsage as error:
        error.ctx = ctx
        raise
    paths = {value for value in ctx.params.values() if isinstance(value, Path)}
    for word in given:
        text = word.partition("=")[2] if word.startswith("-") else word
        if Path(text) in paths:
            check_is_path(text)
    return left


def load_command(name: str) -> Command:
    """Import and return a registered command or group of commands; raise MissingExtensionError if not installed."""
    capabilities = COMMANDS.entry(name).capabilities
    function: Callable[..., None] = COMMANDS.load(name)
    if capabilities.get("accepts_models"):
        function = with_accepted_models(function)
    runs_alone = bool(capabilities.get("runs_alone"))
    if any(other.startswith(f"{name} ") for other in COMMANDS.names):
        group = typer.Typer(
            name=name,
            cls=Commands,
            add_completion=False,
            no_args_is_help=not runs_alone,
            invoke_without_command=runs_alone,
            rich_markup_mode=None,
        )
        group.callback()(with_output_options(function) if runs_alone else function)
        return typer.main.get_command(group)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    settings = {"allow_extra_args": True}  # `SingleCommand` reports them
    alone.command(name.rpartition(" ")[2], cls=SingleCommand, context_settings=settings)(with_output_options(function))
    return typer.main.get_command(alone)
