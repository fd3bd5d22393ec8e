"""`python -m tests.house.sample_texts SEED`: draw docstrings, messages and paragraphs of the docs for fresh eyes.

The same seed and sources give the same sample.
"""

import argparse
import ast
import random
import re
from collections.abc import Iterator

from tests.house.sources import House, Source
from tests.house.words import Text, pages, texts_of

DOCSTRINGS, MESSAGES, PARAGRAPHS = 100, 50, 30
FEWEST_WORDS = 5


def draw(house: House, seed: int) -> dict[str, list[Text]]:
    """Return a sample of each kind of text, sorted by place."""
    docstrings = [text for source in house.product.values() for text, _ in texts_of(source)[1]]
    messages = [text for source in house.product.values() for text in _messages(source)]
    paragraphs = [text for page in pages() for text in _paragraphs(page)]
    chance = random.Random(seed)
    kinds = (("docstrings", docstrings, DOCSTRINGS), ("messages", messages, MESSAGES))
    drawn = {kind: chance.sample(texts, min(count, len(texts))) for kind, texts, count in kinds}
    drawn["paragraphs"] = chance.sample(paragraphs, min(PARAGRAPHS, len(paragraphs)))
    return {kind: sorted(texts, key=lambda text: (text.path, text.line)) for kind, texts in drawn.items()}


def _messages(source: Source) -> Iterator[Text]:
    """Yield the texts of raised errors and of `help=` and `description=`, with `{}` for what a message fills in."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Raise(exc=ast.Call(args=[first, *_])) | ast.keyword(arg="help" | "description", value=first):
                parts = first.values if isinstance(first, ast.JoinedStr) else [first]
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
                if len(text.split()) >= FEWEST_WORDS:
                    yield Text(source.path, first.lineno, text)


def _paragraphs(page: Text) -> Iterator[Text]:
    for found in re.finditer(r"(?:^(?![#|<\s·-]).+\n)+", page.text, re.MULTILINE):
        if len(found[0].split()) >= FEWEST_WORDS:
            yield Text(page.path, page.line + page.text.count("\n", 0, found.start()), found[0].strip())


def main() -> None:
    """Print the sample."""
    parser = argparse.ArgumentParser(prog="python -m tests.house.sample_texts", description=__doc__)
    parser.add_argument("seed", type=int, help="seed of the sample")
    for kind, texts in draw(House.read(), parser.parse_args().seed).items():
        print(f"# {len(texts)} {kind}\n")
        print(*(f"{text.path}:{text.line}\n{text.text}\n" for text in texts), sep="\n")


if __name__ == "__main__":
    main()
