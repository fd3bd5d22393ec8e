"""Paths of layers whose input is the output of a ReLU."""

from collections.abc import Iterator

from torch import nn

from shunter.models.structured_dropout import StructuredDropout


def after_relu(layers: nn.Module) -> Iterator[str]:
    """Yield the paths of the linear layers whose input is the output of a ReLU, and thus never negative."""
    for name, module in layers.named_modules():
        if not isinstance(module, nn.Sequential):
            continue
        is_positive = False
        for child_name, child in module.named_children():
            if isinstance(child, nn.Linear):
                if is_positive:
                    yield f"{name}.{child_name}" if name else child_name
                is_positive = False
            elif isinstance(child, nn.ReLU):
                is_positive = True
            elif not isinstance(child, nn.Dropout | StructuredDropout):
                is_positive = False
