"""Conversion of programs to layers.

For scoring, all values that depend on weights only are computed once. For training, the layers have new weights, whose
numbers are rearranged numbers of the original weights.
"""

from collections.abc import Container, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from shunter.extensions.rewriting.program import Program, attribute, mapped
from shunter.models.altered_layers import AlteredLayers


class ScoringLayers(AlteredLayers):
    """Layers that score like a program; saved files contain the original layers, with their names and weights.

    Args:
        original: Original layers of the program, in evaluation mode.
        program: Rewritten program.
        steps: Rewriting steps, in the format of `shunter.extensions.rewriting.scheme`.

    Attributes:
        steps: Rewriting steps.
    """

    alteration = "rewriting"

    def __init__(self, original: nn.Module, program: Program, steps: tuple[str, ...]) -> None:
        super().__init__()
        self.steps, self.original = steps, original
        self.__dict__["program"] = program
        self.refresh()
        self.register_state_dict_post_hook(_without_prefix)
        self._register_load_state_dict_pre_hook(_with_prefix)
        self.register_load_state_dict_post_hook(lambda module, _: module.refresh())  # pyright: ignore[reportAttributeAccessIssue]

    def refresh(self) -> None:
        """Recompute all values that depend on weights only, after a change of the weights."""
        with torch.no_grad():
            self.__dict__["compute"] = folded(self.__dict__["program"])

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return logits equal to those of the original layers."""
        return self.__dict__["compute"](*inputs)

    def train(self, mode: bool = True) -> "ScoringLayers":
        """Do nothing, because these layers always stay in evaluation mode."""
        return super().train(False)

    def __deepcopy__(self, memo: dict[int, Any]) -> "ScoringLayers":
        """Return a copy that shares the weights, which scoring does not change."""
        return ScoringLayers(self.original, self.__dict__["program"], self.steps)


ORIGINAL = "original."


def _without_prefix(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    for name in [name for name in state if name.startswith(f"{prefix}{ORIGINAL}")]:
        state[f"{prefix}{name.removeprefix(f'{prefix}{ORIGINAL}')}"] = state.pop(name)


def _with_prefix(state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name in [name for name in state if name.startswith(prefix)]:
        state[f"{prefix}{ORIGINAL}{name.removeprefix(prefix)}"] = state.pop(name)


def frontier(program: Program) -> list[fx.Node]:
    """Return the nodes that depend on weights only and whose results are inputs of nodes that depend on inputs."""
    constants = program.constants()
    return [node for node in program.graph.nodes if node in constants and set(node.users) - constants]


def folded(program: Program) -> nn.Module:
    """Return the program as a module in which all values that depend on weights only are constants."""
    made, holder = program.copy(), nn.Module()
    for number, (node, value) in enumerate(zip(frontier(made), _constants(program, {}), strict=True)):
        name = f"constant_{number}"
        holder.register_buffer(name, value.detach(), persistent=False)
        with made.graph.inserting_before(node):
            node.replace_all_uses_with(made.graph.get_attr(name))
    made.sweep()
    _attach_called(holder, made, program.root)
    return fx.GraphModule(holder, made.graph)


def _attach_called(holder: nn.Module, program: Program, root: nn.Module) -> None:
    """Attach the modules of `root` that a program calls, at the same paths."""
    for path in [str(node.target) for node in program.graph.nodes if node.op == "call_module"]:
        *above, last = path.split(".")
        place = holder
        for name in above:
            if not hasattr(place, name):
                place.add_module(name, nn.Module())
            place = place.get_submodule(name)
        place.add_module(last, root.get_submodule(path))


def _constants(program: Program, tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """Return the values of the frontier nodes."""
    values: dict[fx.Node, Any] = {}
    constants = program.constants()
    for node in program.graph.nodes:
        if node not in constants:
            continue
        if node.op == "get_attr":
            found = tensors.get(str(node.target))
            values[node] = attribute(program.root, str(node.target)) if found is None else found
            continue
        args, kwargs = (mapped(one, values.__getitem__) for one in (node.args, node.kwargs))
        target: Any = node.target
        values[node] = target(*args, **kwargs) if callable(target) else getattr(args[0], target)(*args[1:])
    return [values[node] for node in frontier(program)]


class MovedWeights:
    """Mapping between the elements of the original weights and the elements of a program's weights.

    Every original element gets an index, and the program is run on the indices. Padding elements are zero.

    Args:
        program: Rewritten program.

    Raises:
        ValueError: An original element is missing, duplicated or changed.
    """

    def __init__(self, program: Program) -> None:
        own = dict(program.root.named_parameters())
        self.shapes = {name: weight.shape for name, weight in own.items()}
        self.count = sum(weight.numel() for weight in own.values())
        numbered, first = {}, 1
        for name, weight in own.items():
            numbered[name] = torch.arange(first, first + weight.numel(), dtype=torch.float64).view(weight.shape)
            first += weight.numel()
        kinds = _learned(program, own)
        found = _constants(program, numbered)
        self.places = [value.long() - 1 for value, is_learned in zip(found, kinds, strict=True) if is_learned]
        placed = torch.cat([one.flatten() for one in self.places]) if self.places else torch.zeros(0, dtype=torch.long)
        placed = placed[placed >= 0]
        if len(placed) != self.count or not torch.equal(placed.sort().values, torch.arange(self.count)):
            raise ValueError("the program's weights are not a rearrangement of the weights of the layers")

    def moved(self, original: Mapping[str, Tensor]) -> list[Tensor]:
        """Convert weights, or optimizer state, from the original layers to the program."""
        flat = torch.cat([original[name].reshape(-1) for name in self.shapes])
        padded = torch.cat([flat, flat.new_zeros(1)])
        return [padded[one] for one in self.places]  # index -1, the last element, is zero

    def original(self, moved: list[Tensor]) -> dict[str, Tensor]:
        """Convert weights of the program back to the original layers; the inverse of `moved`."""
        flat = moved[0].new_empty(self.count)
        for place, value in zip(self.places, moved, strict=True):
            there = place >= 0
            flat[place[there].to(flat.device)] = value[there.to(value.device)]
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = zip(self.shapes.items(), flat.split(sizes), strict=True)
        return {name: part.view(shape).clone() for (name, shape), part in parts}


def _learned(program: Program, own: Container[str]) -> list[bool]:
    """Return for each frontier node True if it depends on trainable weights."""
    constants, learned = program.constants(), set()
    for node in program.graph.nodes:
        if node in constants and (
            str(node.target) in own if node.op == "get_attr" else learned & set(node.all_input_nodes)
        ):
            learned.add(node)
    return [node in learned for node in frontier(program)]


class TrainingLayers(nn.Module):
    """Layers that train with the computation of a program, with the state dict of the original layers.

    Args:
        original: Original layers of the program; modules with state besides weights are shared.
        program: Rewritten program.
        steps: Rewriting steps.

    Raises:
        ValueError: The program's weights are not a rearrangement of the original weights.
    """

    def __init__(self, original: nn.Module, program: Program, steps: tuple[str, ...]) -> None:
        super().__init__()
        self.steps = steps
        self.__dict__["original"] = original
        moved = self.__dict__["moved"] = MovedWeights(program)
        made, kinds = program.copy(), _learned(program, moved.shapes)
        values = _constants(program, {})
        learned = iter(moved.moved(dict(original.named_parameters())))
        self.own: list[str] = []
        holder = nn.Module()
        for number, (node, value, is_learned) in enumerate(zip(frontier(made), values, kinds, strict=True)):
            name = f"weight_{number}"
            if is_learned:
                holder.register_parameter(name, nn.Parameter(next(learned).detach().clone()))
                self.own.append(name)
            else:
                holder.register_buffer(name, value.detach(), persistent=False)
            with made.graph.inserting_before(node):
                node.replace_all_uses_with(made.graph.get_attr(name))
        made.sweep()
        _attach_called(holder, made, original)
        self.compute = fx.GraphModule(holder, made.graph)
        fixed = {name for name, _ in self.compute.named_buffers(recurse=False)}
        self.compute._non_persistent_buffers_set |= fixed  # constants such as indices
        self.register_state_dict_post_hook(_as_original)
        self._register_load_state_dict_pre_hook(self._as_own)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return logits equal to those of the original layers."""
        return self.compute(*inputs)

    def restored(self) -> nn.Module:
        """Return the original layers with the trained weights."""
        original: nn.Module = self.__dict__["original"]
        trained = [self.compute.get_parameter(name).detach() for name in self.own]
        found = self.__dict__["moved"].original(trained)
        with torch.no_grad():
            for name, weight in original.named_parameters():
                weight.copy_(found[name])
        return original.train(self.training)

    def _as_own(self, state: dict[str, Any], prefix: str, *_: Any) -> None:
        moved: MovedWeights = self.__dict__["moved"]
        given = {name: state.pop(f"{prefix}{name}") for name in moved.shapes if f"{prefix}{name}" in state}
        if len(given) == len(moved.shapes):
            for name, value in zip(self.own, moved.moved(given), strict=True):
                state[f"{prefix}compute.{name}"] = value
        for name in [name for name in state if name.startswith(prefix) and "compute." not in name]:
            state[f"{prefix}compute.{name.removeprefix(prefix)}"] = state.pop(name)


def _as_original(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    assert isinstance(module, TrainingLayers)
    begin = f"{prefix}compute."
    own = [state.pop(f"{begin}{name}") for name in module.own]
    for name in [name for name in state if name.startswith(begin)]:
        state[f"{prefix}{name.removeprefix(begin)}"] = state.pop(name)
    for name, value in module.__dict__["moved"].original(own).items():
        state[f"{prefix}{name}"] = value
