"""Train on a CSV file of your own, described by a schema, and score a frame of new rows."""

import tempfile
from pathlib import Path

from shop_log import click_log, write_schema

import shunter

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        click_log().to_csv(folder / "shop.csv", index=False)
        training = shunter.train(
            folder / "shop.csv",  # a frame would do, too: shunter.train(click_log(), ...)
            write_schema(folder),
            objective="energy",
            max_hours=0.5,
            trials=2,
            max_epochs=2,
            promote="always",  # by default only a model that is surely better than the base rate becomes champion
        )
    print(training.metrics)

    new = click_log(rows=5, seed=1).drop(columns=["click", "time"])
    new["score"] = shunter.Recommender.load("shop@champion").predict(new)
    print(new)
