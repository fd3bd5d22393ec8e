"""Pydantic field types for architectures, which are stored in JSON as flat dictionaries of options."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from shunter.errors import RequestError
from shunter.models.graph import GraphSpec, graph_spec
from shunter.models.registry import model_spec
from shunter.models.spec import ModelSpec


def _reader(kind: type, read: Callable[..., Any]) -> PlainValidator:
    def validate(value: object) -> Any:
        if isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise ValueError(f"not the options of an architecture: {value!r}")
        try:
            return read(**value)
        except (RequestError, TypeError) as error:
            raise ValueError(str(error)) from error

    return PlainValidator(validate)


AnyModelSpec = Annotated[ModelSpec, _reader(ModelSpec, model_spec), PlainSerializer(ModelSpec.to_dict)]
AnyGraphSpec = Annotated[GraphSpec, _reader(GraphSpec, graph_spec), PlainSerializer(GraphSpec.to_dict)]
