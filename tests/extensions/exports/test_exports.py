"""Exports score rows of a real log as the champion does, in processes that have no Shunter."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch._inductor.exc import InvalidCxxCompiler

from shunter.engine.checkpoint.storage import save_model
from shunter.engine.ranking.interactions import sides
from shunter.engine.ranking.storage import StoredRanker, save_ranker
from shunter.errors import MissingPackageError, UnknownNameError, UnsupportedError
from shunter.extensions.exports.folder import ENCODER_CODE, copy_encoder_code
from shunter.extensions.exports.programs import members_of, portable
from shunter.extensions.learned_hashing.learned_ids import LearnedIds, group
from shunter.flows.command.model_commands import export
from shunter.ingestion.encoding.learned_map import write_vocabularies
from shunter.ingestion.request import ingest_request
from shunter.ingestion.sources.named import join_movielens
from shunter.models.ensemble import Ensemble
from shunter.models.graph import graph_spec
from shunter.models.graph.ranker import VectorRanker
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import NumberLabel
from shunter.requests import TrainRequest
from shunter.tracking.registry.models import load_champion, register_model
from shunter.tracking.registry.named import EXPORT_FORMATS
from shunter.tracking.registry.signing import digest_of
from shunter.tracking.runs import start_run_tree
from tests.models.families.test_families import FEATURES, SPECS, inputs_of

LENGTH = 5  # of the histories
ROWS = 3000
SCRIPT = """
import sys
from importlib.util import find_spec
assert find_spec("shunter") is None
sys.path.insert(0, ".")
import numpy as np, polars as pl
from score import Scorer
scorer = Scorer()
table = pl.read_parquet(sys.argv[1])
np.savez(sys.argv[2], polars=scorer.predict(table), pandas=scorer.predict(table.to_pandas()))
import runpy
sys.argv = ["score.py", sys.argv[1], "--out", sys.argv[3]]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
CLIENT = """
import runpy, sys
sys.path.insert(0, ".")
import numpy as np
from score import Scorer, read
np.savez(sys.argv[2], **Scorer(is_client=True).inputs(read(sys.argv[1])))
sys.argv = ["client.py", sys.argv[3], sys.argv[1]]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
LEARNED = """
import sys
from importlib.util import find_spec
assert find_spec("shunter") is None
sys.path.insert(0, ".")
import numpy as np
from row_encoder.ingestion.encoding.learned_map import read_learned_maps
print(read_learned_maps(np.load("vocabulary.npz"))["user"].ids(np.array(sys.argv[1:], np.uint64)).tolist())
"""
CLOSE = {"rtol": 0, "atol": 1e-6}

needs_onnx = pytest.mark.skipif(find_spec("onnxscript") is None, reason="needs the extra onnx")


@pytest.fixture(scope="module")
def furnished(
    tmp_path_factory: pytest.TempPathFactory, empty_database: Path, movielens_wheel: Path
) -> tuple[Path, Path]:
    """A home with an ensemble and a ranking model of MovieLens, and rows of the log with some unknown values."""
    folder = tmp_path_factory.mktemp("exports")
    home = folder / "home"
    (home / "mlflow").mkdir(parents=True)
    (home / "downloads").mkdir()
    (home / "downloads" / movielens_wheel.name).symlink_to(movielens_wheel)
    shutil.copy(empty_database, home / "mlflow" / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(home))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        request = TrainRequest(data=f"ml-100k:{LENGTH}")
        dataset, _ = ingest_request(request)
        specs = (model_spec(family="din", embedding_dim=8), model_spec("dcnv2", embedding_dim=4, top_widths=(67, 8)))
        members = [build_model(spec, dataset.features, seed=seed).eval() for seed, spec in enumerate(specs)]
        save_model(Ensemble(members, [0.25, 0.75], scale=0.9).eval(), folder / "clicks")
        user, item = sides(dataset)
        rows = {field.name: field.rows for field in dataset.features.categorical}
        generator = torch.Generator().manual_seed(0)
        ranker = VectorRanker(
            0.3 * torch.randn(rows[user], 8, generator=generator),
            0.3 * torch.randn(rows[item], 8, generator=generator),
            torch.randint(0, 3, (rows[user],), generator=generator),
            torch.randint(0, 3, (rows[item],), generator=generator),
        )
        spec = graph_spec(family="lightgcn", embedding_dim=8)
        save_ranker(
            StoredRanker(ranker=ranker, spec=spec, features=dataset.features, user=user, item=item), folder / "ranks"
        )
        number = NumberLabel(loss="ordinal", center=3.5, scale=1.1, levels=(1.0, 3.0, 5.0), odds=(2.0, 0.4))
        of_numbers = replace(dataset.features, number=number)
        save_model(build_model(specs[1], of_numbers).eval(), folder / "ratings")
        for name in ("clicks", "ranks", "ratings"):
            register_model(start_run_tree(request, dataset), dataset, folder / name, name, metrics={})
    log = join_movielens(movielens_wheel).head(ROWS)
    items = log["item_id"].to_list()
    histories = [items[max(0, place - place % 8) : place] for place in range(ROWS)]  # of 0 to 7 items
    built = [field.name for field in dataset.features.categorical if field.length]
    log = log.with_columns(pl.Series(name, histories) for name in built)
    unknown = [
        log.head(5).with_columns(pl.lit(10**6).cast(log.schema[name]).alias(name)) for name in ("user_id", "item_id")
    ]
    pl.concat([log, *unknown]).write_parquet(folder / "rows.parquet")
    assert built
    return home, folder / "rows.parquet"


@pytest.fixture
def rows(furnished: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHUNTER_HOME", str(furnished[0]))
    return furnished[1]


@pytest.fixture(scope="module")
def exported(
    furnished: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], tuple[Path, np.ndarray]]:
    """Exports a model by the command, once; returns the folder, and the champion's scores of the rows."""
    home, rows = furnished

    @cache
    def export_once(model: str, how: str) -> tuple[Path, np.ndarray]:
        folder = tmp_path_factory.mktemp(model) / how
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHUNTER_HOME", str(home))
            export(model, str(folder), export_format=how)
            champion = np.asarray(load_champion(model).predict(pl.read_parquet(rows).to_pandas()))
        assert json.loads((folder / "signed.json").read_text())["digest"] == digest_of(folder)
        return folder, champion

    return export_once


def run(folder: Path, *arguments: str | Path) -> str:
    """Run Python in an exported folder, with the installed packages but without Shunter."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHUNTER")}
    environment["PYTHONPATH"] = sysconfig.get_paths()["purelib"]  # whose .pth files, one for Shunter, are not read
    command = [sys.executable, "-S", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "how"),
    [
        ("clicks", "torch"),
        pytest.param("clicks", "onnx", marks=needs_onnx),
        ("ranks", "vectors"),
        ("ratings", "aoti"),
        pytest.param("ratings", "torch", marks=pytest.mark.long),
        pytest.param("clicks", "aoti", marks=pytest.mark.long),
    ],
)
def test_an_export_scores_as_the_champion_without_shunter(
    exported: Callable[[str, str], tuple[Path, np.ndarray]], model: str, how: str, rows: Path, tmp_path: Path
) -> None:
    folder, champion = exported(model, how)
    run(folder, "-c", SCRIPT, rows, tmp_path / "scores.npz", tmp_path / "scores.csv")
    found = np.load(tmp_path / "scores.npz")
    assert np.unique(champion).size > ROWS / 10
    np.testing.assert_allclose(found["pandas"], champion, **CLOSE)
    np.testing.assert_allclose(found["polars"], champion, **CLOSE)
    np.testing.assert_allclose(pl.read_csv(tmp_path / "scores.csv").to_series(), champion, **CLOSE)
    if how == "vectors" and find_spec("faiss") is not None:
        import faiss

        users, items = np.load(folder / "users.npy"), np.load(folder / "items.npy")
        assert (pl.read_parquet(folder / "items.parquet")["vector"].to_numpy() == items).all()
        _, best = faiss.read_index(str(folder / "items.faiss")).search(users[1:5], 1)
        assert best[:, 0].tolist() == (users[1:5] @ items.T).argmax(1).tolist()


def test_learned_maps_of_ids_are_read_without_shunter(tmp_path: Path) -> None:
    keys = np.array([7, 8, 9, 10], np.uint64)
    ids = LearnedIds.of(keys[:3], group(np.array([3, 2, 1]), np.eye(3), 8))
    write_vocabularies(tmp_path, (), {"user": ids})
    copy_encoder_code(tmp_path / ENCODER_CODE)
    found = run(tmp_path, "-c", LEARNED, *keys)
    assert json.loads(found) == ids.ids(keys).tolist()


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """Serves a Triton model repository by the Open Inference Protocol, with the runtime of its backend."""
    running: list[ThreadingHTTPServer] = []

    def start(repository: Path) -> str:
        from onnxruntime import InferenceSession

        session = InferenceSession(repository / "recommender" / "1" / "model.onnx")
        kinds = {"FP32": np.float32, "INT64": np.int64}

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v2/models/recommender/infer"
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                given = {
                    one["name"]: np.array(one["data"], kinds[one["datatype"]]).reshape(one["shape"])
                    for one in body["inputs"]
                }
                logits = np.asarray(session.run(["logits"], given)[0])
                output = {"name": "logits", "datatype": "FP32", "shape": logits.shape, "data": logits.ravel().tolist()}
                answer = json.dumps({"outputs": [output]}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *_: Any) -> None: ...

        running.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=running[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{running[-1].server_port}"

    yield start
    for one in running:
        one.shutdown()
        one.server_close()


@needs_onnx
@pytest.mark.slow
def test_dense_part_and_client_of_an_onnx_export_score_as_the_champion(
    exported: Callable[[str, str], tuple[Path, np.ndarray]], rows: Path, tmp_path: Path, serve: Callable[[Path], str]
) -> None:
    from onnxruntime import InferenceSession

    few = tmp_path / "few.parquet"
    pl.read_parquet(rows).tail(50).write_parquet(few)
    folder, scores = exported("clicks", "onnx")
    champion = scores[-50:]
    answer = run(folder, "-c", CLIENT, few, tmp_path / "inputs.npz", serve(folder / "models"))
    np.testing.assert_allclose([float(line) for line in answer.splitlines()], champion, **CLOSE)

    given, about = np.load(tmp_path / "inputs.npz"), json.loads((folder / "export.json").read_text())
    places = given["ids"] + np.array(about["starts"])[:, np.newaxis]
    found = {f"rows_{one}": np.load(folder / f"tables_{one}.npy")[places] for one in range(about["members"])}
    session = InferenceSession(folder / "dense.onnx")
    every = {"dense": given["dense"], "id_weights": given["id_weights"], **found}
    logits = np.asarray(session.run(None, {one.name: every[one.name] for one in session.get_inputs()})[0])
    np.testing.assert_allclose(1 / (1 + np.exp(-logits.astype(float))), champion, **CLOSE)

    config = (folder / "models" / "recommender" / "config.pbtxt").read_text()
    whole = InferenceSession(folder / "models" / "recommender" / "1" / "model.onnx")
    assert all(f'name: "{one.name}"' in config for one in (*whole.get_inputs(), *whole.get_outputs()))


def no_compiler() -> str:
    raise InvalidCxxCompiler


def test_models_and_formats_that_do_not_fit_are_refused(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model, how in (("ranks", "torch"), ("clicks", "vectors")):
        with pytest.raises(UnsupportedError):
            EXPORT_FORMATS.load(how)(model, tmp_path / how)
    with pytest.raises(UnknownNameError):
        EXPORT_FORMATS.load("pickle")
    monkeypatch.setattr("shunter.registry.find_spec", lambda name: None if name == "onnx" else find_spec(name))
    with pytest.raises(MissingPackageError) as refused:
        EXPORT_FORMATS.load("onnx")("clicks", tmp_path / "onnx")
    assert refused.value.extra == "onnx"
    monkeypatch.setattr("torch._inductor.cpp_builder.get_cpp_compiler", no_compiler)
    with pytest.raises(UnsupportedError):
        EXPORT_FORMATS.load("aoti")("clicks", tmp_path / "aoti")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_the_portable_form_of_every_family_gives_its_logits(spec: Any) -> None:
    model = build_model(spec, FEATURES, seed=1).eval()
    dense, values, offsets, *_ = inputs_of(FEATURES, batch=5)
    ids = torch.zeros(5, len(FEATURES.categorical), 4, dtype=torch.int64)
    weights = torch.zeros(ids.shape)
    for bag, (start, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        ids[bag % 5, bag // 5, : end - start] = values[start:end]
        weights[bag % 5, bag // 5, : end - start] = 1
    two = Ensemble([model, model], [1.0, 3.0]).eval()
    with torch.no_grad():
        torch.testing.assert_close(portable(model)(dense, ids, weights), model(dense, values, offsets), **CLOSE)
        assert len(members_of(portable(two))) == 2
        torch.testing.assert_close(portable(two)(dense, ids, weights), two(dense, values, offsets), **CLOSE)
