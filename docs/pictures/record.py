"""Make the README's pictures from a real training: its terminal, as an animated SVG, and its report page, as a PNG.

    .venv/bin/python docs/pictures/record.py

The page of the report needs Chromium (`apt-get install chromium`).
"""

import os
import pty
import re
import shutil
import sys
import tempfile
import time
from html import escape
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import MONOKAI
from rich.text import Text

from shunter.flows.command.run_commands import write_report

FOLDER = Path(__file__).parent
COMMAND = ["shunter", "train", "--data", "ml-100k"]
COLUMNS, LINE_PIXELS, CHARACTER_PIXELS = 114, 18, 8.4  # of a monospace font of 14 pixels
MARGIN_PIXELS = 16
SPEED = 15  # seconds of the run in one second of the picture
FRAMES_PER_SECOND = 3
PAGE_WIDTH_PIXELS, PAGE_HEIGHT_PIXELS = 1100, 1195
# Erasing a line, one line up, the next line, a text with its colours; other codes change nothing that is shown.
PARTS = re.compile(r"(\x1b\[2K)|(\x1b\[1A)|(\n)|((?:[^\x1b\r\n]|\x1b\[[\d;]*m)+)|\r|\x1b(?:$|\[[?\d;]*(?:[A-Za-z]|$))")


def record(command: list[str]) -> list[tuple[float, bytes]]:
    """Run a command in a terminal of its own; return its output as seconds since the start, and bytes.

    Raises:
        RuntimeError: The command failed.
    """
    started, output = time.monotonic(), []
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(COLUMNS=str(COLUMNS), TERM="xterm-256color")
        os.execv(Path(sys.executable).with_name(command[0]), command)
    while True:
        try:
            read = os.read(terminal, 2**16)
        except OSError:  # the command has closed its terminal
            break
        output.append((time.monotonic() - started, read))
    if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise RuntimeError(f"`{' '.join(command)}` ended with exit code {status}: {output[-1:]}")
    return output


def frames(output: list[tuple[float, bytes]]) -> list[tuple[float, list[Text]]]:
    """Return what the terminal showed, line by line, and from which second of the picture on."""
    ticks: dict[int, bytes] = {}
    written = b""
    for seconds, read in output:
        written += read
        ticks[int(seconds / SPEED * FRAMES_PER_SECOND) + 1] = written
    return [(tick / FRAMES_PER_SECOND, screen(text.decode(errors="ignore"))) for tick, text in ticks.items()]


def screen(text: str) -> list[Text]:
    """Return the lines that a terminal shows after a text was written to it; long ones are wrapped."""
    lines, row = [""], 0
    for erased, up, ended, words in PARTS.findall(text):
        if erased:
            lines[row] = ""
        elif up:
            row = max(row - 1, 0)
        elif ended:
            row += 1
            lines += [""] * (row == len(lines))
        else:
            lines[row] += words
    coloured = map(Text.from_ansi, lines)
    return [part for line in coloured for part in line.divide(range(COLUMNS, len(line), COLUMNS))]


def svg(pictures: list[tuple[float, list[Text]]]) -> str:
    """Return the frames as one SVG; where nothing moves, it shows the last."""
    height = (len(pictures[-1][1]) + 1) * LINE_PIXELS + 2 * MARGIN_PIXELS
    width = round(COLUMNS * CHARACTER_PIXELS) + 2 * MARGIN_PIXELS
    prompt = Text("$ ", Style(color="green")) + Text(" ".join(COMMAND), Style(bold=True))
    groups = [f"<g>{_line(prompt, 0)}</g>"]
    ends = [begin for begin, _ in pictures[1:]]
    for (begin, lines), end in zip(pictures, [*ends, None], strict=True):
        texts = "".join(_line(line, row) for row, line in enumerate(lines, 1) if line)
        if end is None:
            groups.append(f'<g><set attributeName="visibility" to="hidden" dur="{begin:.2f}s"/>{texts}</g>')
        else:
            motion = f'<set attributeName="visibility" to="visible" begin="{begin:.2f}s" dur="{end - begin:.2f}s"/>'
            groups.append(f'<g visibility="hidden">{motion}{texts}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="monospace" '
        f'font-size="14" fill="{MONOKAI.foreground_color.hex}">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="{MONOKAI.background_color.hex}"/>\n'
        + "\n".join(groups)
        + "\n</svg>\n"
    )


def _line(text: Text, row: int) -> str:
    """Return a line of the terminal as an element of SVG."""
    spans, column, baseline = [], 0, MARGIN_PIXELS + LINE_PIXELS * (row + 0.75)
    for segment in text.render(Console(width=COLUMNS)):
        style = segment.style or Style()
        colour = f' fill="{style.color.get_truecolor(MONOKAI).hex}"' if style.color else ""
        weight = ' font-weight="bold"' if style.bold else ""
        x = MARGIN_PIXELS + column * CHARACTER_PIXELS
        column += len(segment.text)
        if segment.text.strip():
            width = len(segment.text) * CHARACTER_PIXELS
            spans.append(f'<tspan x="{x:.1f}" textLength="{width:.1f}"{colour}{weight}>{escape(segment.text)}</tspan>')
    return f'<text xml:space="preserve" y="{baseline:.1f}">{"".join(spans)}</text>'


def photograph(page: Path, picture: Path) -> None:
    """Take a picture of the upper part of an HTML page."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": PAGE_WIDTH_PIXELS, "height": PAGE_HEIGHT_PIXELS})
        tab.goto(page.as_uri())
        tab.wait_for_selector("figure svg")
        tab.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    (FOLDER / "train.svg").write_text(svg(frames(record(COMMAND))))
    with tempfile.TemporaryDirectory() as folder:
        _, page = write_report("latest", Path(folder))
        photograph(page, FOLDER / "report.png")
