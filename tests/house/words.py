"""`make words`: find wording of the product and its docs that a reader who knows the field cannot know.

`words.yaml` lists banned wording, each with what to write and the contexts that the field itself uses. Texts are
docstrings, comments, string literals of at least three words and the pages of `docs/` outside `docs/lab/`. Text within
backticks or quotation marks is skipped. Names are those of modules, classes, functions, parameters and fields. A
docstring's first sentence begins with a verb or a noun phrase, and no sentence has more than 30 words.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from shunter.settings import PROJECT_ROOT
from tests.house.sources import House, Source

DATA = Path(__file__).parent / "words.yaml"
MOST_WORDS = 30
FEWEST_WORDS = 3  # a string literal with fewer is a key or a code

Function = ast.FunctionDef | ast.AsyncFunctionDef
QUOTED = re.compile(r"``.+?``|`[^`]*`|\"[^\"]*\"|“[^”]*”|(?<![\w'])'[^'\n]+'(?!\w)", re.DOTALL)
NAME_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
ENTRY = re.compile(r"\s*(?:\*{0,2}\w+|\w+Error):(?:\s|$)|\s*(?:[-*•]|\d+\.)\s")
ENTRY_NAME = re.compile(r"^\s+\*{0,2}\w+(?=: )", re.MULTILINE)
SENTENCE_END = re.compile(r"(?<=[.!?;:])[)\"'`]*\s+(?=[A-Z`\"*(])")
PREDICATE = re.compile(r"[Rr]eturn(s|ing)? (True|False)\b|\b[Ww]hether\b")
PARENTHESIS = re.compile(r" \([^()]*\)")
COMMENT = re.compile(r"(?:(?<=\n)[ \t]*|  )# .*")
CODE_BLOCK = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
FIGURE_MARK = re.compile(r"<!--.*?-->", re.DOTALL)
LINK_TARGET = re.compile(r"\]\([^)]*\)")


@dataclass(frozen=True)
class Text:
    """A text or a name, with the place where it begins.

    Attributes:
        path: File, below the root of the project.
        line: Line of its first character.
        text: Its characters in the file, or the words of a name.
    """

    path: str
    line: int
    text: str = field(repr=False)


@dataclass(frozen=True)
class Banned:
    """A banned word or phrase.

    Attributes:
        use: Word to use instead.
        text: Regular expression of the phrase in texts; None if texts may use it.
        name: Regular expression of the words in names; None if names may use it.
        allowed: Regular expression of the contexts in which the field uses the word; None if there is none.
    """

    use: str
    text: re.Pattern[str] | None
    name: re.Pattern[str] | None
    allowed: re.Pattern[str] | None

    def find(self, text: str, pattern: re.Pattern[str] | None) -> Iterator[re.Match[str]]:
        """Yield the matches of a pattern outside of allowed contexts."""
        if pattern is None or not pattern.search(text):
            return
        contexts = [found.span() for found in self.allowed.finditer(text)] if self.allowed else []
        for found in pattern.finditer(text):
            if not any(start <= found.start() and found.end() <= end for start, end in contexts):
                yield found


def read_banned(path: Path = DATA) -> tuple[list[Banned], frozenset[str]]:
    """Return the banned words, and the words that begin no docstring."""
    content = yaml.safe_load(path.read_text())
    banned = [
        Banned(
            use=entry["use"],
            text=_pattern([entry["text"]]) if "text" in entry else None,
            name=re.compile(f"^(?:{entry['name']})$") if "name" in entry else None,
            allowed=_pattern([context["in"] for context in entry.get("allowed", [])]),
        )
        for entry in content["banned"]
    ]
    return banned, frozenset(content["first_words"])


def findings(house: House, data: Path = DATA) -> list[str]:
    """Return the faults of all texts and names, each with its place and what to write instead."""
    banned, first_words = read_banned(data)
    found: list[str] = []
    for source in house.product.values():
        texts, docstrings = texts_of(source)
        found += _find(banned, texts, "text")
        found += _find(banned, _names(source), "name")
        for text, function in docstrings:
            found += _docstring_faults(text, function, first_words)
    return found + _find(banned, (_masked(page) for page in pages()), "text")


def _find(banned: list[Banned], texts: Iterable[Text], kind: str) -> list[str]:
    found: list[str] = []
    patterns = [(entry.text if kind == "text" else entry.name) for entry in banned]
    any_of = re.compile("|".join(f"(?:{pattern.pattern})" for pattern in patterns if pattern), re.IGNORECASE)
    for text in texts:
        for entry in banned if any_of.search(text.text) else ():
            for match in entry.find(text.text, entry.text if kind == "text" else entry.name):
                line = text.line + text.text.count("\n", 0, match.start())
                phrase = re.sub(r"\s+", " ", match[0])
                where = "" if kind == "text" else f" in the name '{text.text}'"
                found.append(f"{text.path}:{line}: '{phrase}'{where}: use {entry.use}")
    return found


def _docstring_faults(text: Text, function: Function | None, first_words: frozenset[str]) -> Iterator[str]:
    first = text.text.split(maxsplit=1)[0].strip(",.:;").lower() if text.text.strip() else ""
    place = f"{text.path}:{text.line}"
    if first in first_words:
        yield f"{place}: docstring begins with '{first}': begin with a verb or a noun phrase"
    if function and _is_predicate(function) and not PREDICATE.search(text.text):
        yield f"{place}: predicate '{function.name}': begin with 'Return True if'"
    for line, sentence in _sentences(text):
        if (count := len(sentence.split())) > MOST_WORDS:
            yield f"{text.path}:{line}: sentence of {count} words: at most {MOST_WORDS}"


def _is_predicate(function: Function) -> bool:
    return isinstance(function.returns, ast.Name) and function.returns.id == "bool"


def _sentences(text: Text) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a docstring with their lines; entries, blank lines and deeper lines begin new ones."""
    begin, parts, indent = text.line, list[str](), 0
    paragraphs: list[tuple[int, str]] = []
    for number, line in enumerate([*text.text.splitlines(), ""], text.line):
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        if parts and (not stripped or ENTRY.match(line) or depth > indent + 4 or "  " in stripped):
            paragraphs.append((begin, " ".join(parts)))
            parts = []
        if stripped and "  " not in stripped:
            if not parts:
                begin, indent = number, depth
            parts.append(stripped)
    for line, paragraph in paragraphs:
        counted = PARENTHESIS.sub("", QUOTED.sub("Quoted", paragraph))
        for sentence in SENTENCE_END.split(counted):
            yield line, sentence


def texts_of(source: Source) -> tuple[list[Text], list[tuple[Text, Function | None]]]:
    """Return the texts of a file, and its docstrings with the functions that they describe."""
    docstrings: dict[int, tuple[Text, Function | None]] = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and (first := _docstring(node)):
            text = Text(source.path, first.lineno, str(first.value))
            docstrings[id(first)] = (text, node if isinstance(node, Function) else None)
    texts = [_masked(Text(text.path, text.line, ENTRY_NAME.sub(_blank, text.text))) for text, _ in docstrings.values()]
    texts += [
        _masked(Text(source.path, node.lineno, node.value))
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        if len(node.value.split()) >= FEWEST_WORDS
    ]
    for comment in COMMENT.finditer(source.text):
        texts.append(_masked(Text(source.path, source.text.count("\n", 0, comment.start()) + 1, comment[0])))
    return texts, list(docstrings.values())


def _docstring(node: ast.Module | ast.ClassDef | Function) -> ast.Constant | None:
    match node.body:
        case [ast.Expr(value=ast.Constant(value=str()) as constant), *_]:
            return constant
    return None


def _names(source: Source) -> Iterator[Text]:
    """Yield the words of each name: of the module and of its classes, functions, parameters and fields."""
    yield _name(source.path, 1, Path(source.path).stem)
    for node in ast.walk(source.tree):
        match node:
            case ast.ClassDef(name=name, lineno=line, body=body):
                yield _name(source.path, line, name)
                for member in body:
                    if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                        yield _name(source.path, member.lineno, member.target.id)
            case ast.FunctionDef(name=name, lineno=line) | ast.AsyncFunctionDef(name=name, lineno=line):
                yield _name(source.path, line, name)
            case ast.arg(arg=name, lineno=line):
                yield _name(source.path, line, name)


def _name(path: str, line: int, name: str) -> Text:
    return Text(path, line, " ".join(NAME_WORDS.findall(name)))


def pages() -> Iterator[Text]:
    """Yield the pages of the docs, outside of the laboratory's, without blocks of code."""
    for page in [
        PROJECT_ROOT / "README.md",
        PROJECT_ROOT / "CONTRIBUTING.md",
        *sorted(PROJECT_ROOT.glob("docs/**/*.md")),
    ]:
        path = page.relative_to(PROJECT_ROOT).as_posix()
        if not path.startswith("docs/lab/"):
            text = FIGURE_MARK.sub(_blank, CODE_BLOCK.sub(_blank, page.read_text()))
            yield Text(path, 1, text)


def _masked(text: Text) -> Text:
    return Text(text.path, text.line, QUOTED.sub(_blank, LINK_TARGET.sub(_blank, text.text)))


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", "·", found[0])


def _pattern(alternatives: list[str]) -> re.Pattern[str] | None:
    if not alternatives:
        return None
    joined = "|".join(alternatives).replace(" ", r"\s+")
    return re.compile(rf"(?<![\w-])(?:{joined})(?![\w-])", re.IGNORECASE)


def main() -> int:
    """Print every finding; return 1 if there is one."""
    found = findings(House.read())
    print("".join(f"{fault}\n" for fault in found), end="")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
