"""What every process of the distributed Shampoo tests runs; a module of its own so that a spawned process finds it."""

import copy
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.utils._pytree import tree_leaves

from shunter.errors import RequestError, TrainingError
from shunter.extensions.shampoo import Shampoo

STEPS, SAVED_STEP = 12, 7
SHAPES = ((20, 48), (48,), (48, 24), (24,), (24, 1), ())
CASES: dict[str, dict[str, Any]] = {
    "adam, in turns": {"root_every_steps": 3, "max_block_size": 16, "weight_decay": 0.01},
    "adagrad, together": {
        "root_every_steps": 2,
        "start_step": 1,
        "max_block_size": 16,
        "stagger": False,
        "betas": (0.9, 1.0),
        "grafting": "adagrad",
        "momentum": 0.9,
        "nesterov": True,
    },
    "large blocks": {"root_every_steps": 1, "max_block_size": 128, "grafting": "rmsprop"},
}


def make_parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def train(optimizer: Shampoo, parameters: list[nn.Parameter], first: int, last: int) -> None:
    """Run steps `first` to `last - 1`; a parameter now and then has no gradient."""
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step)
        for position, parameter in enumerate(parameters):
            gradient = torch.randn(parameter.shape, generator=generator) + 0.1 * parameter.detach()
            parameter.grad = gradient if (step + position) % 5 else None
        optimizer.step()


def state_bytes(optimizer: Shampoo) -> int:
    """Bytes of the state of the blocks that this process owns."""
    return sum(leaf.nbytes for leaf in tree_leaves(dict(optimizer.state)) if isinstance(leaf, torch.Tensor))


def run_case(options: dict[str, Any]) -> dict[str, Any]:
    """Train with a save in the middle, and once more from that save, from this rank's part and from the full state."""
    parameters = make_parameters()
    optimizer = Shampoo(parameters, **options)
    train(optimizer, parameters, 0, SAVED_STEP)
    saved = copy.deepcopy([parameter.detach() for parameter in parameters])
    part, full = copy.deepcopy(optimizer.state_dict()), optimizer.full_state_dict()
    train(optimizer, parameters, SAVED_STEP, STEPS)
    result: dict[str, Any] = {
        "weights": [parameter.detach() for parameter in parameters],
        "saved": saved,
        "part": part,
        "full": full,
        "state_bytes": state_bytes(optimizer),
    }
    everywhere = [full]
    if dist.is_initialized():
        dist.broadcast_object_list(everywhere)
    for name, state in {"from part": part, "from full": everywhere[0]}.items():
        again = [nn.Parameter(tensor.clone()) for tensor in saved]
        optimizer = Shampoo(again)
        optimizer.load_state_dict(copy.deepcopy(state))
        train(optimizer, again, SAVED_STEP, STEPS)
        result[name] = [parameter.detach() for parameter in again]
    return result


def error_of_bad_gradient() -> str:
    """The message that this rank gives when a gradient is NaN."""
    parameters = make_parameters()
    optimizer = Shampoo(parameters)
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, float("nan"))
    try:
        optimizer.step()
    except TrainingError as error:
        return str(error)
    return ""


def run_rank(rank: int, ranks: int, folder: Path) -> None:
    """Take part in a gloo group, run every case and write the results to `folder`."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'rendezvous'}", rank=rank, world_size=ranks)
    results: dict[str, Any] = {name: run_case(options) for name, options in CASES.items()}
    alone = [dist.new_group([member]) for member in range(ranks)]
    results["alone"] = run_case({**CASES["large blocks"], "process_group": alone[rank]})["state_bytes"]
    try:
        Shampoo(make_parameters(), process_group=alone[(rank + 1) % ranks])  # pyright: ignore[reportArgumentType]
    except RequestError as error:
        results["outsider"] = str(error)
    results["error"] = error_of_bad_gradient()
    torch.save(results, folder / f"rank{rank}.pt")
    dist.destroy_process_group()
