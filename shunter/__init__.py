"""Train recommenders within time, energy, cost and quality limits.

    import shunter

    training = shunter.train(log, schema, max_hours=1)      # log: a frame, a file or a folder
    training.model.predict(rows)                            # training.metrics, .decision, .trials, .report()
    shunter.Recommender.load("shop@champion").predict(rows)

The public names are imported when they are used. This folder is also the base package, which every other folder may
import: errors for users, settings, requests, and helpers for files and statistics. It imports other folders only for
    these names.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shunter.flows.api import (
        Choice,
        Estimator,
        Recommender,
        RequestError,
        Search,
        ShunterError,
        Training,
        UnsupportedError,
        check,
        history,
        run,
        select,
        train,
        tune,
    )

__all__ = [
    "Choice",
    "Estimator",
    "Recommender",
    "RequestError",
    "Search",
    "ShunterError",
    "Training",
    "UnsupportedError",
    "check",
    "history",
    "run",
    "select",
    "train",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Return a public name from `shunter.flows.api`, which is imported on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shunter.flows import api

    return getattr(api, name)


def __dir__() -> list[str]:
    """Return the public names of the package."""
    return sorted({*globals(), *__all__})
