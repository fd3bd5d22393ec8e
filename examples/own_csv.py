"""Train on a CSV file of your own, described by a schema, and score a file of new rows."""

import tempfile
from pathlib import Path

from shop_log import click_log, write_schema

from shunter.flows.from_python import train
from shunter.requests import TrainRequest
from shunter.tracking.registry import load_champion

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        click_log().to_csv(folder / "shop.csv", index=False)
        request = TrainRequest(
            data=str(folder / "shop.csv"),
            schema_file=str(write_schema(folder)),
            objective="energy",
            max_hours=0.5,
            trials=2,
            max_epochs=2,
            promote="always",  # by default only a model that is surely better than the base rate becomes champion
        )
        summary = train(request)
    print(summary.data_name, summary.rows, {figure.name: figure.value for figure in summary.quality})

    new = click_log(rows=5, seed=1).drop(columns=["click", "time"])
    new["score"] = load_champion(summary.registered.name).predict(new)
    print(new)
