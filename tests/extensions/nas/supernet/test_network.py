"""A super-net holds each of its architectures exactly, and knows what it costs."""

import random

import pytest
import torch

from shunter.extensions.nas.supernet.costs import CountedBytes, cost_of, cost_table, expected_cost
from shunter.extensions.nas.supernet.network import Supernet
from shunter.extensions.nas.supernet.space import draw, share_choice
from shunter.models.counting import count_model
from tests.extensions.nas.supernet.planted import FEATURES, SPACE, Inherited, alone, architectures, batch


@pytest.fixture(scope="module")
def network() -> Supernet:
    return Supernet(SPACE, FEATURES, seed=3, kernel="torch").eval()


def some(count: int) -> list:
    return random.Random(0).sample(list(architectures()), count)


@torch.no_grad()
def test_one_hot_masks_give_the_architecture_itself(network: Supernet) -> None:
    inputs = batch(50)
    for architecture in some(20):
        masks = network.choices.one_hot(network.coding.encode(architecture), batch=50)
        expected = alone(network, architecture)(*inputs)
        torch.testing.assert_close(network(*inputs, masks), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(Inherited(network, architecture)(*inputs), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_cold_masks_are_those_of_an_architecture(network: Supernet) -> None:
    inputs = batch(64)
    torch.manual_seed(0)
    masks = network.choices.soft(64, temperature=1e-4)
    scores = network(*inputs, masks)
    for sample in range(16):
        picked = {name: int(masks[name][sample].argmax()) for name in network.choices.sizes}
        model = alone(network, network.coding.decode(picked))
        torch.testing.assert_close(scores[sample], model(*inputs)[sample], rtol=1e-3, atol=1e-4)


def test_every_architecture_is_one_path(network: Supernet) -> None:
    for architecture in architectures():
        picked = {**dict.fromkeys(network.choices.sizes, 0), **network.coding.encode(architecture)}
        assert network.coding.decode(picked) == architecture


def test_the_cost_of_an_architecture_is_the_counted_one(network: Supernet) -> None:
    costs = cost_table(network, CountedBytes(network))
    for architecture in some(4):
        exact = count_model(SPACE.spec(architecture), FEATURES).parameter_bytes
        assert cost_of(architecture, network.coding, costs) == pytest.approx(exact, rel=1e-12)


def test_the_expected_cost_is_the_mean_over_what_is_drawn() -> None:
    network = Supernet(SPACE, FEATURES, seed=0, kernel="torch")
    torch.manual_seed(1)
    torch.nn.init.normal_(network.choices.theta)
    costs = cost_table(network, CountedBytes(network))
    mixed = network.choices.masks(network.choices.logits().softmax(1).unsqueeze(0))
    theta, generator = network.choices.values(), torch.Generator().manual_seed(2)
    drawn = torch.tensor(
        [cost_of(network.coding.decode(draw(theta, generator)), network.coding, costs) for _ in range(200)]
    )
    expected = float(expected_cost(network.coding, mixed, costs).detach())
    assert abs(float(drawn.mean()) - expected) < 4 * float(drawn.std()) / 200**0.5


def test_a_narrow_table_learns_in_its_own_columns_only() -> None:
    network = Supernet(SPACE, FEATURES, seed=0, kernel="torch")
    before = network.tables.embeddings.weight.clone()
    picked = {"dim_0": 0, share_choice(0): 1}  # four columns, and the table of a tenth of the rows
    network(*batch(64), network.choices.one_hot(picked, batch=64)).sum().backward()
    changed = (network.tables.embeddings.weight != before).float()
    rows = network.tables.embeddings.rows
    assert changed[: rows[0]].sum() == 0, "the other number of rows learns nothing"
    own = changed[rows[0] : rows[0] + rows[1]]
    assert own[:, :4].any()
    assert own[:, 4:].sum() == 0


def test_frozen_tables_do_not_learn() -> None:
    network = Supernet(SPACE, FEATURES, seed=0, kernel="torch")
    before = network.tables.embeddings.weight.clone()
    network.tables.embeddings.is_frozen = True
    network(*batch(64), network.choices.soft(64, 1.0)).sum().backward()
    assert torch.equal(network.tables.embeddings.weight, before)
    assert network.choices.theta.grad is not None
    assert network.choices.theta.grad.abs().sum() > 0
