"""The load: clients that each send a request, wait for its answer, and send the next; a process of its own.

`python -m benchmarks.serving.load URL BODIES CLIENTS SECONDS` prints one JSON object. It speaks just as much HTTP as it
must, so that it takes little of the processor that the server needs.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

WARMUP_SHARE = 0.2


async def client(url: SplitResult, requests: Iterable[bytes], end: float) -> list[tuple[float, float]]:
    """Ask until the time is over; when each answer came and how long it took, in seconds.

    Raises:
        RuntimeError: An answer holds no scores.
    """
    taken: list[tuple[float, float]] = []
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    for request in requests:
        begin = time.perf_counter()
        if begin >= end:
            break
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        body = await reader.readexactly(int(length.partition(b":")[2]))
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(f"{head.decode()}{body.decode()}")
        now = time.perf_counter()
        taken.append((now, now - begin))
    writer.close()
    return taken


async def load(url: SplitResult, bodies: list[str], clients: int, seconds: float) -> dict[str, float]:
    """Load a server; figures of what came after the warm-up."""
    head = f"POST {url.path} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
    requests = [f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode() for body in bodies]
    begin = time.perf_counter()
    starts = [place * max(len(requests) // clients, 1) % len(requests) for place in range(clients)]
    asking = [client(url, cycle(requests[start:] + requests[:start]), begin + seconds) for start in starts]
    warm = begin + WARMUP_SHARE * seconds
    every = await asyncio.gather(*asking)
    found = sorted(latency for taken in every for when, latency in taken if when >= warm)
    return {
        "requests_per_second": len(found) / ((1 - WARMUP_SHARE) * seconds),
        "p50_milliseconds": 1e3 * found[len(found) // 2],
        "p99_milliseconds": 1e3 * found[int(0.99 * len(found))],
        "requests": len(found),
        "asked": sum(map(len, every)),
    }


if __name__ == "__main__":
    url, bodies, clients, seconds = sys.argv[1:]
    found = load(urlsplit(url), json.loads(Path(bodies).read_text()), int(clients), float(seconds))
    print(json.dumps(asyncio.run(found)))
