"""Serve a registered model over HTTP and ask it for scores. Run `own_csv.py` first, which registers one.

python examples/serving.py shop
"""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

from shop_log import click_log

PORT = 8090

if __name__ == "__main__":
    program = str(Path(sys.executable).with_name("shunter"))
    server = subprocess.Popen(
        [program, "serve", "--model", sys.argv[1], "--port", str(PORT)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        while (line := server.stdout.readline()) and "/invocations" not in line:
            pass  # it prints its address when it answers
        rows = click_log(rows=3, seed=2).drop(columns=["click", "time"]).to_dict("records")
        request = urllib.request.Request(
            f"http://127.0.0.1:{PORT}/invocations",
            json.dumps({"dataframe_records": rows}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            for row, score in zip(rows, json.load(answer)["predictions"], strict=True):
                print(f"{row['user']} {row['item']}: {score:.3f}")
    finally:
        server.terminate()
        server.wait()
