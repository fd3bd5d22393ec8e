"""Graph of operators of a model's layers, which rules can change.

Weights are nodes of the graph too, so that operations of rules on weights (such as concatenating two matrices) are part
of the graph. Values that depend on weights only are computed once (`materialise`); during training, gradients flow
through them to the original weights.

The operators that rules use as replacements are exact on every device, and faster in float32 on a CPU.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg

from shunter.models.layers import AlignedLinear, BatchNorm, DotInteraction, PairwiseProducts
from shunter.models.native.pairs import is_built

VALUE = "value"  # metadata key of a node's result, a tensor that only has a shape and a dtype
PART = "part"  # metadata key of the subgraph that contains the node, in the search of a large graph
mapped: Any = map_arg  # applies a function to all nodes in a node's arguments
linear = nn.functional.linear


def pairwise_products(vectors: Tensor, pairs: Tensor, position: Tensor) -> Tensor:
    """Map `[batch, vectors, dim]` to `[batch, pairs]`; see `shunter.models.layers.DotInteraction`."""
    if vectors.device.type == "meta" or not torch.is_grad_enabled() or vectors.dtype != torch.float32:
        return torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, pairs)
    return PairwiseProducts.apply(vectors, pairs, position, is_built())  # pyright: ignore[reportReturnType]


def fused_linear(input: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """Compute a linear layer with its activation in one oneDNN operator, which writes the result only once.

    Args:
        input: `[..., inputs]`.
        weight: `[outputs, inputs]`.
        bias: `[outputs]`.
        activation: `relu` or `none`.
    """
    has_kernel = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if input.device.type != "cpu" or input.dtype != torch.float32 or not len(input) or not has_kernel:
        result = linear(input, weight, bias)
        return torch.relu(result) if activation == "relu" else result
    if torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad):
        return _FusedLinear.apply(input, weight, bias, activation)  # pyright: ignore[reportReturnType]
    return _kernel(input, weight, bias, activation)


def _kernel(input: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(input, weight, bias, activation, [], "")


class _FusedLinear(torch.autograd.Function):
    """Fused linear layer with gradient; only the result is saved, because its zeros give the ReLU's gradient."""

    @staticmethod
    def forward(input: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
        return _kernel(input, weight, bias, activation)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        input, weight, bias, activation = inputs
        ctx.is_relu, ctx.has_bias = activation == "relu", bias is not None
        ctx.save_for_backward(input, weight, *([output] if ctx.is_relu else []))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        input, weight, *output = ctx.saved_tensors
        gradient = gradients[0]
        if ctx.is_relu:
            gradient = torch.ops.aten.threshold_backward(gradient, output[0], 0)
        rows = gradient.reshape(-1, gradient.shape[-1])
        of_input = gradient @ weight if ctx.needs_input_grad[0] else None
        of_weight = rows.t() @ input.reshape(-1, input.shape[-1]) if ctx.needs_input_grad[1] else None
        of_bias = rows.sum(0) if ctx.has_bias and ctx.needs_input_grad[2] else None
        return of_input, of_weight, of_bias, None


def mixed_vectors(weight: Tensor, vectors: Tensor) -> Tensor:
    """Return linear combinations of each sample's vectors, without transposing the tensor.

    Args:
        weight: Coefficients of the combinations, `[l, m]`.
        vectors: Vectors of each sample, `[batch, m, dim]`.

    Returns:
        Linear combinations, `[batch, l, dim]`.
    """
    return torch.bmm(weight.expand(vectors.shape[0], -1, -1), vectors)


class UntraceableError(ValueError):
    """Error: the layers' computation depends on values of their inputs, or cannot be represented as a graph."""


class Program:
    """Graph of operators, with the module whose weights it refers to.

    Args:
        graph: Graph, in topological order.
        root: Layers whose weights and modules the graph refers to.
        shapes: Inputs that determine the shapes; on the device `meta` for large batches.
    """

    def __init__(self, graph: fx.Graph, root: nn.Module, shapes: Sequence[Tensor]) -> None:
        self.graph, self.root, self.shapes = graph, root, tuple(shapes)
        self._weightless, self._known = _Shapes(root, self.shapes[0].device), dict[str, Any]()
        self.infer()

    def copy(self) -> "Program":
        """Return a copy of the graph with the same weights."""
        made = Program.__new__(Program)
        made.graph, made.root, made.shapes = fx.Graph(), self.root, self.shapes
        made._weightless, made._known = self._weightless, self._known
        result = made.graph.graph_copy(self.graph, {})
        made.graph.output(result)
        return made

    def infer(self) -> None:
        """Compute shape and dtype of every node; results are cached for all programs of these layers.

        Raises:
            RuntimeError: The shapes of the graph are inconsistent.
        """
        given = iter(self.shapes)
        for node, digest in digests(self.graph.nodes).items():
            if node.op == "placeholder":
                node.meta[VALUE] = next(given)
                continue
            if digest not in self._known:
                with torch.no_grad():
                    self._known[digest] = _result(node, lambda other: other.meta[VALUE], self._weightless)
            node.meta[VALUE] = self._known[digest]

    def run(self, inputs: Sequence[Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
        """Run the graph, optionally with `tensors` by name in place of the layers' weights."""
        values: dict[fx.Node, Any] = {}
        given = iter(inputs)
        held = _Given(self.root, tensors)
        for node in self.graph.nodes:
            values[node] = next(given) if node.op == "placeholder" else _result(node, values.__getitem__, held)
        return values[self.nodes()[-1]]

    def constants(self) -> set[fx.Node]:
        """Return the nodes that depend on weights only."""
        found: set[fx.Node] = set()
        for node in self.graph.nodes:
            is_made = node.op in ("call_function", "call_method") and node.all_input_nodes
            if node.op == "get_attr" or (is_made and all(one in found for one in node.all_input_nodes)):
                found.add(node)
        return found

    def constants_first(self) -> None:
        """Move the nodes that depend on weights only to the front, so that all other nodes can use them."""
        last = [node for node in self.graph.nodes if node.op == "placeholder"][-1]
        constants = self.constants()
        for node in [node for node in self.graph.nodes if node in constants]:
            last.append(node)
            last = node

    def nodes(self) -> list[fx.Node]:
        """Return all nodes; a site of a rule refers to nodes by their index in this list."""
        return list(self.graph.nodes)

    def sweep(self) -> None:
        """Remove nodes of the graph that no other node uses."""
        for node in reversed(self.nodes()):
            if node.op not in ("output", "placeholder") and not node.users:
                self.graph.erase_node(node)

    def digest(self) -> str:
        """Return a hash that is equal for equal graphs, independent of the names of nodes."""
        known = digests(self.graph.nodes)
        return known[self.nodes()[-1]]


def trace(layers: nn.Module, inputs: Sequence[Tensor]) -> Program:
    """Trace the layers of a model as a program.

    Args:
        layers: Layers, in the mode (training or evaluation) of the computation.
        inputs: Float32 inputs of the expected shapes; on the device `meta` for large batches.

    Raises:
        UntraceableError: The computation cannot be represented as one graph; the message gives the reason.
    """
    try:
        graph = _Tracer().trace(layers)
        program = Program.__new__(Program)
        program.graph, program.root = graph, layers
        for node in list(graph.nodes):
            with graph.inserting_before(node):
                made = _normal_form(graph, layers, node)
            if made is not None:
                node.replace_all_uses_with(made)
                graph.erase_node(node)
        program.sweep()
        return Program(graph, layers, [one.detach() for one in inputs])
    except Exception as error:  # torch.fx raises various exceptions on a family's code
        reason = " ".join(str(error).split())[:160]
        raise UntraceableError(f"{type(layers).__name__} cannot be written as a graph ({reason})") from error


def digests(nodes: Sequence[fx.Node] | Any) -> dict[fx.Node, str]:
    """Return a hash of each node from its operation and the hashes of its inputs (Weisfeiler and Lehman)."""
    known: dict[fx.Node, str] = {}
    inputs = 0
    for node in nodes:
        if node.op == "placeholder":
            known[node], inputs = f"input {inputs}", inputs + 1
            continue
        told = mapped((node.args, node.kwargs), lambda one: _Named(known[one]))
        whole = f"{node.op} {target_name(node)} {told!r}"
        known[node] = hashlib.sha256(whole.encode()).hexdigest()
    return known


def target_name(node: fx.Node) -> str:
    """Return the name of a node's operation."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def value_of(node: fx.Node) -> Tensor:
    """Return a node's result without data; for a node that is not a tensor, an empty tensor that no rule matches."""
    value = node.meta.get(VALUE)
    return value if isinstance(value, Tensor) else torch.empty(0, device="meta")


class _Named(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{self}>"


class _Tracer(fx.Tracer):
    """Tracer of Shunter's modules; modules that depend on the batch or have state besides weights stay whole."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, AlignedLinear | BatchNorm | DotInteraction | nn.Dropout | nn.BatchNorm1d | nn.RNNBase)

    def iter(self, obj: fx.Proxy) -> Iterator[fx.Proxy]:
        if obj.node.op != "get_attr":
            return super().iter(obj)
        proxy: Any = obj
        weights = dict(self.root.named_parameters())
        return iter([proxy[place] for place in range(len(weights[str(obj.node.target)]))])

    def to_bool(self, obj: fx.Proxy) -> bool:
        node = obj.node
        if node.op == "call_function" and node.target is getattr and node.args[1] == "is_cuda":
            return False  # the value only selects the kind of autocast to disable; programs are in full precision
        return super().to_bool(obj)


def _normal_form(graph: fx.Graph, root: nn.Module, node: fx.Node) -> fx.Node | None:
    """Insert the single form of operators that have several equivalent forms; None for other operators."""
    if node.op == "call_module":
        module = root.get_submodule(str(node.target))
        if isinstance(module, nn.Linear):
            bias = None if module.bias is None else graph.get_attr(f"{node.target}.bias")
            return graph.call_function(
                nn.functional.linear, (node.args[0], graph.get_attr(f"{node.target}.weight"), bias)
            )
        if isinstance(module, DotInteraction):
            indices = (graph.get_attr(f"{node.target}.{name}") for name in ("pairs", "position"))
            return graph.call_function(pairwise_products, (node.args[0], *indices))
        return None
    name = target_name(node)
    if name in ("relu", "relu_") and node.op in ("call_function", "call_method"):
        return graph.call_function(torch.relu, (node.args[0],))
    if node.op == "call_function" and node.target is nn.functional.linear:
        bias = node.args[2] if len(node.args) > 2 else node.kwargs.get("bias")
        return graph.call_function(nn.functional.linear, (*node.args[:2], bias))
    return None


class _Shapes:
    """Weights and modules for shape inference, without data if the inputs have no data."""

    def __init__(self, root: nn.Module, device: torch.device) -> None:
        self._root, self._device, self._known = root, device, dict[str, Tensor]()

    def tensor(self, name: str) -> Tensor:
        if name not in self._known:
            self._known[name] = attribute(self._root, name).detach().to(self._device)
        return self._known[name]

    def call(self, name: str, *inputs: Any) -> Any:
        """Return the input as a stand-in for the output of a module that stays whole; raise for recurrent modules."""
        if isinstance(self._root.get_submodule(name), nn.RNNBase):
            raise UntraceableError("recurrent layers are no plain operators")
        return inputs[0].clone()


class _Given:
    """Interpreter that uses given weights by name, and the layers' weights for all other names."""

    def __init__(self, root: nn.Module, tensors: Mapping[str, Tensor]) -> None:
        self._root, self._tensors = root, tensors

    def tensor(self, name: str) -> Tensor:
        found = self._tensors.get(name)
        return attribute(self._root, name) if found is None else found

    def call(self, name: str, *inputs: Any) -> Any:
        module = self._root.get_submodule(name)
        own = {
            path.removeprefix(f"{name}."): tensor
            for path, tensor in self._tensors.items()
            if path.startswith(f"{name}.")
        }
        return torch.func.functional_call(module, own, inputs)


def attribute(root: nn.Module, name: str) -> Any:
    """Return a weight, buffer or constant by its path."""
    path, _, last = name.rpartition(".")
    return getattr(root.get_submodule(path), last)


def _result(node: fx.Node, value: Any, held: Any) -> Any:
    target: Any = node.target
    args, kwargs = (mapped(one, value) for one in (node.args, node.kwargs))
    if node.op == "get_attr":
        return held.tensor(target)
    if node.op == "call_module":
        return held.call(target, *args)
    if node.op == "call_function":
        if target in (linear, fused_linear) and args[0].device.type == "meta":
            return args[0].new_empty(*args[0].shape[:-1], args[1].shape[0])  # torch would infer the same, but slowly
        return target(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], target)(*args[1:], **kwargs)
    return args[0]  # the output node


def operators(program: Program) -> Iterator[fx.Node]:
    """Yield the nodes that depend on inputs and are therefore computed for each batch."""
    constants = program.constants()
    for node in program.graph.nodes:
        if node.op in ("call_function", "call_method", "call_module") and node not in constants:
            yield node
