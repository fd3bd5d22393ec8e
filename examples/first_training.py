"""Train a recommender on MovieLens-100K within a limit of time, and score pairs of user and item with it."""

import pandas as pd

from shunter.flows.from_python import train
from shunter.requests import TrainRequest
from shunter.tracking.registry import load_champion

if __name__ == "__main__":
    # Without `trials` and `max_epochs` the search is larger, and takes some minutes.
    summary = train(TrainRequest(data="ml-100k", max_hours=0.5, trials=2, max_epochs=2, promote="always"))

    print(f"placement   {summary.decision.placement.label}")
    print(f"test        { {figure.name: figure.value for figure in summary.quality} }")
    print(f"energy      {summary.energy.joules or 0:.0f} J, {summary.energy.method}")
    print(f"registered  {summary.registered.name} version {summary.registered.version}")

    user = {"user_id": "196", "age": 49, "gender": "M", "occupation": "writer", "zip_code": "55105"}
    films = [
        {"item_id": "242", "release_year": 1997, "genres": "Comedy"},
        {"item_id": "302", "release_year": 1997, "genres": "Crime|Film-Noir|Mystery|Thriller"},
    ]
    print(load_champion(summary.registered.name).predict(pd.DataFrame([{**user, **film} for film in films])))
