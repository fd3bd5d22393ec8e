"""Two nightly retrainings: the first trains a champion, the second a challenger that replaces it only if better."""

import tempfile
from datetime import date, timedelta
from pathlib import Path

from shop_log import click_log, write_schema

import shunter
from shunter.retraining.nightly_request import NightlyRequest

FIRST = date(2026, 1, 1)

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        schema = write_schema(folder)
        for number in range(4):
            day = FIRST + timedelta(days=number)
            click_log(rows=2_000, first_day=str(day), seed=number).to_csv(folder / f"day_{day}.csv", index=False)
        for number in (2, 3):
            request = NightlyRequest(
                data=str(folder / "day_{date}.csv"),
                schema_file=str(schema),
                day=FIRST + timedelta(days=number),  # without it: yesterday
                register_as="nightly-shop",
                trials=1,
                max_epochs=2,
                ensemble_size=1,
            )
            night = shunter.run("shunter.retraining.nightly_flow:nightly", request)
            print(f"{night.day}: {night.outcome}; champion: version {night.champion}")
