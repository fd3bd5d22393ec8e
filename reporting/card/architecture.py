"""Architecture of a model as it runs: its blocks, the data flow between them, and the shapes."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from shunter.frozen import Frozen

DENSE, EMBEDDINGS, LOGITS = "dense features", "embeddings", "logits"


class Block(Frozen):
    """Part of a model.

    Attributes:
        name: Name of the module within the model's layers.
        kind: Class of the module.
        shape: Shape of the output for one sample; None if the block was not called.
        parameters: Number of learned parameters.
        inputs: Names of the blocks whose outputs are the inputs of this block.
    """

    name: str
    kind: str
    shape: tuple[int, ...] | None
    parameters: int
    inputs: tuple[str, ...] = ()


class Architecture(Frozen):
    """Architecture of a model, as blocks and as single layers.

    Attributes:
        blocks: Inputs first, then the modules of the model in the order in which they run, then the output.
        layers: Each module with parameters, and each module of Shunter without parameters, in the same order.
        embedding_parameters: Number of parameters of the embedding tables.
        dense_parameters: Number of all other parameters.
    """

    blocks: tuple[Block, ...]
    layers: tuple[Block, ...]
    embedding_parameters: int
    dense_parameters: int


def describe_architecture(model: nn.Module, inputs: tuple[Any, ...]) -> Architecture:
    """Run the model once, and record the inputs and outputs of each module.

    The connections of the blocks are read from the autograd graph. They are therefore right for every family, including
    the operations that its code computes between modules.

    Args:
        model: Model of any family, on the CPU, in evaluation mode.
        inputs: Inputs of the model: a batch of at least two samples.
    """
    layers = model.layers if isinstance(getattr(model, "layers", None), nn.Module) else model
    assert isinstance(layers, nn.Module)
    embeddings = getattr(model, "embeddings", None)
    recorder = _Recorder(dict(_blocks(layers)), len(inputs[0]))
    leaves = {
        name: module
        for name, module in layers.named_modules()
        if (_is_own(module) and not list(module.children())) or next(module.parameters(recurse=False), None) is not None
    }
    with torch.enable_grad(), _hooked(recorder, layers, leaves):
        model(*inputs)
    dense = sum(parameter.numel() for parameter in layers.parameters())
    tables = sum(buffer.numel() for name, buffer in embeddings.named_buffers() if name == "weight") if embeddings else 0
    return Architecture(
        blocks=recorder.finished(tables),
        layers=tuple(
            Block(
                name=name,
                kind=type(module).__name__,
                shape=recorder.shapes.get(name),
                parameters=sum(parameter.numel() for parameter in module.parameters(recurse=False)),
            )
            for name, module in leaves.items()
        ),
        embedding_parameters=tables,
        dense_parameters=dense,
    )


def _blocks(layers: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the blocks of a model: its modules, and the elements of module lists and of stacks of Shunter's modules."""
    for name, module in layers.named_children():
        is_stack = isinstance(module, nn.Sequential) and all(
            _is_own(child) and list(child.children()) for child in module
        )
        if isinstance(module, nn.ModuleList) or is_stack:
            yield from ((f"{name}.{position}", child) for position, child in module.named_children())
        else:
            yield name, module


def _is_own(module: nn.Module) -> bool:
    """Return True if the class of a module is not a class of torch, so that the module belongs to a model family."""
    return not type(module).__module__.startswith("torch.")


class _Recorder:
    """Recorder of the output shape of each block, and of the blocks whose outputs are its inputs."""

    def __init__(self, blocks: dict[str, nn.Module], samples: int) -> None:
        self.blocks = blocks
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.sources: list[Block] = []
        self._samples = samples
        self._inputs: dict[str, tuple[str, ...]] = {}
        self._made_by: dict[Any, str] = {}  # node or leaf of the autograd graph -> name of the block
        self._order: list[str] = []

    def enter(self, _: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the inputs of the layers as named leaves of the autograd graph."""
        started = []
        names = iter((DENSE, EMBEDDINGS, *(f"input {number}" for number in range(len(arguments)))))
        for argument, name in zip(arguments, names, strict=False):
            if isinstance(argument, Tensor) and argument.is_floating_point():
                argument = argument.detach().requires_grad_()  # noqa: PLW2901 - the layers get the leaf
                if argument.numel():
                    self._made_by[id(argument)] = name
                    self.sources.append(Block(name=name, kind="input", shape=tuple(argument.shape[1:]), parameters=0))
            started.append(argument)
        self._kept = started
        return tuple(started)

    def before(self, name: str, _: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Record the sources of a block's input, before the block runs."""
        self._inputs[name] = tuple(dict.fromkeys((*self._inputs.get(name, ()), *self._origins(arguments))))

    def after(self, name: str, module: nn.Module, arguments: Any, output: Any) -> None:
        """Record the outputs of a block after its run."""
        if name not in self._order:
            self._order.append(name)
        for tensor in _tensors(output):
            if tensor.grad_fn is not None:
                self._made_by[tensor.grad_fn] = name
        self.record_shape(name, module, arguments, output)

    def record_shape(self, name: str, _: nn.Module, __: Any, output: Any) -> None:
        """Record the shape of the first output tensor, for one sample."""
        tensors = list(_tensors(output))
        if tensors:
            shape = tuple(tensors[0].shape)
            self.shapes[name] = shape[1:] if shape and shape[0] == self._samples else shape

    def leave(self, module: nn.Module, arguments: Any, output: Any) -> None:
        """Record the sources of the logits, after all layers have run."""
        self._inputs[LOGITS] = tuple(self._origins((output,)))
        self.record_shape(LOGITS, module, arguments, output)

    def finished(self, embedding_parameters: int) -> tuple[Block, ...]:
        """Return all blocks that ran, in the order in which they ran."""
        sources = [
            row.model_copy(update={"parameters": embedding_parameters}) if row.name == EMBEDDINGS else row
            for row in self.sources
        ]
        ran = [
            Block(
                name=name,
                kind=type(self.blocks[name]).__name__,
                shape=self.shapes.get(name),
                parameters=sum(parameter.numel() for parameter in self.blocks[name].parameters()),
                inputs=self._inputs.get(name, ()),
            )
            for name in self._order
        ]
        logits = Block(
            name=LOGITS, kind="output", shape=self.shapes.get(LOGITS), parameters=0, inputs=self._inputs[LOGITS]
        )
        return (*sources, *ran, logits)

    def _origins(self, value: Any) -> Iterator[str]:
        """Yield the names of the nearest blocks or inputs from which tensors were computed."""
        waiting: list[Any] = []
        for tensor in _tensors(value):
            if id(tensor) in self._made_by:
                yield self._made_by[id(tensor)]
            elif tensor.grad_fn is not None:
                waiting.append(tensor.grad_fn)
        seen = set(waiting)
        while waiting:
            node = waiting.pop(0)
            leaf = id(getattr(node, "variable", None))
            if node in self._made_by or leaf in self._made_by:
                yield self._made_by[node if node in self._made_by else leaf]
                continue
            following = [earlier for earlier, _ in node.next_functions if earlier is not None and earlier not in seen]
            seen.update(following)
            waiting += following


@contextmanager
def _hooked(recorder: _Recorder, layers: nn.Module, leaves: dict[str, nn.Module]) -> Iterator[None]:
    """Register the hooks of a recorder for the duration of the `with` block."""
    handles = [layers.register_forward_pre_hook(recorder.enter), layers.register_forward_hook(recorder.leave)]
    for name, module in leaves.items():
        handles.append(module.register_forward_hook(partial(recorder.record_shape, name)))
    for name, module in recorder.blocks.items():
        handles.append(module.register_forward_pre_hook(partial(recorder.before, name)))
        handles.append(module.register_forward_hook(partial(recorder.after, name)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield all tensors in nested tuples and lists."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
