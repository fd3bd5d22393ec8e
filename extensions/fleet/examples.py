"""Example job file and cluster file, the default parameters of the flow `fleet` in Prefect's form."""

from pathlib import Path

EXAMPLES = {
    "jobs.yaml": """# Training jobs: seconds on each type of accelerator, and when each arrives.
jobs:
- {name: nightly, train_seconds: {V100: 3600, T4: 9000}, accelerators: 2}
- {name: large, arrival_seconds: 300, train_seconds: {V100: 7200}, accelerators: 8, network_share: 0.3}
- {name: small, arrival_seconds: 400, train_seconds: {V100: 600, T4: 900}}
""",
    "cluster.yaml": """# Machines: rack, type and number of accelerators of each.
machines:
- {name: v1, rack: a, accelerator: V100, count: 4}
- {name: v2, rack: a, accelerator: V100, count: 4}
- {name: t1, rack: b, accelerator: T4, count: 4}
""",
}


def write_examples(folder: Path) -> None:
    """Write the example files into a folder; existing files are not overwritten.

    Raises:
        OSError: A file cannot be written.
    """
    for name, text in EXAMPLES.items():
        if not (folder / name).exists():
            (folder / name).write_text(text, encoding="utf-8")
