"""The transformer over a history against torch's own encoder layer, sample by sample without padding."""

import pytest
import torch
from torch import Tensor, nn

from shunter.models.families.bst import BstSpec, TransformerEncoder, TransformerLayer

LENGTHS = torch.tensor([0, 1, 3, 5])


def torchs_layer(own: TransformerLayer, dim: int) -> nn.TransformerEncoderLayer:
    """The same layer by torch."""
    theirs = nn.TransformerEncoderLayer(
        dim, own.heads, 4 * dim, dropout=0.0, activation=nn.functional.leaky_relu, batch_first=True
    )
    names = {
        "self_attn.in_proj_": own.project_in,
        "self_attn.out_proj.": own.project_out,
        "linear1.": own.feed_forward[0],
        "linear2.": own.feed_forward[2],
        "norm1.": own.norms[0],
        "norm2.": own.norms[1],
    }
    weights = {name: layer.state_dict().items() for name, layer in names.items()}
    theirs.load_state_dict({f"{name}{part}": one for name, parts in weights.items() for part, one in parts})
    return theirs.train()  # in evaluation torch takes a fused path of other rounding


def by_hand(own: TransformerEncoder, ids: Tensor, first: Tensor, *, causal: bool) -> Tensor:
    """States of the candidate and the ids of one sample, `[1 + ids, dim]`."""
    count = len(ids) + 1
    places = [own.places[0], *(own.places[count - place] for place in range(1, count))]
    states = torch.stack([vector + place for vector, place in zip([first, *ids], places, strict=True)]).unsqueeze(0)
    hidden = torch.zeros(count, count, dtype=torch.bool)
    for asking in range(1, count):
        for asked in range(count):
            hidden[asking, asked] = causal and (asked == 0 or asked > asking)
    for layer in own.layers:
        assert isinstance(layer, TransformerLayer)
        states = torchs_layer(layer, states.shape[2])(states, src_mask=hidden)
    return states[0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("has_candidate", [False, True])
def test_states_are_those_of_torchs_encoder_whatever_pads_a_history(causal: bool, has_candidate: bool) -> None:
    torch.manual_seed(0)
    spec = BstSpec(embedding_dim=4, transformer_layers=2, transformer_causal=causal)
    own = TransformerEncoder(spec, 5, has_candidate=has_candidate).eval()
    # As models of before there were shares, which had all of what further layers add.
    own.load_state_dict({name: value for name, value in own.state_dict().items() if "shares" not in name})
    vectors, asked = torch.randn(4, 5, 4), torch.randn(4, 4)
    if own.question is not None:
        asked = own.question.detach().expand(4, -1)
    found = own(vectors, LENGTHS, asked if has_candidate else None).view(4, 6, 4)
    for ids, length, first, states in zip(vectors, LENGTHS.tolist(), asked, found, strict=True):
        torch.testing.assert_close(states[: length + 1], by_hand(own, ids[:length], first, causal=causal))
        assert not states[length + 1 :].any()
    own.gives_all = False  # without a nearness, as models of before there was one
    assert torch.equal(own(vectors, LENGTHS, asked if has_candidate else None), found[:, 0])


def test_a_further_layer_begins_as_if_it_added_nothing() -> None:
    torch.manual_seed(0)
    one, two = (
        TransformerEncoder(BstSpec(embedding_dim=4, transformer_layers=n), 5, has_candidate=True) for n in (1, 2)
    )
    two.load_state_dict({**two.state_dict(), **one.state_dict()})
    vectors, asked = torch.randn(4, 5, 4), torch.randn(4, 4)
    expected = one.eval()(vectors, LENGTHS, asked)  # normalised, so that normalising them again changes next to nothing
    torch.testing.assert_close(two.eval()(vectors, LENGTHS, asked), expected, rtol=1e-3, atol=1e-3)


def test_the_newest_id_has_the_same_place_in_histories_of_any_length() -> None:
    torch.manual_seed(0)
    own = TransformerEncoder(BstSpec(embedding_dim=4, transformer_output="candidate"), 5, has_candidate=True).eval()
    newest, first, vectors = torch.randn(4), torch.randn(2, 4), torch.zeros(2, 5, 4)
    vectors[0, 0], vectors[1, :3] = newest, torch.randn(3, 4)
    vectors[1, 2] = newest
    lengths = torch.tensor([1, 3])
    with torch.no_grad():
        before = own(vectors, lengths, first)
        own.places[1] += 1.0  # the place of the newest
        assert (own(vectors, lengths, first) != before).any(1).all()
        before = own(vectors, lengths, first)
        own.places[3] += 1.0  # the place of the third newest, which the first history does not have
        assert torch.equal(own(vectors, lengths, first)[0], before[0])


def test_the_candidate_begins_with_the_newest_ids_and_older_models_load_as_they_were() -> None:
    torch.manual_seed(0)
    spec = BstSpec(embedding_dim=4, transformer_output="candidate")
    own = TransformerEncoder(spec, 5, has_candidate=True).eval()
    assert own.nearness is not None
    assert own.nearness[:, 0].tolist() == [0, 0, -2, -4, -6, -8]
    assert own.nearness[:, 1].tolist() == [0, 0, -1, -2, -3, -4]
    vectors, asked = torch.randn(4, 5, 4), torch.randn(4, 4)

    def heeds(place: int) -> float:
        moved = vectors.clone()
        moved[3, 5 - place] += torch.tensor([1.0, -1.0, 0.5, 0.0])  # of the longest history
        with torch.no_grad():
            return float((own(moved, LENGTHS, asked) - own(vectors, LENGTHS, asked))[3].abs().sum())

    assert heeds(1) > 3 * heeds(4) > 0
    former = {name: value for name, value in own.state_dict().items() if name != "nearness"}
    own.load_state_dict(former)
    assert not own.nearness.any()
    found = own(vectors, LENGTHS, asked)
    expected = by_hand(own, vectors[3], asked[3], causal=False)[0]
    torch.testing.assert_close(found[3], expected)
