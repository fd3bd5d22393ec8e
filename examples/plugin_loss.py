"""Train with a loss of another package. Install it first: `pip install examples/smoothed_loss`."""

import tempfile
from pathlib import Path

from shop_log import click_log, write_schema

from shunter.flows.from_python import train
from shunter.requests import TrainRequest

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        click_log().to_csv(folder / "shop.csv", index=False)
        data = {"data": str(folder / "shop.csv"), "schema_file": str(write_schema(folder))}
        effort = {"model": "dnn", "trials": 1, "max_epochs": 2, "ensemble_size": 1, "baselines": "none"}
        summary = train(TrainRequest(**data, **effort, set=("loss=smoothed",), register_as="smoothed-shop"))
    assert summary.tuned is not None
    print(summary.tuned.settings[0].hyperparameters.loss, {figure.name: figure.value for figure in summary.quality})
