"""Example client of a server that has the folder `models`, such as Triton: `python client.py URL ROWS.parquet`.

Start a server with `docker run -p 8000:8000 -v $PWD/models:/models nvcr.io/nvidia/tritonserver:26.10-py3 tritonserver
--model-repository=/models`; then URL is http://localhost:8000. This script encodes the rows, and the server
scores them.
"""

import json
import sys
from urllib.request import Request, urlopen

import numpy as np
from score import Scorer, read

TYPES = {"float32": "FP32", "int64": "INT64"}


def scores(url: str, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Request the outputs of encoded rows by the Open Inference Protocol (KServe v2)."""
    body = {
        "inputs": [
            {"name": name, "shape": one.shape, "datatype": TYPES[str(one.dtype)], "data": one.ravel().tolist()}
            for name, one in inputs.items()
        ]
    }
    request = Request(f"{url}/v2/models/recommender/infer", json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urlopen(request, timeout=60) as answer:
        [output] = json.load(answer)["outputs"]
    return np.array(output["data"]).reshape(output["shape"])


if __name__ == "__main__":
    scorer = Scorer(is_client=True)
    for score in scorer.predictions(scores(sys.argv[1], scorer.inputs(read(sys.argv[2])))):
        print(score)
