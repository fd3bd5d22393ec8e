"""Scores rows with the model of this folder, without Shunter: `python score.py ROWS.parquet [--out SCORES.csv]`.

Needs numpy, pandas, polars, pyarrow, pydantic and pyyaml, with torch for the format `torch`, or onnxruntime for
`onnx`. From Python: `from score import Scorer; Scorer().predict(frame)`.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

FOLDER = Path(__file__).resolve().parent
ROWS_AT_ONCE = 1024


class Scorer:
    """Scorer of raw rows, as frames of pandas or polars with the columns of the click log.

    Args:
        is_client: Whether a server scores the rows, so that this class only encodes them.
    """

    def __init__(self, *, is_client: bool = False) -> None:
        sys.path.insert(0, str(FOLDER))
        sys.dont_write_bytecode = True  # the folder stays as it was signed
        from row_encoder.ingestion.encoding.encoder import Encoder  # pyright: ignore[reportMissingImports]

        self.about: dict[str, Any] = json.loads((FOLDER / "export.json").read_text())
        self.encoder = Encoder.load(FOLDER / "encoder")
        self._program = None if is_client else PROGRAMS[self.about["format"]]()

    def predict(self, frame: "pd.DataFrame | pl.DataFrame") -> np.ndarray:
        """Return float64 `[rows]` or `[rows, tasks]`: probabilities, numbers, or the scores of a ranking model."""
        rows: Any = frame  # of which slices have no type
        starts = range(0, max(len(frame), 1), ROWS_AT_ONCE)
        return np.concatenate([self._scores(rows[start : start + ROWS_AT_ONCE]) for start in starts])

    def inputs(self, frame: "pd.DataFrame | pl.DataFrame") -> dict[str, np.ndarray]:
        """Return the inputs of the program for raw rows.

        Returns:
            `dense` float32 `[rows, numbers]`, `ids` int64 and `id_weights` float32 `[rows, fields, longest]`: the ids
            of a field and a 1 or a weight for each, then padding of weight 0.
        """
        rows, fields = self._encoded(frame), self.about["fields"]
        lengths = [np.diff(bag.offsets) for bag in rows.bags]
        longest = max([self.about["least_longest"], *(int(one.max(initial=0)) for one in lengths)])
        ids = np.zeros((len(frame), len(fields), longest), np.int64)
        weights = np.zeros(ids.shape, np.float32)
        single, bags = iter(rows.categorical.T), iter(zip(rows.bags, lengths, strict=True))
        for place, (_, is_bag) in enumerate(fields):
            if is_bag:
                bag, length = next(bags)
                filled = np.arange(longest) < length[:, np.newaxis]
                ids[:, place][filled] = bag.values
                weights[:, place][filled] = 1 if bag.weights is None else bag.weights
            else:
                ids[:, place, 0], weights[:, place, 0] = next(single), 1
        return {"dense": np.ascontiguousarray(rows.dense), "ids": ids, "id_weights": weights}

    def pairs(self, frame: "pd.DataFrame | pl.DataFrame") -> tuple[np.ndarray, np.ndarray]:
        """Return user and item ids of raw rows, which are row numbers in `users.npy` and `items.npy`; 0 is unknown."""
        ids = self._encoded(frame).categorical
        return ids[:, self.about["user_place"]], ids[:, self.about["item_place"]]

    def _scores(self, frame: "pd.DataFrame | pl.DataFrame") -> np.ndarray:
        assert self._program is not None, "the server of a client has the program"
        if self.about["format"] == "vectors":
            return self._program(*self.pairs(frame))
        return self.predictions(self._program(self.inputs(frame)))

    def predictions(self, outputs: np.ndarray) -> np.ndarray:
        """Return the predictions of a program's outputs: probabilities of log odds; numbers are predictions already."""
        if self.about["are_predictions"]:
            return outputs.astype(np.float64)
        return probabilities(outputs + self.encoder.log_odds_shift)

    def _encoded(self, frame: "pd.DataFrame | pl.DataFrame") -> Any:
        if isinstance(frame, pl.DataFrame):
            return self.encoder.encode_table(dict(zip(frame.columns, frame, strict=True)), frame.height)
        return self.encoder.encode(frame)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Convert log odds to probabilities."""
    return 1 / (1 + np.exp(-logits.astype(np.float64)))


def _torch_program() -> Any:
    import torch

    return _run_by_torch(torch.export.load(FOLDER / "model.pt2").module())


def _compiled_program() -> Any:
    import torch

    return _run_by_torch(torch._inductor.aoti_load_package(str(FOLDER / "compiled.pt2")))


def _run_by_torch(model: Any) -> Any:
    import torch

    def run(inputs: dict[str, np.ndarray]) -> np.ndarray:
        with torch.no_grad():
            return model(*(torch.from_numpy(one) for one in inputs.values())).numpy()

    return run


def _onnx_program() -> Any:
    from onnxruntime import InferenceSession

    session = InferenceSession(
        FOLDER / "models" / "recommender" / "1" / "model.onnx", providers=["CPUExecutionProvider"]
    )
    names = {one.name for one in session.get_inputs()}  # a model without numbers has no input for them

    def run(inputs: dict[str, np.ndarray]) -> np.ndarray:
        return np.asarray(session.run(None, {name: one for name, one in inputs.items() if name in names})[0])

    return run


def _vectors_program() -> Any:
    users, items = np.load(FOLDER / "users.npy", mmap_mode="r"), np.load(FOLDER / "items.npy", mmap_mode="r")
    of_users, of_items = (
        pd.read_parquet(FOLDER / f"{side}.parquet", columns=["interactions"])["interactions"].to_numpy()
        for side in ("users", "items")
    )
    chosen, known = of_items.astype(np.float32), np.float32((of_users > 0).sum())
    popularity = np.log((chosen + np.float32(0.5)) / (known - chosen + np.float32(0.5)))

    def run(user: np.ndarray, item: np.ndarray) -> np.ndarray:
        scores = (users[user] * items[item]).sum(1)
        is_cold = of_users[user] == 0  # nothing is learned about the user
        scores[is_cold] = popularity[item[is_cold]]
        for place in np.flatnonzero(item == 0):  # an unknown item is last
            scores[place] = popularity[1:].min() if is_cold[place] else (items[1:] @ users[user[place]]).min()
        return scores.astype(np.float64)

    return run


PROGRAMS = {"torch": _torch_program, "aoti": _compiled_program, "onnx": _onnx_program, "vectors": _vectors_program}


def read(path: str) -> pl.DataFrame:
    """Read rows of a Parquet or CSV file; numbers of a CSV file stay texts, as the encoder reads them."""
    return pl.read_parquet(path) if path.endswith(".parquet") else pl.read_csv(path, infer_schema=False)


def main() -> None:
    """Score the rows of a file with the exported model."""
    parser = argparse.ArgumentParser(description="Score rows with the model of this folder.")
    parser.add_argument("rows", help="Parquet or CSV file with the columns of the click log.")
    parser.add_argument("--out", default=sys.stdout, help="CSV file for the scores; standard output if omitted.")
    given = parser.parse_args()
    scorer = Scorer()
    pd.DataFrame(scorer.predict(read(given.rows)), columns=scorer.about["outputs"]).to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
