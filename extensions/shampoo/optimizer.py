"""Shampoo as a `torch.optim.Optimizer` whose state is sharded over the processes of a group."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from torch import distributed as dist
from torch.optim import Optimizer

from shunter.errors import CheckpointError, RequestError, TrainingError
from shunter.extensions.shampoo.blocks import Block, Ranks, lay_out, split_blocks
from shunter.extensions.shampoo.direction import new_state, search_direction

Grafting = Literal["none", "sgd", "adagrad", "rmsprop", "adam"]


def build(groups: list[dict[str, Any]], learning_rate: float) -> "Shampoo":
    """Build the optimizer without gradient checks, because the training loop checks the loss for NaN."""
    return Shampoo(groups, lr=learning_rate, check_gradients=False)


class Shampoo(Optimizer):
    """Second-order optimizer for dense parameters: each dimension of a block is preconditioned by its own statistics.

    The algorithm is that of arXiv 2309.06497; see `shunter.extensions.shampoo.direction`. In a group of processes each
    block has one owner, which alone stores its state and computes its direction. One all-gather per step gives the
    directions to all processes. With deterministic kernels, the result equals that of a single process bit by bit.

    Until a block has its first roots, the direction of the grafting method is used, and later only the length of this
    direction. Roots are costly (cubic in the block's size), so they are recomputed only every `root_every_steps` steps.
    By default the blocks compute their roots in different steps, so that no single step is very slow. With several
    processes, all processes wait for the process that computes roots. Computing all roots in one step by
    `stagger=False` is then faster.

    Gradients must be dense and equal on all processes, as with DistributedDataParallel. Parameters are float32 (under
    autocast too) or float64.

    Args:
        params: Parameters, named parameters or groups, as for any torch optimizer; every option except the last two
            can be set per group.
        lr: Step size.
        betas: Decay of the averaged gradient (0: no average), and of the factors (1: a sum, as in Adagrad).
        epsilon: Number that is added to the factors' eigenvalues.
        relative_epsilon: Share of a factor's largest eigenvalue that is added to its eigenvalues. The default is about
            the resolution of float32, below which eigenvalues are noise; the paper uses 0.
        weight_decay: Strength of the weight decay.
        decoupled_weight_decay: Whether weight decay is applied to the weights directly, not as an L2 term of the
            gradient.
        momentum: Momentum of the directions, 0 for none.
        dampening: Share of the new direction that is not added to the momentum.
        nesterov: Whether to use Nesterov momentum.
        max_block_size: Largest dimension of a block; smaller dimensions are merged up to this size.
        root_every_steps: Number of steps between two computations of a block's roots.
        start_step: First step that may compute roots; `root_every_steps` by default.
        stagger: Whether the blocks compute their roots in different steps.
        root_exponent: Exponent of the inverse factors; None for 1 / (2 * dimensions of the block).
        grafting: Method that determines the step length of each block.
        grafting_beta: Decay of the squared gradient in `rmsprop` and `adam`.
        grafting_epsilon: Number that is added to the square root of the squared gradient.
        check_gradients: Whether gradients are checked for NaN and infinity before each step, which synchronises a GPU.
            Without the check, such gradients are found only when roots are next computed.
        process_group: Processes that share the state; all processes by default, or only this process if
            torch.distributed is not initialised.

    Raises:
        RequestError: An option is out of range, a parameter has an unsupported dtype, layout or device, or this process
            does not belong to the group.
    """

    def __init__(
        self,
        params: Any,
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-12,
        relative_epsilon: float = 1e-7,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = True,
        momentum: float = 0.0,
        dampening: float = 0.0,
        nesterov: bool = False,
        max_block_size: int = 1024,
        root_every_steps: int = 50,
        start_step: int | None = None,
        stagger: bool = True,
        root_exponent: float | None = None,
        grafting: Grafting = "adam",
        grafting_beta: float = 0.999,
        grafting_epsilon: float = 1e-8,
        check_gradients: bool = True,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        self._ranks = Ranks(process_group)
        self._blocks: list[Block] = []
        self._check_gradients = check_gradients
        defaults = {
            "lr": lr,
            "betas": betas,
            "epsilon": epsilon,
            "relative_epsilon": relative_epsilon,
            "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "momentum": momentum,
            "dampening": dampening,
            "nesterov": nesterov,
            "max_block_size": max_block_size,
            "root_every_steps": root_every_steps,
            "start_step": start_step,
            "stagger": stagger,
            "root_exponent": root_exponent,
            "grafting": grafting,
            "grafting_beta": grafting_beta,
            "grafting_epsilon": grafting_epsilon,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their own options; existing blocks do not change."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if group["start_step"] is None:
            group["start_step"] = group["root_every_steps"]
        _check_options(group)
        for _, parameter, name in self._parameters():
            _check_parameter(parameter, name, like=self.param_groups[0]["params"][0])
        self._blocks = lay_out(self.param_groups, self._ranks.count)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update the parameters by one optimizer step.

        Args:
            closure: Function that recomputes the loss and the gradients.

        Returns:
            Value that the closure returned.

        Raises:
            TrainingError: A gradient is NaN or infinite, and nothing has changed; or a factor has no finite root.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._check_gradients:
            self._refuse_bad_gradients()
        weights = {
            parameter: split_blocks(parameter, group["max_block_size"]) for group, parameter, _ in self._parameters()
        }
        directions = self._ranks.exchange(self._blocks, self._own_directions(weights))
        for block, direction in directions.items():
            weights[block.parameter][block.index].add_(direction, alpha=-self.param_groups[block.group]["lr"])
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the blocks that this process owns, with its rank and the number of ranks under `part`."""
        return {**super().state_dict(), "part": {"rank": self._ranks.rank, "ranks": self._ranks.count}}

    def full_state_dict(self) -> dict[str, Any] | None:
        """Return the state of all processes on the CPU of rank 0, None on other ranks; all ranks must call this."""
        return self._ranks.join(self.state_dict())

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that the same process saved, or a full state on any number of processes.

        Args:
            state_dict: State from `state_dict`, `full_state_dict` or `merge_state_dicts`.

        Raises:
            CheckpointError: The state belongs to another model or optimizer, or was saved by another process.
        """
        if "part" not in state_dict:
            raise CheckpointError(
                "The optimizer state does not belong to Shampoo: load it into an optimizer of the kind that saved it."
            )
        part = state_dict["part"]
        if part not in ({"rank": 0, "ranks": 1}, {"rank": self._ranks.rank, "ranks": self._ranks.count}):
            raise CheckpointError(
                f"The Shampoo state is part {part['rank']} of {part['ranks']}, but the full state or part "
                f"{self._ranks.rank} of {self._ranks.count} was expected: join the parts with merge_state_dicts."
            )
        saved = state_dict["param_groups"]
        if [len(group["params"]) for group in saved] != [len(group["params"]) for group in self.param_groups]:
            raise CheckpointError(
                "The Shampoo state has other parameter groups than this optimizer: "
                "load it into an optimizer over the model that it was saved from."
            )
        # The saved options are used, as in any torch optimizer, so that the blocks equal those of the saved run.
        groups = [{**old, "params": new["params"]} for old, new in zip(saved, self.param_groups, strict=True)]
        blocks = lay_out(groups, self._ranks.count)
        super().load_state_dict({**state_dict, "state": self._own_state(state_dict, blocks)})
        self._blocks = blocks

    def _own_directions(self, weights: dict[Tensor, list[Tensor]]) -> dict[Block, Tensor]:
        """Advance the blocks that this process owns and that have a gradient by one step; return their directions."""
        gradients: dict[Tensor, list[Tensor]] = {}
        directions: dict[Block, Tensor] = {}
        for block in self._blocks:
            parameter, options = block.parameter, self.param_groups[block.group]
            if block.owner != self._ranks.rank or parameter.grad is None:
                continue
            if parameter not in gradients:
                gradients[parameter] = split_blocks(parameter.grad, options["max_block_size"])
            states = self.state[parameter]
            if block.index not in states:
                states[block.index] = new_state(block, options)
            weight, gradient = weights[parameter][block.index], gradients[parameter][block.index]
            directions[block] = search_direction(block, options, states[block.index], weight, gradient)
        return directions

    def _refuse_bad_gradients(self) -> None:
        """Raise if a gradient is NaN or infinite; each process checks all gradients, so all raise together."""
        named = [(name, p.grad) for _, p, name in self._parameters() if p.grad is not None and p.numel()]
        for name, gradient in named:
            if gradient.is_sparse:
                raise RequestError(
                    f"The gradient of {name} is sparse, but Shampoo needs dense ones: use row-wise Adagrad."
                )
        largest = torch.nn.utils.get_total_norm([gradient for _, gradient in named], norm_type=torch.inf)
        if bool(torch.isfinite(largest)):
            return
        bad = next(name for name, gradient in named if not bool(torch.isfinite(gradient).all()))
        raise TrainingError(
            f"The gradient of {bad} holds NaN or infinity where finite numbers were expected: "
            "lower the learning rate or check the data for bad values."
        )

    def _parameters(self) -> Iterator[tuple[dict[str, Any], Tensor, str]]:
        """Yield each parameter with its group, and its name or position for error messages."""
        for number, group in enumerate(self.param_groups):
            unnamed = [f"parameter {position} of group {number}" for position in range(len(group["params"]))]
            for parameter, name in zip(group["params"], group.get("param_names", unnamed), strict=True):
                yield group, parameter, name

    def _own_state(self, state_dict: dict[str, Any], blocks: list[Block]) -> dict[int, dict[int, Any]]:
        """Return the saved state of the blocks that this process owns, after a check of its shapes."""
        saved_ids = [identity for group in state_dict["param_groups"] for identity in group["params"]]
        identities = {
            parameter: identity for identity, (_, parameter, _) in zip(saved_ids, self._parameters(), strict=True)
        }
        own: dict[int, dict[int, Any]] = {}
        for block in blocks:
            identity = identities[block.parameter]
            saved = state_dict["state"].get(identity)
            # A parameter that never had a gradient has no state.
            if block.owner != self._ranks.rank or saved is None:
                continue
            factors = saved.get(block.index, {}).get("factors", [])
            if [tuple(factor.shape) for factor in factors] != [(size, size) for size in block.shape]:
                raise CheckpointError(
                    f"The Shampoo state of parameter {identity} does not fit its shape {tuple(block.parameter.shape)}: "
                    "load the checkpoint into the model that it was saved from."
                )
            own.setdefault(identity, {})[block.index] = saved[block.index]
        return own


def _check_options(group: dict[str, Any]) -> None:
    rules = {
        "lr": (group["lr"] >= 0, "at least 0"),
        "betas": (0 <= group["betas"][0] < 1 and 0 < group["betas"][1] <= 1, "from 0 to below 1, and above 0 to 1"),
        "epsilon": (group["epsilon"] > 0, "above 0"),
        "relative_epsilon": (0 <= group["relative_epsilon"] < 1, "from 0 to below 1"),
        "weight_decay": (group["weight_decay"] >= 0, "at least 0"),
        "momentum": (0 <= group["momentum"] < 1, "from 0 to below 1"),
        "dampening": (0 <= group["dampening"] < 1, "from 0 to below 1"),
        "nesterov": (group["momentum"] > 0 or not group["nesterov"], "False where momentum is 0"),
        "max_block_size": (group["max_block_size"] >= 1, "at least 1"),
        "root_every_steps": (group["root_every_steps"] >= 1, "at least 1"),
        "start_step": (group["start_step"] >= 1, "at least 1"),
        "root_exponent": (group["root_exponent"] is None or group["root_exponent"] > 0, "None or above 0"),
        "grafting": (group["grafting"] in Grafting.__args__, f"one of {', '.join(Grafting.__args__)}"),
        "grafting_beta": (0 < group["grafting_beta"] < 1, "between 0 and 1"),
        "grafting_epsilon": (group["grafting_epsilon"] > 0, "above 0"),
    }
    for name, (holds, expected) in rules.items():
        if not holds:
            raise RequestError(f"Shampoo's {name} is {group[name]!r}: give a value that is {expected}.")


def _check_parameter(parameter: Tensor, name: str, *, like: Tensor) -> None:
    if parameter.dtype not in (torch.float32, torch.float64):
        raise RequestError(f"Shampoo got {name} in {parameter.dtype}: keep it in float32 and use autocast.")
    if (parameter.dtype, parameter.device) != (like.dtype, like.device):
        raise RequestError(
            f"Shampoo got {name} in {parameter.dtype} on {parameter.device} but other parameters in {like.dtype} on "
            f"{like.device}: give each kind an optimizer of its own."
        )
    if not parameter.is_contiguous():
        raise RequestError(f"Shampoo got {name} in a layout that is not contiguous: make it contiguous first.")
