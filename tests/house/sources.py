"""The project's Python files: the room, the lines and the imports of each."""

import ast
import re
import subprocess
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from shunter.settings import PROJECT_ROOT

# What stands before the name of a folder in an import; "shunter." once everything is imported as `shunter.<folder>`.
PREFIX = "shunter."

# The first pattern that matches a path decides its room; a path under `extensions/NAME/` is in the room NAME.
ROOMS = (
    ("tests", r"^tests/"),
    ("benchmarks", r"^(benchmarks|examples)/"),
    ("tools", r"^(requirements|docs)/"),
    ("retraining", r"^retraining/"),
    ("serving", r"^serving/"),
    ("operation", r"^operation/"),
)
APPLICATIONS = ("retraining", "serving", "operation")
NOT_PRODUCT = ("tests", "benchmarks", "tools")


@dataclass(frozen=True)
class Source:
    """A Python file.

    Attributes:
        path: Path below the root of the project, with slashes.
        text: Its content.
    """

    path: str
    text: str = field(repr=False)

    @property
    def room(self) -> str:
        """Room of the house that the file belongs to."""
        if self.path.startswith("extensions/"):
            return self.path.split("/")[1]
        return next((room for room, pattern in ROOMS if re.search(pattern, self.path)), "core")

    @property
    def part(self) -> str:
        """Part of the house: core, applications, extensions, tests, benchmarks or tools."""
        if self.room == "core" or self.room in NOT_PRODUCT:
            return self.room
        return "applications" if self.room in APPLICATIONS else "extensions"

    @property
    def module(self) -> str:
        """Name by which the file is imported."""
        dotted = self.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        return dotted if dotted.split(".")[0] == "shunter" else PREFIX + dotted

    @property
    def is_package(self) -> bool:
        """Return True if the file is the `__init__.py` of a package."""
        return self.path.endswith("__init__.py")

    @property
    def lines(self) -> int:
        """Number of lines."""
        return self.text.count("\n")

    @cached_property
    def tree(self) -> ast.Module:
        """Syntax tree."""
        return ast.parse(self.text)


@dataclass(frozen=True)
class House:
    """All Python files of the project.

    Attributes:
        sources: Every file, sorted by its path.
    """

    sources: tuple[Source, ...] = field(repr=False)

    @classmethod
    def read(cls) -> "House":
        """Read the files that git tracks, or would track, as they are now."""
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=PROJECT_ROOT).stdout.split()
        paths = [path for path in sorted(set(listed)) if (PROJECT_ROOT / path).is_file()]
        return cls(tuple(Source(path, Path(PROJECT_ROOT, path).read_text()) for path in paths))

    @cached_property
    def product(self) -> dict[str, Source]:
        """Files that are installed, by the name of the module."""
        return {source.module: source for source in self.sources if source.room not in NOT_PRODUCT}

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """Modules of the product that each module of the product names in an import, wherever it stands."""
        return {name: self._named(ast.walk(source.tree), name) for name, source in self.product.items()}

    def loaded_by(self, module: str) -> set[str]:
        """Return the modules of the product that importing one module loads: packages, and imports at the top."""
        loaded: set[str] = set()
        waiting = deque([module])
        while waiting:
            name = waiting.popleft()
            if name in loaded or name not in self.product:
                continue
            loaded.add(name)
            waiting.extend(self._named(_run_at_import(self.product[name].tree), name))
            waiting.extend(name[: place.start()] for place in re.finditer(r"\.", name))
        return loaded

    def _named(self, nodes: Iterator[ast.AST], importer: str) -> set[str]:
        named: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.Import):
                named.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                modules = members & self.product.keys()
                named.update(modules if modules == members else {*modules, node.module})
        return {name for name in named if name in self.product and name != importer}


def _run_at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run when a module is imported: none in functions, none for the type checker alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _run_at_import(node)
