"""The page of the training curves, beside what plotly makes of the same values."""

import json
import math
from dataclasses import replace

from tests.tracking.test_convention import REPORT
from tracking.training_curve import COLOURS, training_curve, training_curve_page

BETTER = replace(REPORT, epoch=3, validation=replace(REPORT.validation, ne=0.8))


def test_each_training_has_three_lines_and_an_empty_one_none() -> None:
    figure = training_curve({"member-0": [REPORT], "member-1": [REPORT, REPORT], "never trained": []})
    assert [line["name"] for line in figure["data"]] == [
        f"{member}: {what}"
        for member in ("member-0", "member-1")
        for what in ("NE", "log loss, validation", "log loss, training")
    ]


def test_best_epoch_is_marked() -> None:
    curve = training_curve({"member-0": [REPORT, BETTER]})["data"][0]
    assert curve["marker"]["symbol"] == ["circle", "star"]


def test_a_loss_that_is_no_number_is_a_gap() -> None:
    page = training_curve_page({"member-0": [replace(REPORT, train_logloss=math.nan)]})
    assert "NaN" not in page[page.index('newPlot("curves"') :]


def test_a_name_does_not_end_the_script() -> None:
    page = training_curve_page({"</script><b>": [REPORT]})
    assert "</script><b>" not in page


def test_plotly_accepts_the_values_as_they_are_and_draws_in_its_colours() -> None:
    from plotly.colors import qualitative
    from plotly.graph_objects import Figure

    figure = training_curve({"member-0": [REPORT, BETTER], "member-1": [REPORT]})
    checked = json.loads(str(Figure(figure).to_json()))
    del checked["layout"]["template"]
    assert checked == json.loads(json.dumps(figure))
    assert list(COLOURS) == qualitative.D3
