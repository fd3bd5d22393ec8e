"""Roofline of an accelerator from measured rates, with measured layers as points.

Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model", CACM 52(4), 2009: with I
operations per byte of memory traffic, FLOP/s are at most min(compute roof, I x bandwidth).
"""

from collections.abc import Sequence
from typing import Literal

import torch

from shunter.frozen import Frozen
from shunter.hardware.probes.rates import DTYPES, measure_matmul
from shunter.hardware.probes.timing import threads
from shunter.hardware.types import HardwareProfile, Precision, RowRate


class Product(Frozen):
    """`count` matrix products `[m, k] x [k, n]`."""

    m: int
    n: int
    k: int
    count: int = 1


class RooflinePoint(Frozen):
    """Work and time of one layer in one direction, measured when the layer runs alone."""

    name: str
    phase: Literal["forward", "backward"]
    flops: float
    moved_bytes: float
    seconds: float

    @property
    def intensity(self) -> float:
        """Return the operations per byte of memory traffic."""
        return self.flops / self.moved_bytes

    @property
    def flops_per_second(self) -> float:
        """Return the FLOP/s that the layer reaches."""
        return self.flops / self.seconds


class Roofline(Frozen):
    """Measured roofs (peak FLOP/s and bandwidths) of one accelerator, with measured layers as points."""

    accelerator: str
    precision: Precision
    compute_roofs: dict[Precision, float]
    copy_bytes_per_second: float
    gather_bytes_per_second: float
    title: str
    points: tuple[RooflinePoint, ...]

    def bound(self, point: RooflinePoint) -> Literal["compute", "memory"]:
        """Return whether the roof of arithmetic (`compute`) or of memory traffic (`memory`) limits the layer."""
        ridge = self.compute_roofs[self.precision] / self.copy_bytes_per_second
        return "compute" if point.intensity >= ridge else "memory"


def build_roofline(
    profile: HardwareProfile, precision: Precision, points: Sequence[RooflinePoint], title: str
) -> Roofline:
    """Build a roofline from a profile and layers measured on the same accelerator."""
    return Roofline(
        accelerator=f"{profile.accelerator.name}: {profile.accelerator.model}",
        precision=precision,
        compute_roofs={name: figure.value for name, figure in profile.matmul_flops_per_second.items()},
        copy_bytes_per_second=profile.copy_bytes_per_second.value,
        gather_bytes_per_second=profile.gather_bytes_per_second.value,
        title=title,
        points=tuple(points),
    )


def measure_products(
    profile: HardwareProfile, precision: Precision, products: Sequence[Product], seconds_each: float = 0.02
) -> float:
    """Return the total seconds of matrix products, each repeated alone on all cores for `seconds_each`."""
    accelerator, total = profile.accelerator, 0.0
    with threads(accelerator.cores if accelerator.kind == "cpu" else 1), torch.random.fork_rng():
        torch.manual_seed(0)
        for product in products:
            shape = (product.m, product.n, product.k)
            rate = measure_matmul(
                torch.device(accelerator.name), DTYPES[precision], shape, seconds_each, count=product.count
            )
            total += 2 * product.count * product.m * product.n * product.k / rate.flops_per_second.value
    return total


def rate_at_width(curve: Sequence[RowRate], row_bytes: int) -> float:
    """Return the bytes per second of rows of a width, from the nearest measured width on a logarithmic scale.

    Args:
        curve: Measured rates, not empty.
        row_bytes: Width of a row in bytes.
    """
    nearest = min(curve, key=lambda point: abs(point.row_bytes.bit_length() - row_bytes.bit_length()))
    return nearest.bytes_per_second.value
