"""Roofline analysis of a model's layers on an accelerator."""

from collections.abc import Mapping, Sequence

from shunter.hardware.cost.roofline import (
    Product,
    Roofline,
    RooflinePoint,
    build_roofline,
    measure_products,
    rate_at_width,
)
from shunter.hardware.types import HardwareProfile, Precision
from shunter.models.counting import count_layers
from shunter.models.counts import FLOAT_BYTES, LayerCount
from shunter.models.registry import model_spec
from shunter.models.spec import CategoricalFeature, Features, ModelSpec

# Shape of Criteo's click logs (13 numeric, 26 categorical fields), used if no data set is given.
REFERENCE_FEATURES = Features(
    dense=tuple(f"I{position}" for position in range(1, 14)),
    categorical=tuple(CategoricalFeature(name=f"C{position}", rows=100_000) for position in range(1, 27)),
)
REFERENCE_SPEC = model_spec(embedding_dim=16, bottom_widths=(512, 256, 64), top_widths=(512, 256))
# Operations on each number of an embedding row: a lookup adds it to a sum; an update squares and sums its gradient, and
# subtracts the scaled gradient from it.
LOOKUP_FLOPS, UPDATE_FLOPS = 1, 4


def place_layers(
    profile: HardwareProfile,
    spec: ModelSpec = REFERENCE_SPEC,
    features: Features = REFERENCE_FEATURES,
    *,
    batch_size: int = 512,
    precision: Precision = "fp32",
    ids_per_sample: Mapping[str, float] | None = None,
    title: str = "a DLRM on data of Criteo's shape",
) -> Roofline:
    """Return the roofline of the matrix products and the embeddings of a model, layer by layer.

    Layers without a matrix product (activations, concatenations, the optimizer) are omitted, since all of them are
    memory-bound.

    `ids_per_sample` is the mean number of ids per sample of each field, by field name; 1 for absent fields.

    Raises:
        RequestError: The model cannot be built.
    """
    layers = count_layers(
        spec, features, batch_size=batch_size, half=precision == "bf16", ids_per_sample=ids_per_sample
    )
    products: dict[tuple[str, str], list[LayerCount]] = {}  # by layer and phase, such as forward
    for layer in layers:
        if layer.kind == "matmul":
            products.setdefault((layer.name, layer.phase), []).append(layer)
    points = [_dense_point(profile, precision, some) for some in products.values()]
    lookups = batch_size * sum((ids_per_sample or {}).get(field.name, 1.0) for field in features.categorical)
    points += _embedding_points(profile, layers, spec.embedding_dim, lookups)
    return build_roofline(profile, precision, points, f"{title}, batch {batch_size}, {precision}")


def _dense_point(profile: HardwareProfile, precision: Precision, layers: Sequence[LayerCount]) -> RooflinePoint:
    products = [Product(m=layer.m, n=layer.n, k=layer.k, count=layer.count) for layer in layers]
    # Matrix products that stay in float32 under autocast are compared with the measured float32 rate.
    half = precision == "bf16" and all(layer.dtype == "bfloat16" for layer in layers)
    return RooflinePoint(
        name=layers[0].name,
        phase=layers[0].phase,
        flops=sum(layer.flops for layer in layers),
        moved_bytes=sum(layer.bytes_read + layer.bytes_written for layer in layers),
        seconds=measure_products(profile, "bf16" if half else "fp32", products),
    )


def _embedding_points(
    profile: HardwareProfile, layers: Sequence[LayerCount], dim: int, lookups: float
) -> list[RooflinePoint]:
    points, payload = [], lookups * dim * FLOAT_BYTES
    for layer in layers:
        curve = profile.gather_curve if layer.phase == "forward" else profile.scatter_curve
        if layer.kind != "embedding" or not curve:
            continue
        points.append(
            RooflinePoint(
                name=layer.name,
                phase=layer.phase,
                flops=lookups * dim * (LOOKUP_FLOPS if layer.phase == "forward" else UPDATE_FLOPS),
                moved_bytes=layer.bytes_read + layer.bytes_written,
                seconds=payload / rate_at_width(curve, dim * FLOAT_BYTES),
            )
        )
    return points
