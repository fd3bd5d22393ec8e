"""An accelerator of tables beside one of multipliers, simulated: performance an area on ResNet20, published as 3.1."""

from benchmarks import report
from benchmarks.efficiency.part import Part
from hardware.cost.product_accelerator import (
    REFERENCE_FORM,
    REFERENCE_MULTIPLIERS,
    REFERENCE_TABLES,
    MultiplierArray,
    ProductAccelerator,
    ProductForm,
    performance_per_area,
    resnet20,
)

LANES = ((2, 8, 9, 16), (4, 4, 9, 16), (4, 8, 9, 8), (4, 8, 9, 16), (8, 8, 9, 16), (8, 8, 9, 32))
PROTOTYPES = (8, 16)


def measure(*, quick: bool) -> Part:
    """The reference, and other lanes and forms beside it; nothing takes long, so quick is the same."""
    layers = resnet20()
    rows = {}
    for prototypes in PROTOTYPES:
        for lanes in LANES:
            names = ("part_lanes", "prototype_lanes", "length_lanes", "output_lanes")
            tables = ProductAccelerator(**dict(zip(names, lanes, strict=True)))
            form = ProductForm(length=REFERENCE_FORM.length, prototypes=prototypes)
            ratio = performance_per_area(layers, form, tables, REFERENCE_MULTIPLIERS)
            rows[f"{prototypes} prototypes, lanes {lanes}"] = round(ratio, 3)
    reference = performance_per_area(layers, REFERENCE_FORM, REFERENCE_TABLES, REFERENCE_MULTIPLIERS)
    larger = performance_per_area(
        layers, REFERENCE_FORM, REFERENCE_TABLES, MultiplierArray(input_lanes=32, output_lanes=32)
    )
    report.table(
        "Simulated performance an area", ("lanes", "ratio"), [(name, f"{one:.2f}") for name, one in rows.items()]
    )
    headline = {
        "simulated_pq_performance_per_area": round(reference, 3),
        "simulated_pq_performance_per_area_low": min(rows.values()),
        "simulated_pq_performance_per_area_high": max(rows.values()),
    }
    return Part(headline, {"rows": rows, "over_32_by_32": round(larger, 3), "layers": len(layers)})
