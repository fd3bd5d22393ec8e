"""The learning curves of the replays, as a picture."""

from pathlib import Path
from typing import Any

LINES = {
    "shunter": {"color": "#1f4e9c", "linewidth": 2.6},
    "shunter --explore free": {"color": "#6fa3dd", "linewidth": 1.6},
    "shunter --explore never": {"color": "#6fa3dd", "linewidth": 1.6, "linestyle": ":"},
    "Zeus": {"color": "#c0392b", "linewidth": 2.0},
    "grid": {"color": "#8e6e53", "linewidth": 1.4},
    "random": {"color": "#999999", "linewidth": 1.4},
    "the user's default": {"color": "#444444", "linewidth": 1.4, "linestyle": "--"},
}
RULES = {"newest": "#c0392b", "cheapest": "#8e6e53"}
TARGET = 0.05
TICKS = (0, 2, 5, 10, 20, 50, 100, 200)


def draw(zeus: dict[str, Any], by_share: dict[Any, dict[str, Any]], path: Path) -> None:
    """Regret by recurrence for Zeus' trainings, and by the share held out for Gavel's table.

    Args:
        zeus: Result of `replay_zeus`.
        by_share: Results of `replay_gavel`, by the share held out.
        path: Path of the PNG to write.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5.2), layout="constrained")
    for name, style in LINES.items():
        if name not in zeus:
            continue
        curve = [100 * value for value in zeus[name]["regret_by_recurrence"]]
        left.plot(range(1, len(curve) + 1), curve, label=name, **style)
    left.set_yscale("symlog", linthresh=10)
    left.set_ylim(0)
    left.set_yticks(TICKS, [str(tick) for tick in TICKS])
    left.minorticks_off()
    left.set_title("Zeus' recorded trainings: mean regret of each recurrence, 54 games")
    left.set_xlabel("recurrence (one recorded run each)")
    left.set_ylabel("regret over the optimum, % (linear below 10)")
    _add_shares(right, by_share)
    for panel in (left, right):
        panel.axhline(100 * TARGET, color="#2e8b57", linewidth=1, linestyle="-.", label="5 %")
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8, framealpha=0.9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _add_shares(panel: Any, by_share: dict[Any, dict[str, Any]]) -> None:
    """Lines of the learner with the range over seeds, and of the rules that do not learn."""
    shares = [100 * float(share) for share in by_share]  # texts, if read from a result
    for objective, colour in (("time", "#1f4e9c"), ("cost", "#6fa3dd")):
        own = [result[objective]["shunter"]["regret"] for result in by_share.values()]
        panel.plot(
            shares, [100 * one["mean"] for one in own], color=colour, linewidth=2.4, label=f"shunter, {objective}"
        )
        low, high = ([100 * one[end] for one in own] for end in ("lowest", "highest"))
        panel.fill_between(shares, low, high, color=colour, alpha=0.15)
    first = next(iter(by_share.values()))  # rules look at nothing, so any share will do
    for (name, colour), objective in zip(RULES.items(), ("time", "cost"), strict=True):
        value = 100 * first[objective][name]["regret"]["mean"]
        panel.axhline(value, color=colour, linestyle="--", label=f"{name} type, {objective}")
    panel.set_ylim(0, 35)
    panel.set_title("Gavel's table: regret of the GPU type chosen, 83 jobs (band: all seeds)")
    panel.set_xlabel("share of the (job, GPU type) pairs held out, %")
    panel.set_ylabel("regret over the best type, %")
