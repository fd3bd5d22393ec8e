"""FuxiCTR with the settings that BARS publishes for Frappe_x1.

Settings: https://github.com/reczoo/BARS, `ranking/ctr/{DCNv2,DeepFM,FinalMLP}/*_frappe_x1`. The wheel holds FuxiCTR's
layers and its trainer, not its model zoo, so the models are put together here from its own layers, each as its paper
and the named settings say. CSV goes through its feature processor into its format npz, not through Ray into Parquet,
which is the default: on two cores Ray took minutes to encode these rows.
"""
# pyright: reportMissingImports=false

from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuxictr.features import FeatureMap
from fuxictr.preprocess import FeatureProcessor
from fuxictr.pytorch.dataloaders import RankDataLoader
from fuxictr.pytorch.layers import CrossNetV2, FactorizationMachine, FeatureEmbedding, MLP_Block
from fuxictr.pytorch.models import BaseModel
from fuxictr.pytorch.torch_utils import seed_everything
from torch import nn

from benchmarks.time_to_quality.rivals.job import Job, read_job

DATA = "clicks"
FIELDS = ["user", "item", "daytime", "weekday", "isweekend", "homework", "cost", "weather", "country", "city"]
COMMON = {
    "optimizer": "adam",
    "learning_rate": 1e-3,
    "batch_size": 4096,
    "embedding_dim": 10,
    "embedding_regularizer": 0.05,
    "loss": "binary_crossentropy",
    "task": "binary_classification",
    "metrics": ["AUC", "logloss"],
    "monitor": "AUC",
    "monitor_mode": "max",
    "early_stop_patience": 2,
    "save_best_only": True,
    "shuffle": True,
    "gpu": -1,
    "verbose": 0,
}
OWN = {
    "dcnv2": {"dropout": 0.4, "cross_layers": 4, "widths": [400, 400, 400]},
    "deepfm": {"dropout": 0.2, "widths": [400, 400, 400]},
    "finalmlp": {"dropout": 0.4, "widths": [[400], [100]], "gate_widths": [400], "heads": 5},
}


class Model(BaseModel):
    """One of the three: what they share, and a point for each epoch.

    Args:
        feature_map: FuxiCTR's description of the data.
        job: What is asked for.
        settings: FuxiCTR's options.
    """

    def __init__(self, feature_map: Any, job: Job, settings: dict[str, Any]) -> None:
        super().__init__(feature_map, model_id=job.model, **settings)
        self.job = job
        self.embedding_layer = FeatureEmbedding(feature_map, settings["embedding_dim"])
        self.build(feature_map, feature_map.sum_emb_out_dim(), OWN[job.model])
        self.compile(settings["optimizer"], settings["loss"], settings["learning_rate"])
        self.reset_parameters()
        self.model_to_device()

    def build(self, feature_map: Any, width: int, own: dict[str, Any]) -> None:
        """Make the layers above the embeddings, `width` numbers a sample."""
        raise NotImplementedError

    def logits(self, ids: dict[str, torch.Tensor], embedded: torch.Tensor) -> torch.Tensor:
        """Scores `[rows, 1]` from the ids and their embeddings `[rows, fields, dimensions]`."""
        raise NotImplementedError

    def forward(self, inputs: Any) -> dict[str, torch.Tensor]:
        """Probabilities, as the trainer wants them."""
        ids = self.get_inputs(inputs)
        return {"y_pred": self.output_activation(self.logits(ids, self.embedding_layer(ids)))}

    def checkpoint_and_earlystop(self, logs: dict[str, float], min_delta: float = 1e-6) -> None:
        """Keep the best weights and stop as FuxiCTR does, or when the time is over."""
        super().checkpoint_and_earlystop(logs, min_delta)
        self.job.reached(logs["AUC"])
        self._stop_training = self._stop_training or self.job.is_over


class DCNv2(Model):
    """Cross network beside a perceptron (Wang et al., WWW 2021)."""

    def build(self, feature_map: Any, width: int, own: dict[str, Any]) -> None:
        """Both, and the layer that joins them."""
        self.cross = CrossNetV2(width, own["cross_layers"])
        self.deep = perceptron(width, own["widths"], own["dropout"])
        self.head = nn.Linear(width + own["widths"][-1], 1)

    def logits(self, ids: dict[str, torch.Tensor], embedded: torch.Tensor) -> torch.Tensor:
        """Of both beside each other."""
        flat = embedded.flatten(start_dim=1)
        return self.head(torch.cat([self.cross(flat), self.deep(flat)], dim=-1))


class DeepFM(Model):
    """Factorisation machine plus a perceptron over the same embeddings (Guo et al., IJCAI 2017)."""

    def build(self, feature_map: Any, width: int, own: dict[str, Any]) -> None:
        """Both."""
        self.machine = FactorizationMachine(feature_map)
        self.deep = perceptron(width, own["widths"], own["dropout"], output_dim=1)

    def logits(self, ids: dict[str, torch.Tensor], embedded: torch.Tensor) -> torch.Tensor:
        """Their sum."""
        return self.machine(ids, embedded) + self.deep(embedded.flatten(start_dim=1))


class FinalMLP(Model):
    """Two gated perceptrons, joined by a bilinear form in several heads (Mao et al., AAAI 2023)."""

    def build(self, feature_map: Any, width: int, own: dict[str, Any]) -> None:
        """Gates by user and by item, the two streams, and their fusion."""
        dimensions = width // len(FIELDS)
        self.gates = nn.ModuleList(
            MLP_Block(
                input_dim=dimensions,
                output_dim=width,
                hidden_units=own["gate_widths"],
                hidden_activations="ReLU",
                output_activation="Sigmoid",
            )
            for _ in range(2)
        )
        self.streams = nn.ModuleList(perceptron(width, widths, own["dropout"]) for widths in own["widths"])
        self.alone = nn.ModuleList(nn.Linear(widths[-1], 1) for widths in own["widths"])
        self.heads = own["heads"]
        first, second = (widths[-1] // self.heads for widths in own["widths"])
        self.joint = nn.Parameter(nn.init.xavier_normal_(torch.empty(self.heads, first, second)))

    def logits(self, ids: dict[str, torch.Tensor], embedded: torch.Tensor) -> torch.Tensor:
        """Linear parts of both streams and their product, head by head."""
        flat = embedded.flatten(start_dim=1)
        contexts = (embedded[:, FIELDS.index(name)] for name in ("user", "item"))
        gated = [flat * 2 * gate(one) for gate, one in zip(self.gates, contexts, strict=True)]
        x, y = (stream(one) for stream, one in zip(self.streams, gated, strict=True))
        linear = self.alone[0](x) + self.alone[1](y)
        x, y = (one.unflatten(-1, (self.heads, -1)) for one in (x, y))
        return linear + torch.einsum("bhi,hij,bhj->b", x, self.joint, y).unsqueeze(-1)


def perceptron(width: int, widths: list[int], dropout: float, output_dim: int | None = None) -> Any:
    """FuxiCTR's, with batch norm."""
    return MLP_Block(
        input_dim=width,
        output_dim=output_dim,
        hidden_units=widths,
        hidden_activations="ReLU",
        dropout_rates=dropout,
        batch_norm=True,
    )


def prepare(job: Job) -> tuple[Any, dict[str, str]]:
    """Encode the raw parts; the description of the data, and the files by the names of FuxiCTR's options."""
    processor = FeatureProcessor(
        feature_cols=[{"name": FIELDS, "active": True, "dtype": "str", "type": "categorical"}],
        label_col={"name": "label", "dtype": "float"},
        dataset_id=DATA,
        data_root=str(job.folder),
    )
    frames = {part: processor.preprocess(processor.read_data(path)) for part, path in job.files.items()}
    processor.fit(frames["train"], min_categr_count=1)
    options = {"train": "train_data", "validation": "valid_data", "test": "test_data"}
    files = {option: str(Path(processor.data_dir, f"{part}.npz")) for part, option in options.items()}
    for part, frame in frames.items():
        columns = frame.collect().to_dict(as_series=False)
        np.savez(files[options[part]], **processor.transform({name: np.array(one) for name, one in columns.items()}))
    feature_map = FeatureMap(DATA, processor.data_dir)
    feature_map.load(processor.json_file, COMMON)
    return feature_map, files


def main() -> None:
    """Prepare, train, keep the best epoch, score the test part."""
    job = read_job()
    torch.set_num_threads(job.threads)
    seed_everything(job.seed)
    feature_map, files = prepare(job)
    settings = {**COMMON, **files, "data_format": "npz", "model_root": str(job.folder / "models")}
    Path(settings["model_root"], DATA).mkdir(parents=True)
    model = {"dcnv2": DCNv2, "deepfm": DeepFM, "finalmlp": FinalMLP}[job.model](feature_map, job, settings)
    train, validation = RankDataLoader(feature_map, stage="train", **settings)
    model.fit(train, validation_data=validation, epochs=job.max_epochs)
    test = model.evaluate(RankDataLoader(feature_map, stage="test", **settings))
    job.finish(test["AUC"], {**COMMON, **OWN[job.model]})


if __name__ == "__main__":
    main()
