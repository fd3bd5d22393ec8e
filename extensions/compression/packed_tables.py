"""Embedding tables for scoring that are stored in memory in few bits, some of them unpacked.

A packed table (`packing`) has one of three forms in memory. Packed: a lookup finds its row among the kept rows by a map
and dequantises it. Restored: the kept rows are float32, and a lookup still needs the map. Whole: every id has its row,
and there is no map. Each form takes more memory than the one before and makes lookups faster. The time saved per byte
decides which tables are unpacked (SDM, arXiv 2110.11489: de-quantisation and de-pruning at load). All forms give the
same numbers bit for bit.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.checkpoint.quantise import QuantisedRows, restore_rows
from shunter.engine.checkpoint.scoring import read_architectures
from shunter.engine.checkpoint.storage import MEMBERS, build_described, load_weights
from shunter.engine.checkpoint.tensor_file import TensorFile
from shunter.errors import CheckpointError, RequestError
from shunter.extensions.compression.packing import parts_of_tables, unpack
from shunter.models.embeddings.mapped import sum_of_rows
from shunter.models.embeddings.role import FLOAT_BYTES, EmbeddingTables
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model, bag_tables, build_scoring_model

PACKED, RESTORED, WHOLE = range(3)


class PackedTable:
    """Packed embedding table in memory: packed (`PACKED`), dequantised (`RESTORED`), or complete (`WHOLE`).

    Args:
        parts: Tensors of the table in its file.
        rows: Number of ids.
        width: Numbers in a row.

    Attributes:
        form: Current form; `PACKED` at first.

    Raises:
        CheckpointError: The tensors belong to another table.
    """

    def __init__(self, parts: Mapping[str, Tensor], rows: int, width: int) -> None:
        try:
            [codes] = (name for name in parts if name.startswith("codes"))
            self._stored = QuantisedRows(parts[codes], parts["scale"], parts["bias"])
        except (KeyError, ValueError) as error:
            raise CheckpointError("The compressed tables belong to another model: save the model again.") from error
        self._bits, self._width, self._rows, self.form = int(codes.removeprefix("codes")), width, rows, PACKED
        count = len(self._stored.codes)
        # The row after the kept rows replaces all removed rows.
        self._numbers = None if "rows" not in parts and count == rows else parts.get("rows", torch.arange(count - 1))
        if self._numbers is not None and (len(self._numbers) != count - 1 or int(self._numbers[-1]) >= rows):
            raise CheckpointError("The compressed tables belong to another model: save the model again.")
        restore_rows(self._some(torch.arange(1)), self._bits, width)  # raises if the width differs
        self._restored: Tensor | None = None

    @property
    def is_pruned(self) -> bool:
        """Return True if packing removed rows, so that lookups need a map from ids to kept rows."""
        return self._numbers is not None

    def bytes_as(self, form: int) -> int:
        """Return the bytes of memory of the table in a form."""
        if form == WHOLE:
            return self._rows * self._width * FLOAT_BYTES
        kept = 0 if self._numbers is None else self._numbers.nbytes
        if form == RESTORED:
            return kept + len(self._stored.codes) * self._width * FLOAT_BYTES
        return kept + sum(tensor.nbytes for tensor in vars(self._stored).values())

    def hold_as(self, form: int) -> None:
        """Change to a form that takes more memory; data that the new form does not need is freed."""
        if form == WHOLE:
            self._restored, self._numbers = self.take(torch.arange(self._rows)), None
        elif form == RESTORED:
            self._restored = restore_rows(self._stored, self._bits, self._width)
        self._stored = self._some(torch.arange(1)) if form != PACKED else self._stored
        self.form = form

    def take(self, ids: Tensor) -> Tensor:
        """Return the rows of some ids, float32 `[ids, width]`."""
        places = ids
        if self._numbers is not None:
            places = torch.searchsorted(self._numbers, ids.to(self._numbers.dtype))
            last = len(self._numbers)
            is_kept = self._numbers[places.clamp(max=last - 1)] == ids
            places = torch.where(is_kept, places, last)
        if self._restored is not None:
            return self._restored[places]
        return restore_rows(self._some(places), self._bits, self._width)

    def _some(self, places: Tensor) -> QuantisedRows:
        return QuantisedRows(*(tensor[places] for tensor in vars(self._stored).values()))


def choose_forms(tables: Sequence[PackedTable], table_of: Sequence[int], memory_bytes: int) -> None:
    """Unpack tables within the memory limit, first those that speed up lookups most per byte.

    Rows are dequantised before maps are removed, because dequantising is most of a lookup's work. A change that does
    not fit is skipped.

    Args:
        tables: Tables, all packed.
        table_of: Table of each bag of a sample, which gives the lookups per table.
        memory_bytes: Memory limit of all tables together, at least their packed size.
    """
    bags = np.bincount(table_of, minlength=len(tables))
    left = memory_bytes - sum(table.bytes_as(PACKED) for table in tables)
    for form in (RESTORED, WHOLE):
        more_bytes = {
            number: table.bytes_as(form) - table.bytes_as(table.form)
            for number, table in enumerate(tables)
            if table.form == form - 1 and (form == RESTORED or table.is_pruned)
        }
        # Lookups per sample that are made faster, for each additional byte, decide the order.
        for number, more in sorted(more_bytes.items(), key=lambda step: -bags[step[0]] / max(step[1], 1)):
            if more <= left:
                tables[number].hold_as(form)
                left -= more


class PackedEmbeddings(EmbeddingTables):
    """Embedding tables in memory, some of them packed; they are not trained.

    Args:
        rows: Rows of each table.
        dim: Width of every row.
        table_of: See `EmbeddingTables`.
        tables: Packed tables.
        memory_bytes: Memory limit, at least the packed size.
    """

    def __init__(
        self, rows: Sequence[int], dim: int, table_of: Sequence[int], tables: Sequence[PackedTable], memory_bytes: int
    ) -> None:
        super().__init__(rows, dim, 0.0, table_of)
        self.is_frozen = True
        # The state dict contains no part of the tables: a model is loaded without the weights of its tables.
        self.register_buffer("weight", torch.empty(0, dim), persistent=False)
        self.register_buffer("adagrad_sum", torch.empty(0), persistent=False)
        self._tables = list(tables)
        choose_forms(self._tables, self.table_of, memory_bytes)
        self._starts = torch.tensor([0, *np.cumsum(self.rows)[:-1].tolist()])

    @property
    def placement(self) -> str:
        """Sentence with the number of packed, dequantised and complete tables."""
        forms = [table.form for table in self._tables]
        unpruned = sum(not table.is_pruned for table in self._tables)
        return (
            f"Of {len(forms)} embedding tables {forms.count(PACKED)} stay packed in memory, and "
            f"{len(forms) - forms.count(PACKED)} are dequantised; {unpruned} have a row for each id, the "
            "others have a map from ids to the kept rows."
        )

    @torch.no_grad()
    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the sum of the rows of each bag, `[batch, bags * dim]`; each distinct row is restored once."""
        rows = self._row_of_each(values, offsets)
        distinct, position = torch.unique(rows, return_inverse=True)
        ends = torch.searchsorted(distinct, torch.cat([self._starts[1:], torch.tensor([sum(self.rows)])]))
        counts = ends.diff(prepend=torch.zeros(1, dtype=ends.dtype)).tolist()
        parts = zip(self._tables, self._starts.tolist(), distinct.split(counts), strict=True)
        gathered = torch.cat([table.take(part - start) for table, start, part in parts])
        pooled = sum_of_rows(gathered, position, offsets, weights)
        return pooled.view(len(self.table_of), -1, self.dim).transpose(0, 1).flatten(1)

    def initialise(self, generator: torch.Generator) -> None:
        """Do nothing, because the rows are already trained weights."""


def load_packed(file: TensorFile, path: Path, memory_bytes: int) -> Model | Ensemble:
    """Load a packed model, with as many tables unpacked as fit into the memory.

    Raises:
        CheckpointError: The file belongs to another model.
        RequestError: The packed tables are larger than the memory limit.
    """
    features, specs = read_architectures(path)
    tensors = {name: file.read(name) for name in file.head}
    is_single = "ensemble_weights" not in (description := read_json(path)) or description["ensemble_weights"] is None
    prefixes = [""] if is_single else [f"{MEMBERS}{number}." for number in range(len(specs))]
    packed = [
        [
            PackedTable(parts, shape.rows, shape.width)
            for parts, shape in zip(parts_of_tables(tensors, len(shapes), prefix), shapes, strict=True)
        ]
        for prefix, shapes in zip(prefixes, (spec.tables(features) for spec in specs), strict=True)
    ]
    sizes = [sum(table.bytes_as(PACKED) for table in tables) for tables in packed]
    if sum(sizes) > memory_bytes:
        raise RequestError(
            f"The compressed tables of this model need {sum(sizes):,} bytes of memory, more than the "
            f"{memory_bytes:,} of --memory: raise --memory, or serve the original model."
        )
    built = iter(
        PackedEmbeddings(
            [shape.rows for shape in spec.tables(features)],
            spec.embedding_dim,
            bag_tables(spec, features),
            tables,
            memory_bytes * size // sum(sizes),
        )
        for spec, tables, size in zip(specs, packed, sizes, strict=True)
    )
    model, _ = build_described(path, None, lambda spec, features: build_scoring_model(spec, features, next(built)))
    members = model.models if isinstance(model, Ensemble) else (model,)
    weights = {} if is_single else {name: one for name, one in tensors.items() if not name.startswith(MEMBERS)}
    for member, prefix in zip(members, prefixes, strict=True):
        weights |= unpack(member, tensors, prefix, with_tables=False)
    load_weights(model, weights, path.with_name("model.safetensors"))
    return model
