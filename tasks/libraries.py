"""Libraries that a training loads after its start: they may be loaded earlier, while something is waited for."""

from collections.abc import Iterator
from importlib import import_module

from shunter.engine.libraries import load_libraries
from shunter.tracking.store import is_file_store

# In the order in which a training comes to need them.
NEEDED = ("mlflow.tracking", "scipy.optimize", "matplotlib.figure", "optuna")
NEEDED_BY_OUR_STORE = ("mlflow.store.tracking.sqlalchemy_store",)


def load_one_by_one() -> Iterator[str]:
    """Load the next at each turn, so that whoever waits may stop in between.

    Yields:
        The name of what has been loaded.
    """
    for name in (*(NEEDED_BY_OUR_STORE if is_file_store() else ()), *NEEDED):
        import_module(name)
        yield name
    load_libraries("cpu")
    yield "torch"
