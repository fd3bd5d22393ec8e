"""Tables that stay in memory in few bits: scores bit by bit those unpacked, and more memory unpacks more."""

from pathlib import Path

import numpy as np
import pytest
import torch

from shunter.engine.checkpoint.scoring import placement_of_tables
from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.errors import RequestError
from shunter.extensions.compression.packed_tables import PACKED, RESTORED, WHOLE, PackedTable, choose_forms
from shunter.extensions.compression.packing import Form, pack
from shunter.extensions.tiers.stored_models import load_stored_model
from shunter.models.ensemble import Ensemble
from tests.extensions.tiers.test_stored_models import FEATURES, inputs, model_of


@pytest.mark.parametrize("bits", [8, 3])
@pytest.mark.parametrize("is_ensemble", [False, True])
@torch.no_grad()
def test_tables_in_few_bits_score_bit_by_bit_as_unpacked(tmp_path: Path, bits: int, is_ensemble: bool) -> None:
    models = [model_of(seed=seed) for seed in range(2 if is_ensemble else 1)]
    random = np.random.default_rng(0)
    uses = [random.integers(0, 9, field.rows) for field in FEATURES.categorical if field.table is None]
    # Of one member a part of the rows is left out, of the other none, so that there is no map.
    packed = [
        pack(model, Form(row_bits=bits), uses, limit) for model, limit in zip(models, (120_000, 1 << 30), strict=False)
    ]
    assert all(one is not None for one in packed)
    save_model(Ensemble(models, [0.3, 0.7]) if is_ensemble else models[0], tmp_path, [one for one in packed if one])
    whole, forms = load_model(tmp_path), set()
    for memory in (250_000, 300_000, 360_000):
        found = load_stored_model(tmp_path, memory)
        [*placements] = placement_of_tables(found)
        forms |= {placements[0]}
        assert len(placements) == len(models)
        for batch in (1, 100):
            assert torch.equal(found(*inputs(batch, batch)), whole(*inputs(batch, batch)))
    assert len(forms) > 1, "more memory unpacks more"
    with pytest.raises(RequestError, match="The compressed tables of this model need"):
        load_stored_model(tmp_path, 20_000)


def test_forms_follow_lookups_and_bytes() -> None:
    numbers = torch.randn(200, 4)

    def table(kept: int) -> PackedTable:
        rows = {"rows": torch.arange(0, 2 * kept, 2).int()} if kept < 199 else {}
        return PackedTable(
            {
                "codes8": torch.zeros(kept + 1, 4).byte(),
                **{n: numbers[: kept + 1, 0].bfloat16() for n in ("scale", "bias")},
                **rows,
            },
            200,
            4,
        )

    def forms(memory: int) -> list[int]:
        tables = [table(90), table(20), table(199)]
        choose_forms(tables, [0, 0, 0, 0, 0, 0, 1, 2], memory)
        return [one.form for one in tables]

    packed = sum(table(kept).bytes_as(PACKED) for kept in (90, 20, 199))
    assert forms(packed) == [PACKED, PACKED, PACKED]
    assert forms(packed + 8 * 91) == [RESTORED, PACKED, PACKED]  # looked up most for its bytes
    assert forms(packed + 8 * (91 + 21)) == [RESTORED, RESTORED, PACKED]
    assert forms(packed + 8 * (91 + 21 + 200)) == [RESTORED, RESTORED, RESTORED]
    assert forms(packed + 8 * (91 + 21 + 200) + 4 * 4 * 200) == [WHOLE, RESTORED, RESTORED]
    assert table(199).take(torch.tensor([5])).shape == (1, 4)
