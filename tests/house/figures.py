"""The measured figures of the house, each a count over its files."""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath

from tests.house.sources import House, Source

PARTS = ("core", "applications", "extensions", "tests", "benchmarks")
ENTRIES = ("flows/train.py", "tasks/train/__init__.py", "engine/loop/trainer.py", "planner/decide.py")

# A test for the kind: a place outside the ranking models' own files that asks whether a model, a trained model or a
# request ranks. It is an `isinstance` or a class pattern with one of these classes, a membership in one of these tables
# or a comparison with one of these constants, or a call of one of these functions. A flag that keeps the answer is not
# counted again.
KIND_CLASSES = re.compile(r"^(Any)?(Graph(Spec|Model|Kind)?|Solved\w*|\w*Ranker(Recipe)?|Ranking\w+)$")
KIND_TABLES = re.compile(r"^(GRAPH_(FAMILIES|MODELS)|RANKING\w*|RANKERS?)$")
KIND_FUNCTIONS = re.compile(r"^(is_ranker|is_ranking|ranks|is_graph\w*)$")
KIND_OWNERS = re.compile(r"^(models/graph|engine/ranking)/|^shunter/model_families\.py|^[\w/]+/problems?(/|\.py)")

WORDS = re.compile(r"\w\S* \S*\w")  # in a literal that a test compares: prose


def measure(house: House) -> dict[str, int]:
    """Return every figure that reading the files gives, by its name."""
    product = house.product
    figures = {"files.product": len(product), "lines.product": sum(source.lines for source in product.values())}
    for part in PARTS:
        figures[f"lines.{part}"] = sum(source.lines for source in house.sources if source.part == part)
    for entry in ENTRIES:
        loaded = house.loaded_by(Source(entry, "").module)
        figures[f"loaded_modules.{entry}"] = len(loaded)
        figures[f"loaded_lines.{entry}"] = sum(product[name].lines for name in loaded)
    figures["kind_test_files"] = len({place.partition(":")[0] for place in kind_tests(house)})
    return figures | {name: len(places(house)) for name, places in COUNTED.items()}


def core_imports(house: House) -> list[str]:
    """Return the imports of an extension or application by the core."""
    part = {name: source.part for name, source in house.product.items()}
    return sorted(
        f"{importer} -> {name} ({house.product[name].room})"
        for importer, named in house.imports.items()
        for name in named
        if part[importer] == "core" and part[name] != "core"
    )


def modules_with_one_importer(house: House) -> list[str]:
    """Return the modules, packages aside, that exactly one other module imports."""
    importers = Counter(name for named in house.imports.values() for name in named)
    return [name for name, source in house.product.items() if importers[name] == 1 and not source.is_package]


def repeated_file_names(house: House) -> list[str]:
    """Return the names that several files of the product bear, `__init__.py` aside."""
    return _repeated(PurePath(source.path).name for source in house.product.values() if not source.is_package)


def repeated_class_names(house: House) -> list[str]:
    """Return the names that several classes of the product bear, those inside of functions and classes aside."""
    top = (node for source in house.product.values() for node in source.tree.body)
    return _repeated(node.name for node in top if isinstance(node, ast.ClassDef))


def kind_tests(house: House) -> list[str]:
    """Return the places that ask for the kind of a model, as `path:line`."""
    return _places((source for source in house.product.values() if not KIND_OWNERS.match(source.path)), _asks_for_kind)


def prose_asserts(house: House) -> list[str]:
    """Return the asserts of tests on the wording of a text, as `path:line`: literals of more than one word."""
    return _places((source for source in house.sources if source.part == "tests"), _is_on_prose)


def _asks_for_kind(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name("isinstance" | "issubclass"), args=[_, classes]):
            return any(KIND_CLASSES.match(name) for name in _names(classes))
        case ast.MatchClass(cls=cls):
            return any(KIND_CLASSES.match(name) for name in _names(cls))
        case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name)):
            return bool(KIND_FUNCTIONS.match(name))
        case ast.Compare():
            sides = [side for side in (node.left, *node.comparators) if not isinstance(side, ast.Compare)]
            return any(KIND_TABLES.match(name) for side in sides for name in _names(side))
    return False


def _is_on_prose(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="raises" | "warns"), keywords=keywords):
            return any(_is_prose(keyword.value) for keyword in keywords if keyword.arg == "match")
        case ast.Assert(test=test):
            return any(_compares_prose(part) for part in ast.walk(test))
    return False


def _compares_prose(node: ast.AST) -> bool:
    match node:
        case ast.Compare(left=left, comparators=others):
            literal = (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Set, ast.BinOp)
            return any(_is_prose(side) for side in (left, *others) if isinstance(side, literal))
        case ast.Call(func=ast.Attribute(attr="startswith" | "endswith"), args=arguments):
            return any(_is_prose(argument) for argument in arguments)
    return False


def _is_prose(node: ast.AST) -> bool:
    texts = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    return any(isinstance(text, str) and WORDS.search(text) for text in texts)


def _places(sources: Iterable[Source], is_one: Callable[[ast.AST], bool]) -> list[str]:
    return [
        f"{source.path}:{getattr(node, 'lineno', 0)}"
        for source in sources
        for node in ast.walk(source.tree)
        if is_one(node)
    ]


def _names(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr


def _repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


COUNTED: dict[str, Callable[[House], list[str]]] = {
    "core_imports_of_others": core_imports,
    "modules_with_one_importer": modules_with_one_importer,
    "file_names_used_twice": repeated_file_names,
    "class_names_used_twice": repeated_class_names,
    "kind_tests": kind_tests,
    "prose_asserts": prose_asserts,
}
