"""Open inference protocol, version 2 (KServe, Triton, MLServer): each column of the rows is an input.

An input has the shape [rows] or [rows, 1]; lists of equal length in a multi-valued column have [rows, length]. Texts
have the datatype BYTES. Only JSON is supported, not the binary extension.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import polars as pl

from shunter.serving.errors import RefusedError
from shunter.serving.protocols.body import (
    Unusable,
    expect,
    read_object,
    same_length,
    scores_by_name,
    to_json,
    top_of,
    unique,
)
from shunter.serving.table import Table, check_size

NUMBERS = {"INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"}
FRACTIONS = {"FP16", "FP32", "FP64"}
# Python types of the JSON values of each datatype.
TYPES: dict[str, set[type]] = {
    **{name: {int} for name in NUMBERS},
    **{name: {int, float} for name in FRACTIONS},
    "BOOL": {bool},
    "BYTES": {str},
}


def read_table(body: bytes, max_rows: int, known: frozenset[str]) -> tuple[Table, dict[str, Any]]:
    """Parse the rows of an Open Inference request; return them with the whole request.

    Args:
        body: Body of the request.
        max_rows: Largest number of rows.
        known: Columns that the model reads; other inputs are refused.

    Raises:
        RefusedError: The body is not an inference request, or has too many rows.
    """
    values = read_object(body)
    inputs = [expect(one, dict, "inputs") for one in expect(values.get("inputs"), list, "inputs")]
    names = unique([expect(one.get("name"), str, "name") for one in inputs], "inputs")
    if strange := [name for name in names if name not in known]:
        raise RefusedError(f"The request has the unknown input {strange[0][:60]!r}: give {', '.join(sorted(known))}.")
    columns = {name: _values(name, one, max_rows) for name, one in zip(names, inputs, strict=True)}
    top = top_of(values.get("parameters"), "parameters")
    table = Table(same_length(columns, "inputs"), columns, top)
    check_size(table.rows, len(columns), max_rows)
    return table, values


def answer(
    scores: np.ndarray | pl.DataFrame,
    outputs: tuple[str, ...],
    request: dict[str, Any],
    model: str,
    version: str,
    *,
    unusable: Unusable,
) -> bytes:
    """Return the answer with the requested outputs, or with all outputs; each column of best items is an output.

    Shares of unusable values are parameters such as `unknown.user`, because parameters cannot be objects.

    Raises:
        RefusedError: A requested output does not exist.
    """
    if isinstance(scores, pl.DataFrame):
        outputs = tuple(scores.columns)
        columns = {name: scores[name].to_list() for name in outputs}
    else:
        columns = scores_by_name(scores, outputs)
    wanted = [expect(one, dict, "outputs").get("name") for one in expect(request.get("outputs") or [], list, "outputs")]
    if strange := [name for name in wanted if name not in columns]:
        raise RefusedError(f"The request names the unknown output {str(strange[0])[:60]!r}: use {', '.join(outputs)}.")
    found = [
        {"name": name, "shape": [len(scores)], "datatype": _datatype(columns[name]), "data": columns[name]}
        for name in wanted or outputs
    ]
    identity = {"id": request["id"]} if isinstance(request.get("id"), str) else {}
    shares = {f"{kind}.{name}": share for kind, columns in unusable.items() for name, share in columns.items()}
    parameters = {"parameters": shares} if shares else {}
    return to_json({"model_name": model, "model_version": version, **identity, **parameters, "outputs": found})


def described(model: str, version: str, kinds: Mapping[str, str], outputs: tuple[str, ...]) -> Any:
    """Return the metadata of a served model; `kinds` are the datatypes of its inputs."""
    return {
        "name": model,
        "versions": [version],
        "platform": "shunter",
        "inputs": [{"name": name, "datatype": kind, "shape": [-1]} for name, kind in kinds.items()],
        "outputs": [{"name": name, "datatype": "FP64", "shape": [-1]} for name in outputs],
    }


def _datatype(values: np.ndarray | list[Any]) -> str:
    """Return the datatype of an output; only best items have texts and whole numbers."""
    kinds = {str: "BYTES", int: "INT64"}
    return "FP64" if isinstance(values, np.ndarray) or not values else kinds.get(type(values[0]), "FP64")


def _values(name: str, given: dict[str, Any], max_rows: int) -> list[Any]:
    """Return the values of an input, as lists if a row has several values."""
    shape = expect(given.get("shape"), list, "shape")
    data = _flat(expect(given.get("data"), list, "data"))
    allowed = TYPES.get(str(given.get("datatype")))
    if allowed is None:
        raise RefusedError(
            f"The input {name} has the datatype {str(given.get('datatype'))[:60]!r}: give {', '.join(sorted(TYPES))}."
        )
    if wrong := set(map(type, data)) - allowed - {type(None)}:
        raise RefusedError(f"The input {name} is declared as {given['datatype']}, but holds a {wrong.pop().__name__}.")
    is_whole = all(isinstance(length, int) and not isinstance(length, bool) and length >= 0 for length in shape)
    if not is_whole or len(shape) not in (1, 2) or prod(shape) != len(data):
        raise RefusedError(
            f"The input {name} has the shape {str(shape)[:60]} and {len(data)} values: give [rows] or [rows, length]."
        )
    check_size(shape[0], 1, max_rows)  # a tiny body can claim many rows of empty lists
    width = shape[1] if len(shape) == 2 else 1
    if width == 1:
        return data
    return [data[start : start + width] for start in range(0, len(data), width)] if width else [[]] * shape[0]


def _flat(data: list[Any]) -> list[Any]:
    """Return the values as a flat list in row order; the given list may contain a list for each row."""
    if not data or not isinstance(data[0], list):
        return data
    return [value for row in data for value in (row if isinstance(row, list) else [row])]
