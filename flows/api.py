"""Public names of `import shunter`, which imports this module at the first use of a name."""

from typing import TYPE_CHECKING, Any

from shunter.errors import RequestError, ShunterError, UnsupportedError
from shunter.flows.python.functions import check, history, select, train, tune
from shunter.flows.python.recommender import Recommender
from shunter.flows.python.session import run
from shunter.flows.python.training import Choice, Search, Training

if TYPE_CHECKING:
    from shunter.flows.python.estimator import Estimator

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
    """Import the estimator at its first use, because it loads scikit-learn."""
    if name != "Estimator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shunter.flows.python.estimator import Estimator

    return Estimator
