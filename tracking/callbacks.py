"""Callbacks: objects of other Python packages that are called during training, after trials and after registration.

Every installed callback is called. The calls are made in the process that started the training, even if another
process or node trains.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from shunter.engine.job import Hooks
from shunter.errors import CallbackError, ShunterError
from shunter.registry import Registry
from shunter.tracking.convention import RunKind
from shunter.tracking.runs import Run

CALLBACKS = Registry("callback", {}, group="shunter.callbacks")


@dataclass(frozen=True)
class CalledTraining:
    """Training run for which a callback is called.

    Attributes:
        name: Name of the run: `trial-3`, `member-0`.
        kind: Kind of the run.
        run: MLflow run of the training, to which a callback can log; None if nothing is tracked.
    """

    name: str
    kind: RunKind
    run: Run | None


def called(hooks: Hooks, training: CalledTraining) -> Hooks:
    """Return hooks that call the given hooks and then the installed callbacks, if any."""
    return replace(
        hooks,
        on_step=_after(hooks.on_step, "on_step", training),
        on_epoch=_after(hooks.on_epoch, "on_epoch", training),
    )


def call(method: str, *arguments: Any) -> None:
    """Call a method of every installed callback that defines the method.

    Args:
        method: `on_trial` or `on_registered`.
        arguments: Arguments of the method.

    Raises:
        CallbackError: A callback raised an error that is not a ShunterError.
        ShunterError: A callback raised a ShunterError.
    """
    for one in _bound(method):
        one(*arguments)


def call_on_trial(training: CalledTraining, parameters: Mapping[str, Any], outcome: Any) -> None:
    """Call `on_trial` of every installed callback.

    Args:
        training: Training run of the trial.
        parameters: Point of the search space.
        outcome: Outcome of the trial (`shunter.search.protocol.Outcome`).

    Raises:
        ShunterError: See `call`.
    """
    call("on_trial", training, parameters, outcome)


def _after(hook: Callable[..., None] | None, method: str, training: CalledTraining) -> Callable[..., None] | None:
    bound = _bound(method)
    if not bound:
        return hook

    def both(*arguments: Any) -> None:
        if hook is not None:
            hook(*arguments)
        for one in bound:
            one(training, *arguments)

    return both


def _bound(method: str) -> list[Callable[..., None]]:
    loaded = ((name, CALLBACKS.load(name)) for name in CALLBACKS.names)
    return [_guarded(name, method, getattr(one, method)) for name, one in loaded if hasattr(one, method)]


def _guarded(name: str, method: str, function: Callable[..., None]) -> Callable[..., None]:
    """Return the function with its errors converted to `CallbackError`, except errors of Shunter."""

    def guarded(*arguments: Any) -> None:
        try:
            function(*arguments)
        except ShunterError:
            raise
        except Exception as error:
            raise CallbackError(name, method, error) from error

    return guarded
