"""Libraries that a training run imports after its start; they can be imported early, during a wait."""

from collections.abc import Iterator
from importlib import import_module

from shunter.engine.libraries import load_libraries
from shunter.tracking.store import is_file_store

# In the order in which a training run needs them.
NEEDED = ("mlflow.tracking", "scipy.optimize", "optuna")
NEEDED_BY_OUR_STORE = ("mlflow.store.tracking.sqlalchemy_store",)


def load_one_by_one() -> Iterator[str]:
    """Import the libraries one at a time, so that a caller can stop in between.

    Yields:
        Name of the library that was imported.
    """
    for name in (*(NEEDED_BY_OUR_STORE if is_file_store() else ()), *NEEDED):
        import_module(name)
        yield name
    load_libraries("cpu")
    yield "torch"
