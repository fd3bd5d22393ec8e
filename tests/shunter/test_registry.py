"""Registries know names and plain data before a module is imported, and take entries of other distributions."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from shunter.errors import MissingExtensionError, MissingPackageError, UnknownNameError
from shunter.registry import Entry, Registry, check_package

REGISTRY = Registry(
    "shape",
    {
        "circle": Entry(target="math:pi", capabilities={"corners": 0}),
        "blob": Entry(target="shunter.extensions.absent.module:BLOB"),
        "square": Entry(target="json:dumps", capabilities={"corners": 4}),
    },
    group="shunter.test_shapes",
)


def test_names_are_those_of_installed_entries_in_their_order() -> None:
    assert REGISTRY.names == ("circle", "square")


def test_an_implementation_is_loaded_by_its_name() -> None:
    assert REGISTRY.entry("square").capabilities["corners"] == 4
    assert REGISTRY.load("square")([1]) == "[1]"


def test_a_name_of_an_absent_extension_is_refused_with_the_extension() -> None:
    with pytest.raises(MissingExtensionError) as refused:
        REGISTRY.entry("blob")
    assert (refused.value.role, refused.value.name, refused.value.extension) == ("shape", "blob", "absent")


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError) as refused:
        REGISTRY.load("sqare")
    assert (refused.value.known, refused.value.nearest) == (("circle", "square"), ("square",))


def test_an_extension_that_is_there_is_installed() -> None:
    entry = Entry(target="shunter.extensions.shampoo.optimizer:build")
    assert (entry.extension, entry.is_installed) == ("shampoo", True)


def test_a_misspelt_capability_of_another_distribution_is_refused() -> None:
    registry = Registry("shape", {}, "shunter.test_shapes", defaults={"corners": 0})
    misspelt = Entry(target="json:dumps", capabilities={"corner": 5})
    registry.__dict__["_foreign"] = {"star": SimpleNamespace(load=lambda: misspelt)}
    with pytest.raises(UnknownNameError) as refused:
        registry.entry("star")
    assert (refused.value.name, refused.value.nearest) == ("corner", ("corners",))


def test_another_distribution_adds_an_optimizer_that_trains(tmp_path: Path) -> None:
    """The entry point alone makes it known: nothing of ours names it."""
    (tmp_path / "acme.py").write_text(
        "import torch\n"
        "from shunter.registry import Entry\n"
        "ENTRY = Entry(target='acme:build', capabilities={'states': 1})\n"
        "def build(groups, learning_rate): return torch.optim.RMSprop(groups, lr=learning_rate)\n"
    )
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[shunter.dense_optimizers]\nrmsprop = acme:ENTRY\n")
    script = (
        "import torch\n"
        "from shunter.engine.config import Hyperparameters\n"
        "from shunter.engine.overrides import read_overrides\n"
        "from shunter.engine.loop.step import build_dense_optimizer\n"
        "fixed = read_overrides('dlrm', ['dense_optimizer=rmsprop'])\n"
        "built = build_dense_optimizer(torch.nn.Linear(2, 1), Hyperparameters(**fixed.learning))\n"
        "print(type(built).__name__)"
    )
    program = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{script}"]
    assert subprocess.run(program, capture_output=True, text=True, check=True).stdout.split() == ["RMSprop"]


def test_a_package_of_an_extra_is_named_with_the_extra() -> None:
    check_package("json", "json", "serve")
    with pytest.raises(MissingPackageError) as refused:
        check_package("no_such_module", "no-such-package", "cluster")
    assert (refused.value.package, refused.value.extra) == ("no-such-package", "cluster")
    assert refused.value.code == "missing-package"
