"""The picture of a roofline shows every layer of the model."""

from pathlib import Path

import pytest

from shunter.engine.profiling.roofline import place_layers
from shunter.reporting.roofline_figure import draw_roofline, roofline_figure
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile

PNG = b"\x89PNG\r\n\x1a\n"


def test_layers_are_placed_under_the_roofs(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data")
    profile = make_profile(gather_curve=_curve(1e9), scatter_curve=_curve(5e8))
    roofline = place_layers(profile, features=dataset.features, batch_size=64)
    points = {(point.name, point.phase): point for point in roofline.points}
    assert {"bottom.0", "interaction", "top.0", "embeddings"} <= {name for name, _ in points}
    top = points["top.0", "forward"]
    inputs = 16 + 5 * 4 // 2  # the dense vector, and one product for each pair of five vectors
    assert top.flops == 2 * 64 * inputs * 512
    assert points["top.0", "backward"].flops == 2 * top.flops
    looked_up = points["embeddings", "forward"]
    assert looked_up.seconds == pytest.approx(64 * 4 * 64 / 1e9), "four fields of one row of 64 bytes at 1 GB/s"
    assert points["embeddings", "backward"].seconds == pytest.approx(2 * looked_up.seconds)
    assert roofline.bound(looked_up) == "memory"
    drawn = [line for line in roofline_figure(roofline).axes[0].lines if line.get_marker() == "o"]
    assert len(drawn) == len(roofline.points)
    assert draw_roofline(roofline, tmp_path / "roofline.png").read_bytes().startswith(PNG)


def _curve(bytes_per_second: float) -> tuple[dict[str, object], ...]:
    return ({"row_bytes": 64, "bytes_per_second": {"value": bytes_per_second, "source": "measured"}},)
