"""Registry of the optimizers of the dense layers.

Capabilities:
    states: Floats of state for each parameter.
    is_divided: Whether the processes of one training run divide the state, so that each needs all parameters.
    is_searched: Whether the wide space of a search proposes it.
    rate_scale: Multiple of the learning rate that suits Adam; 1 if absent.
"""

from shunter.registry import Entry, Registry

DENSE_OPTIMIZERS = Registry(
    "dense optimizer",
    {
        "adam": Entry(
            target="shunter.engine.loop.optimizers:build_adam", capabilities={"states": 2, "is_searched": True}
        ),
        # Adagrad's first step is as large as Adam's, but later steps decrease with the root of the number of steps.
        "adagrad": Entry(
            target="shunter.engine.loop.optimizers:build_adagrad",
            capabilities={"states": 1, "is_searched": True, "rate_scale": 10.0},
        ),
        "sgd": Entry(target="shunter.engine.loop.optimizers:build_sgd", capabilities={"states": 0}),
        # Two states, and two square matrices for each dimension of a block: six states if blocks are square.
        "shampoo": Entry(
            target="shunter.extensions.shampoo.optimizer:build",
            capabilities={"states": 6, "is_divided": True, "is_searched": True},
        ),
    },
    group="shunter.dense_optimizers",
    defaults={"is_divided": False, "is_searched": False, "rate_scale": 1.0},
)


def states_of(name: str) -> int:
    """Return the floats of state per parameter of an optimizer.

    Raises:
        UnknownNameError: The optimizer does not exist.
        MissingExtensionError: The optimizer belongs to an extension that is not installed.
    """
    return int(DENSE_OPTIMIZERS.capability(name, "states"))


def rate_scale_of(name: str) -> float:
    """Return the multiple of Adam's learning rate that suits an optimizer; raises as `states_of`."""
    return float(DENSE_OPTIMIZERS.capability(name, "rate_scale"))


def searched_optimizers() -> tuple[str, ...]:
    """Return the names of the installed optimizers that the wide space of a search proposes, in their order."""
    return DENSE_OPTIMIZERS.names_with(is_searched=True)


def divides_state(name: str) -> bool:
    """Return True if the processes of one training run divide the optimizer's state; raises as `states_of`."""
    return bool(DENSE_OPTIMIZERS.capability(name, "is_divided"))
