"""Loading of the training libraries, before time and energy of a run are measured."""

import contextlib

from shunter.engine.config import Hyperparameters
from shunter.engine.loop.step import build_dense_optimizer
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features

SMALLEST = Features(dense=("number",), categorical=(CategoricalFeature(name="id", rows=2),))


def load_libraries(device: str) -> None:
    """Load the libraries that torch and the embedding kernels load on first use, which takes seconds.

    Otherwise the first of several training runs in a process would include this time, and appear slower than the
    others. A second call is fast.

    Args:
        device: Device of the training runs.
    """
    with contextlib.suppress(Exception):  # the training run reports a broken device in more detail
        model = build_model(model_spec(embedding_dim=4, bottom_widths=(), top_widths=()), SMALLEST, device=device)
        build_dense_optimizer(model, Hyperparameters())
