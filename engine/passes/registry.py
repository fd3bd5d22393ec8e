"""The passes that there are: every file in `engine/passes/kinds` that sets `PASS`."""

import importlib
import pkgutil
from typing import Any

from shunter.engine.passes import kinds
from shunter.engine.passes.role import Pass, Stage


def passes_of(stage: Stage) -> tuple[Pass[Any], ...]:
    """The passes of a stage, in the order of their names."""
    names = sorted(module.name for module in pkgutil.iter_modules(kinds.__path__))
    modules = [importlib.import_module(f"{kinds.__name__}.{name}") for name in names]
    found: list[Pass[Any]] = [module.PASS for module in modules if hasattr(module, "PASS")]
    return tuple(sorted((one for one in found if one.stage == stage), key=lambda one: one.name))
