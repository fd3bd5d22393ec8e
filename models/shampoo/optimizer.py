"""Shampoo as a `torch.optim.Optimizer`, its state sharded over the processes of a group."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from torch import distributed as dist
from torch.optim import Optimizer

from models.shampoo.blocks import Block, root_operations, split_blocks, step_operations
from models.shampoo.direction import new_state, search_direction
from models.shampoo.sharding import Ranks, assign_greedily
from shunter.errors import CheckpointError, RequestError, TrainingError

Grafting = Literal["none", "sgd", "adagrad", "rmsprop", "adam"]


class Shampoo(Optimizer):
    """Second-order optimiser for dense parameters: each dimension of a block is preconditioned by its own statistics.

    The algorithm is that of arXiv 2309.06497; see `models.shampoo.direction`. In a group of processes each block
    belongs to one of them, which alone keeps its state and computes its direction; one all-gather a step gives the
    directions to all. The result is that of a single process, bit by bit where the kernels are deterministic.

    Until a block has its first roots it follows the grafting method, and takes that method's step length afterwards.
    Roots are costly (cubic in the block's size), so they are recomputed only every `root_every_steps` steps, and the
    blocks take turns: no step pays for all. Across processes turns have a price: while one computes, the others wait.
    Then `stagger=False` is faster, where all do their share in the same step.

    Gradients must be equal on all processes, as DistributedDataParallel leaves them, and dense. Parameters are float32
    (under autocast too) or float64.

    Args:
        params: parameters, named parameters or groups, as for any torch optimiser; every option but the last two can
            be set for each group.
        lr: step size.
        betas: decay of the averaged gradient (0 for none), and of the factors (1 sums, as Adagrad does).
        epsilon: added to the factors' eigenvalues.
        weight_decay: pulls the weights to zero: decoupled, or as an L2 term of the gradient.
        decoupled_weight_decay: which of the two.
        momentum: of the directions, 0 for none.
        dampening: share of a direction that momentum leaves out.
        nesterov: look ahead along the momentum.
        max_block_size: largest dimension of a block; smaller dimensions are merged up to it.
        root_every_steps: steps from one computation of a block's roots to the next.
        start_step: first step that may compute roots, by default `root_every_steps`.
        stagger: whether the blocks compute their roots in turns.
        root_exponent: power of the inverse factors; None for 1 / (2 * dimensions of the block).
        grafting: method that lends each block its step length.
        grafting_beta: decay of the squared gradient in `rmsprop` and `adam`.
        grafting_epsilon: added to its root.
        check_gradients: look for NaN and infinity before each step; on a GPU this waits for the device. Without it
            they are found when roots are next computed.
        process_group: processes that share the state; by default all, or just this one if torch.distributed is not
            initialised.

    Raises:
        RequestError: an option is out of range, or a parameter is of a type, layout or device that does not suit.
    """

    def __init__(
        self,
        params: Any,
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-12,
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
        self._loads = [0.0] * self._ranks.count
        self._blocks: list[Block] = []
        self._check_gradients = check_gradients
        defaults = {
            "lr": lr,
            "betas": betas,
            "epsilon": epsilon,
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
        """Add parameters with options of their own; blocks that exist already stay with their owners."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if group["start_step"] is None:
            group["start_step"] = group["root_every_steps"]
        _check_options(group)
        for _, parameter, name in self._parameters():
            _check_parameter(parameter, name, like=self.param_groups[0]["params"][0])
        self._blocks += self._lay_out(group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update the parameters.

        Args:
            closure: computes the loss and the gradients anew.

        Returns:
            What the closure returned.

        Raises:
            TrainingError: a gradient is NaN or infinite, whereupon nothing has changed, or a root is.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._check_gradients:
            self._refuse_bad_gradients()
        own = {block: self._direction(block) for block in self._own_blocks() if block.parameter.grad is not None}
        for block, direction in self._ranks.exchange(self._blocks, own).items():
            block.part_of(block.parameter).add_(direction, alpha=-block.group["lr"])
        return loss

    def state_dict(self) -> dict[str, Any]:
        """This process's part of the state, with the rank and number of ranks under `part`."""
        part = {"rank": self._ranks.rank, "ranks": self._ranks.count}
        return {**super().state_dict(), "part": part}

    def full_state_dict(self) -> dict[str, Any] | None:
        """The state of all processes, on the first rank, on the CPU; None on the others. All must call it."""
        return self._ranks.join(self.state_dict())

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from this process's part of a state, or from a full one on any number of processes.

        Args:
            state_dict: from `state_dict`, `full_state_dict` or `merge_state_dicts`.

        Raises:
            CheckpointError: it belongs to another model, other block sizes or another number of processes.
        """
        part = state_dict.get("part", {})
        if part not in ({"rank": 0, "ranks": 1}, {"rank": self._ranks.rank, "ranks": self._ranks.count}):
            raise CheckpointError(
                f"The Shampoo state is part {part.get('rank')} of {part.get('ranks')}, but the full state or part "
                f"{self._ranks.rank} of {self._ranks.count} was expected: join the parts with merge_state_dicts."
            )
        saved_groups = [
            (len(group["params"]), group.get("max_block_size")) for group in state_dict.get("param_groups", [])
        ]
        if saved_groups != [(len(group["params"]), group["max_block_size"]) for group in self.param_groups]:
            raise CheckpointError(
                f"The Shampoo state has groups of (parameters, block size) {saved_groups}, which are not this "
                "optimiser's: build it over the same model with the same max_block_size."
            )
        super().load_state_dict({**state_dict, "state": self._own_state(state_dict)})

    def state_bytes(self) -> int:
        """Memory of this process's part of the state."""
        return sum(tensor.nbytes for blocks in self.state.values() for tensor in _tensors(blocks))

    def _lay_out(self, group: dict[str, Any]) -> list[Block]:
        """Cut a group into blocks, give each a slot among the steps and an owner among the ranks."""
        places = [
            (parameter, index, tuple(block.shape))
            for parameter in group["params"]
            for index, block in enumerate(split_blocks(parameter.detach(), group["max_block_size"]))
        ]
        roots = [root_operations(shape) for _, _, shape in places]
        every = group["root_every_steps"]
        slots = assign_greedily(roots, [0.0] * (every if group["stagger"] else 1))
        costs = [step_operations(shape) + root / every for (_, _, shape), root in zip(places, roots, strict=True)]
        owners = assign_greedily(costs, self._loads)
        return [
            Block(group, parameter, index, shape, slot, owner)
            for (parameter, index, shape), slot, owner in zip(places, slots, owners, strict=True)
        ]

    def _own_blocks(self) -> list[Block]:
        return [block for block in self._blocks if block.owner == self._ranks.rank]

    def _direction(self, block: Block) -> Tensor:
        blocks = self.state[block.parameter]
        if block.index not in blocks:
            blocks[block.index] = new_state(block)
        gradient = block.parameter.grad
        assert gradient is not None
        weight = block.part_of(block.parameter)
        return search_direction(block, blocks[block.index], weight, block.part_of(gradient))

    def _refuse_bad_gradients(self) -> None:
        """Every process looks at all gradients, so that all stop together and none waits for another."""
        named = [(name, parameter.grad) for _, parameter, name in self._parameters() if parameter.grad is not None]
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
            "lower the learning rate or look for bad values in the data."
        )

    def _parameters(self) -> Iterator[tuple[dict[str, Any], Tensor, str]]:
        """Each parameter with its group, and the name or position by which a message can name it."""
        for number, group in enumerate(self.param_groups):
            unnamed = [f"parameter {position} of group {number}" for position in range(len(group["params"]))]
            for parameter, name in zip(group["params"], group.get("param_names", unnamed), strict=True):
                yield group, parameter, name

    def _own_state(self, state_dict: dict[str, Any]) -> dict[int, dict[int, Any]]:
        """Those blocks of a saved state that this process owns, checked against the shapes that it expects."""
        saved_ids = [identity for group in state_dict["param_groups"] for identity in group["params"]]
        parameters = [parameter for _, parameter, _ in self._parameters()]
        own: dict[int, dict[int, Any]] = {}
        for identity, parameter in zip(saved_ids, parameters, strict=True):
            # A parameter that never had a gradient has no state at all.
            saved = state_dict["state"].get(identity, {})
            expected = [block for block in self._own_blocks() if block.parameter is parameter] if saved else []
            for block in expected:
                factors = saved.get(block.index, {}).get("factors", [])
                if [tuple(factor.shape) for factor in factors] != [(size, size) for size in block.shape]:
                    raise CheckpointError(
                        f"The Shampoo state of parameter {identity} does not fit its shape {tuple(parameter.shape)}: "
                        "load the checkpoint into the model that it was saved from."
                    )
                own.setdefault(identity, {})[block.index] = saved[block.index]
        return own


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in nested dictionaries and lists."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)


def _check_options(group: dict[str, Any]) -> None:
    rules = {
        "lr": group["lr"] >= 0,
        "betas": 0 <= group["betas"][0] < 1 and 0 < group["betas"][1] <= 1,
        "epsilon": group["epsilon"] > 0,
        "weight_decay": group["weight_decay"] >= 0,
        "momentum": 0 <= group["momentum"] < 1,
        "dampening": 0 <= group["dampening"] < 1,
        "nesterov": group["momentum"] > 0 or not group["nesterov"],
        "max_block_size": group["max_block_size"] >= 1,
        "root_every_steps": group["root_every_steps"] >= 1,
        "start_step": group["start_step"] >= 1,
        "root_exponent": group["root_exponent"] is None or group["root_exponent"] > 0,
        "grafting": group["grafting"] in Grafting.__args__,
        "grafting_beta": 0 < group["grafting_beta"] < 1,
        "grafting_epsilon": group["grafting_epsilon"] > 0,
    }
    for name, holds in rules.items():
        if not holds:
            raise RequestError(
                f"Shampoo's {name} = {group[name]} is out of range: see its documentation for the range."
            )


def _check_parameter(parameter: Tensor, name: str, *, like: Tensor) -> None:
    if parameter.dtype not in (torch.float32, torch.float64):
        raise RequestError(f"Shampoo got {name} in {parameter.dtype}: keep it in float32 and use autocast.")
    if (parameter.dtype, parameter.device) != (like.dtype, like.device):
        raise RequestError(
            f"Shampoo got {name} in {parameter.dtype} on {parameter.device} but others in {like.dtype} on {like.device}:"
            " give each kind an optimiser of its own."
        )
    if not parameter.is_contiguous():
        raise RequestError(f"Shampoo got {name} in a layout that is not contiguous: make it contiguous first.")
