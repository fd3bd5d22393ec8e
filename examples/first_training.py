"""Train a recommender on MovieLens-100K within a limit of time, and score pairs of user and item with it."""

import pandas as pd

import shunter

if __name__ == "__main__":
    # Without `trials` and `max_epochs` the search is larger, and takes some minutes.
    training = shunter.train("ml-100k", max_hours=0.5, trials=2, max_epochs=2, promote="always")
    print(training)

    user = {"user_id": "196", "age": 49, "gender": "M", "occupation": "writer", "zip_code": "55105"}
    films = [
        {"item_id": "242", "release_year": 1997, "genres": "Comedy"},
        {"item_id": "302", "release_year": 1997, "genres": "Crime|Film-Noir|Mystery|Thriller"},
    ]
    print(training.model.predict(pd.DataFrame([{**user, **film} for film in films])))
