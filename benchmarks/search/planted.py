"""A generated log of users, items and hours whose structure is known: latent vectors, popularity, crossed contexts.

Beside the product's own generated data, which have Criteo's shape, this has that of a recommender: few fields, whose
ids meet in pairs. The logit of a click is a constant, plus what is the user's and the item's own, plus the product of
their latent vectors, plus an effect of each pair of hour and device, plus a bend of the price.
"""

import numpy as np
import pandas as pd

USERS, ITEMS, HOURS, DEVICES, LATENT = 300, 200, 24, 5, 3
SKEW = 0.7  # of Zipf's law by which items are shown
BIAS = -1.0


def planted_log(rows: int, seed: int) -> pd.DataFrame:
    """Draw rows; the same seed and size give the same."""
    random = np.random.default_rng([seed, rows])
    shown = np.arange(1, ITEMS + 1) ** -SKEW
    user, item = random.integers(USERS, size=rows), random.choice(ITEMS, rows, p=shown / shown.sum())
    hour, device = random.integers(HOURS, size=rows), random.integers(DEVICES, size=rows)
    price = random.lognormal(0.0, 1.0, rows)
    tastes, traits = random.normal(0, 1, (USERS, LATENT)), random.normal(0, 1, (ITEMS, LATENT))
    logit = (
        BIAS
        + random.normal(0, 0.6, USERS)[user]
        + random.normal(0, 0.8, ITEMS)[item]
        + 0.6 * (tastes[user] * traits[item]).sum(axis=1)
        + random.normal(0, 0.4, (HOURS, DEVICES))[hour, device]
        - 0.3 * np.log(price) ** 2
    )
    clicked = random.random(rows) < 1 / (1 + np.exp(-logit))
    columns = {"user": user, "item": item, "hour": hour, "device": device, "price": price}
    return pd.DataFrame({"clicked": clicked.astype(np.int64), **columns})
