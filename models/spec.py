"""What a model is built from: the features that come in and the shape of the network.

Plain dataclasses, so that a machine with torch and numpy alone can build and train a model.
"""

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, kw_only=True)
class CategoricalFeature:
    """One categorical field, after its values have become ids.

    Attributes:
        name: column of the source.
        rows: number of ids, so the rows of its embedding table; id 0 is the out-of-vocabulary and missing value.
        multi_valued: whether a sample may hold any number of ids (a pooled bag) instead of exactly one.
    """

    name: str
    rows: int
    multi_valued: bool = False


@dataclass(frozen=True, kw_only=True)
class Features:
    """The input of a model: names of the dense columns and the categorical fields, in the order of the arrays."""

    dense: tuple[str, ...]
    categorical: tuple[CategoricalFeature, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Features":
        """Inverse of `to_dict`."""
        categorical = tuple(CategoricalFeature(**field) for field in values["categorical"])
        return cls(dense=tuple(values["dense"]), categorical=categorical)


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The architecture of one model.

    Attributes:
        family: name in the registry (`models.registry`).
        embedding_dim: width of every embedding row, and of the dense vector that meets them in the interaction.
        bottom_widths: hidden widths of the MLP over the dense features, without the last layer of `embedding_dim`.
        top_widths: hidden widths of the MLP over the interactions, without the last layer of one logit.
        dropout: share of activations dropped in the top MLP while training.
    """

    family: str = "dlrm"
    embedding_dim: int = 16
    bottom_widths: tuple[int, ...] = (64,)
    top_widths: tuple[int, ...] = (128, 64)
    dropout: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "ModelSpec":
        """Inverse of `to_dict`; unknown keys are refused by the constructor."""
        known = {field.name for field in fields(cls)}
        tuples = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        assert known >= values.keys(), f"unknown keys {sorted(values.keys() - known)}"
        return cls(**{**values, **tuples})
