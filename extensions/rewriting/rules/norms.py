"""Rule R6: fold batch normalisation in evaluation mode into the linear layer before it."""

from collections.abc import Iterator

from torch import Tensor, fx, nn

from shunter.extensions.rewriting.operators import linear
from shunter.extensions.rewriting.patterns import call, is_call, module_of, replace, single_use
from shunter.extensions.rewriting.program import Program
from shunter.extensions.rewriting.rule import Rule, Site


def norm_scale(gamma: Tensor | None, variance: Tensor, epsilon: float) -> Tensor:
    """Return the factor by which batch normalisation multiplies each output of a linear layer."""
    scale = (variance + epsilon).rsqrt()
    return scale if gamma is None else scale * gamma


def scaled_rows(weight: Tensor, scale: Tensor) -> Tensor:
    """Multiply each row of a weight matrix by the factor of its output."""
    return weight * scale.unsqueeze(1)


def moved_bias(bias: Tensor | None, mean: Tensor, scale: Tensor, beta: Tensor | None) -> Tensor:
    """Return the bias of a linear layer into which batch normalisation is folded."""
    moved = (0 - mean if bias is None else bias - mean) * scale
    return moved if beta is None else moved + beta


class FoldNorm(Rule):
    """Rule that folds `gamma (W x + b - mean) / sqrt(variance + epsilon) + beta` into one linear layer."""

    name, number = "fold_norm", "R6"
    keeps_learning = False

    def find(self, program: Program) -> Iterator[Site]:
        """Yield linear layers followed by a normalisation in evaluation mode."""
        for node in program.graph.nodes:
            module = module_of(program, node)
            below = node.args[0] if isinstance(module, nn.BatchNorm1d) and not module.training else None
            if isinstance(below, fx.Node) and is_call(below, "linear") and single_use(below) and below.target is linear:
                yield below, node

    def apply(self, program: Program, site: Site) -> None:
        """Replace the linear layer and the normalisation by one linear layer."""
        below, node = site
        module = module_of(program, node)
        assert isinstance(module, nn.BatchNorm1d)
        with program.graph.inserting_before(node):

            def own(name: str) -> fx.Node | None:
                return None if getattr(module, name) is None else program.graph.get_attr(f"{node.target}.{name}")

            scale = call(program, norm_scale, own("weight"), own("running_var"), module.eps)
            weight = call(program, scaled_rows, below.args[1], scale)
            bias = call(program, moved_bias, below.args[2], own("running_mean"), scale, own("bias"))
            replace(node, call(program, linear, below.args[0], weight, bias))


RULES = (FoldNorm(),)
