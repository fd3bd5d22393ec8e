"""A vocabulary comes back from a former one and what changed since, whatever the order of its values."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.errors import DataError
from shunter.extensions.incremental_checkpoints.model_increment import vocabulary_increment, write_extended
from shunter.extensions.learned_hashing.learned_ids import LearnedIds, group
from shunter.ingestion.encoding.buckets import BucketIds
from shunter.ingestion.encoding.encoder import CategoricalField, Encoder
from shunter.ingestion.encoding.vocabulary import HashedIds, VocabularyIds

keys = st.lists(st.integers(1, 2**64 - 1) | st.integers(1, 20), unique=True, max_size=12)
KEYS = [7, 2**63 + 1, 9]


def encoder(**vocabularies: list[int]) -> Encoder:
    fields = [CategoricalField(name, VocabularyIds(np.array(keys, np.uint64))) for name, keys in vocabularies.items()]
    others = CategoricalField("hashed", HashedIds(5)), CategoricalField("price", BucketIds((1.0, 2.0)), column="price")
    return Encoder((), (*fields[:1], *others, *fields[1:]))


def written(now: Encoder, former: Encoder, folder: Path) -> Encoder:
    now.save(folder / "now")
    (folder / "there").mkdir()
    (folder / "there" / "encoder.json").write_bytes((folder / "now" / "encoder.json").read_bytes())
    write_extended(folder / "there", former, dict(reversed(vocabulary_increment(now, former).items())))
    assert (folder / "there" / "vocabulary.npz").read_bytes() == (folder / "now" / "vocabulary.npz").read_bytes()
    return Encoder.load(folder / "there")


@given(user=keys, item=keys, former_user=keys)
def test_it_comes_back_bit_by_bit(user: list[int], item: list[int], former_user: list[int]) -> None:
    now, former = encoder(user=user, item=item), encoder(user=former_user)
    with tempfile.TemporaryDirectory() as folder:
        assert written(now, former, Path(folder)).digest() == now.digest()


def test_values_that_keep_their_ids_take_no_bytes() -> None:
    arrays = vocabulary_increment(encoder(user=[*KEYS, 5]), encoder(user=KEYS))
    assert {name: array.tolist() for name, array in arrays.items()} == {"keys.user": [5]}
    arrays = vocabulary_increment(encoder(user=KEYS[::-1]), encoder(user=KEYS))
    assert {name: array.tolist() for name, array in arrays.items()} == {"keys.user": [], "former.user": [3, 2, 1]}


def test_a_learned_map_comes_whole_where_it_has_changed(tmp_path: Path) -> None:
    def with_map(rows: int) -> Encoder:
        ids = LearnedIds.of(np.array(KEYS, np.uint64), group(np.array([3, 2, 1]), np.eye(3), rows))
        return Encoder((), (*encoder(user=KEYS).categorical, CategoricalField("item", ids)))

    assert list(vocabulary_increment(with_map(3), with_map(3))) == ["keys.user"]
    for number, former in enumerate((with_map(3), with_map(9), encoder(user=KEYS))):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert written(with_map(3), former, folder).digest() == with_map(3).digest() != with_map(9).digest()


def test_what_belongs_to_another_vocabulary_is_refused(tmp_path: Path) -> None:
    arrays = vocabulary_increment(encoder(user=KEYS[::-1]), encoder(user=KEYS))
    encoder(user=KEYS).save(tmp_path)
    with pytest.raises(DataError, match="'user'"):
        write_extended(tmp_path, encoder(user=KEYS[:2]), arrays)
