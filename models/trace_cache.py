"""Cache of step traces on disk: tracing takes a second, and later runs need the same shapes again.

Each trace is a file in Shunter's home folder. Its name is a digest of everything that a trace depends on: the layers,
the shapes of their weights and inputs, the sources of the models, and torch. A trace is independent of the rows of the
tables.
"""

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn

from shunter.checked_json import read_or_quarantine, write_checked
from shunter.models.trace import Operator, StepTrace

OWN_OR_TORCH = ("shunter.models.", "torch.")


def cached_trace(layers: nn.Module, inputs: Sequence[Tensor], named: str, trace: Callable[[], StepTrace]) -> StepTrace:
    """Return the trace of a step from the cache, or make and cache it.

    Args:
        layers: Layers on the meta device.
        inputs: Inputs of the layers, on the meta device.
        named: Text of everything else that the trace depends on, for the cache key.
        trace: Makes the trace.
    """
    try:
        from shunter.settings import settings
    except ImportError:  # a machine that only trains and has no home folder
        return trace()
    path = settings().traces_directory / f"{_key(layers, inputs, named)}.json"
    found = read_or_quarantine(path, _from_json)
    if found is not None:
        with contextlib.suppress(OSError):
            os.utime(path)  # records the use, so that unused traces can be removed
        return found
    made = trace()
    with contextlib.suppress(OSError):  # with a full disk the step is traced again next time
        operators = [{**vars(one), "dtype": str(one.dtype).removeprefix("torch.")} for one in made.operators]
        write_checked(path, json.dumps({**asdict(made), "operators": operators}))
    return made


def _key(layers: nn.Module, inputs: Sequence[Tensor], named: str) -> str:
    weights = [(name, list(weight.shape), str(weight.dtype)) for name, weight in layers.state_dict().items()]
    given = [(list(tensor.shape), str(tensor.dtype), tensor.requires_grad) for tensor in inputs]
    # Source files of layers from extensions or other distributions.
    names = {type(module).__module__ for module in layers.modules()}
    files = {getattr(sys.modules[name], "__file__", None) for name in names if not name.startswith(OWN_OR_TORCH)}
    sources = _digest_of_sources(tuple(sorted(Path(file) for file in files if file)))
    whole = json.dumps([named, str(layers), weights, given, torch.__version__, sources])
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


@lru_cache
def _digest_of_sources(others: tuple[Path, ...]) -> str:
    """Return the digest of the source code of the models, so that changed layers are traced again."""
    digest = hashlib.sha256()
    for path in (*sorted(Path(__file__).parent.rglob("*.py")), *others):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _from_json(text: bytes) -> StepTrace:
    values = json.loads(text)
    for one in values["operators"]:
        one |= {"dtype": getattr(torch, one["dtype"]), "product": one["product"] and tuple(one["product"])}
        if not isinstance(one["dtype"], torch.dtype):
            raise TypeError(f"{one['dtype']} is not a numeric type")
    return StepTrace(**{**values, "operators": tuple(Operator(**one) for one in values["operators"])})
