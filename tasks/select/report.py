"""Shows a decision to whoever looks at the flow run: a table of all candidates, and the reason in words."""

from tasks.select.decide import Decision

TABLE_KEY = "decision"
REASON_KEY = "decision-reason"


def publish(decision: Decision) -> None:
    """Store the table and the reason as Prefect artifacts of the running flow; outside of a flow do nothing."""
    from prefect.artifacts import create_markdown_artifact, create_table_artifact
    from prefect.runtime import flow_run

    if flow_run.id is None:
        return
    create_table_artifact(table=decision.table_rows(), key=TABLE_KEY, description=decision.reason)
    create_markdown_artifact(markdown=as_markdown(decision), key=REASON_KEY)


def as_markdown(decision: Decision) -> str:
    """The reason, the totals of the chosen placement, and which limit excluded how many candidates."""
    prediction = decision.prediction
    excluded = [one for one in decision.table if one.excluded_by]
    lines = [
        f"# {decision.placement.label}",
        "",
        decision.reason,
        "",
        "| | expected for the whole job | figure |",
        "|---|---|---|",
        f"| time | {decision.hours:.4g} h | step {prediction.step_seconds_source} |",
        f"| energy | {_or_unknown(decision.kwh)} kWh | power {prediction.energy_source} |",
        f"| cost | {_or_unknown(decision.cost)} | from time and price |",
        f"| memory | {decision.memory_gib:.3g} GiB | {prediction.memory_source} |",
        "",
        f"The job is {decision.job.epochs:.3g} epochs, an upper estimate: {decision.job.tuning_epochs:g} of tuning and "
        f"{decision.job.final_epochs:g} of final training, validation added.",
    ]
    if excluded:
        lines += ["", f"Excluded: {len(excluded)} of {len(decision.table)}.", ""]
        lines += [
            f"- {one.candidate.placement.label}: {', '.join(miss.words for miss in one.excluded_by)}"
            for one in excluded
        ]
    return "\n".join(lines)


def _or_unknown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
