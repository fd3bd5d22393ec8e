"""Train with a loss of another package. Install it first: `pip install examples/plugin`."""

from shop_log import SCHEMA, click_log

import shunter

if __name__ == "__main__":
    effort = {"model": "dnn", "trials": 1, "max_epochs": 2, "ensemble_size": 1, "baselines": "none"}
    training = shunter.train(click_log(), SCHEMA, **effort, set=["loss=focal"], register_as="focal-shop")
    assert training.summary.tuned is not None
    print(training.summary.tuned.settings[0].hyperparameters.loss)
    print(training.metrics)
