"""Draw each `*.mmd` of this folder as SVG by mermaid in Chromium: `python docs/figures/draw.py mermaid.min.js`.

The file is that of the npm package `mermaid`, version 11. The pictures are committed, so that the site needs neither.
"""

import re
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

OPTIONS = {
    "theme": "neutral",
    "htmlLabels": False,
    "flowchart": {"htmlLabels": False, "nodeSpacing": 25, "rankSpacing": 30, "padding": 10},
    "startOnLoad": False,
}
SCALE = 0.8  # of the size that mermaid gives a figure


def main() -> None:
    """Draw the figures."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.add_script_tag(path=sys.argv[1])
        page.evaluate("options => mermaid.initialize(options)", OPTIONS)
        for source in sorted(Path(__file__).parent.glob("*.mmd")):
            draw = "async ([name, text]) => (await mermaid.render(name, text)).svg"
            svg = page.evaluate(draw, [source.stem, source.read_text()])
            width = SCALE * float(re.findall(r'viewBox="\S+ \S+ (\S+) ', svg)[0])
            svg = svg.replace('width="100%"', f'width="{width:.0f}"', 1)
            source.with_suffix(".svg").write_text(svg.replace('style="', 'style="background-color: white; ', 1) + "\n")
        browser.close()


if __name__ == "__main__":
    main()
