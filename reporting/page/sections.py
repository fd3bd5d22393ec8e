"""Sections of the report page by name, in the order in which the page shows them.

A section is a function that takes a run with its children (`RunTree`) and returns the values of its template, or an
empty value if the run has no such section. Its template is the file `NAME.html.j2` next to the function's module.

Capabilities:
    title: Title in the table of contents; a section without a title is not listed there.
    anchor: Id of the heading; the name of the section if absent.
    artifact: Artifact that the run must have; without it, the section's module is not imported.
    profile_artifact: Artifact that the newest profile of the same data and model must have; without it, the section is
        left out.
    missing: Note on a page that lacks the section.
"""

from shunter.registry import Entry, Registry

REPORT_SECTIONS = Registry(
    "report section",
    {
        "night": Entry(
            target="shunter.retraining.night_section:night",
            capabilities={"title": "Night", "artifact": "config/night.json"},
        ),
        "decision": Entry(target="shunter.reporting.page.view:decision", capabilities={"title": "Placement"}),
        "prediction": Entry(
            target="shunter.reporting.page.view:prediction", capabilities={"title": "Predicted and measured"}
        ),
        "quality": Entry(
            target="shunter.reporting.page.figures:trained_chart", capabilities={"title": "Quality against cost"}
        ),
        "curves": Entry(target="shunter.reporting.page.figures:curves_chart", capabilities={"title": "Curves"}),
        "results": Entry(target="shunter.reporting.page.view:results", capabilities={"title": "Results"}),
        "ranking": Entry(
            target="shunter.reporting.page.ranking:ranking_section",
            capabilities={"title": "Ranking", "artifact": "ranking.json"},
        ),
        "promotion": Entry(target="shunter.reporting.page.view:promotion", capabilities={"title": "Registered"}),
        "popularity": Entry(
            target="shunter.reporting.page.view:popularity", capabilities={"title": "Baselines", "anchor": "baselines"}
        ),
        "baselines": Entry(target="shunter.reporting.page.view:baselines", capabilities={"title": "Baselines"}),
        "ensemble": Entry(target="shunter.reporting.page.view:ensemble", capabilities={"title": "Ensemble"}),
        "plan": Entry(
            target="shunter.extensions.distributed.plan_section:plan_section",
            capabilities={"title": "Plan of the tables", "artifact": "plan.json"},
        ),
        "time": Entry(target="shunter.reporting.page.time:time_section", capabilities={"title": "Time"}),
        "stalls": Entry(
            target="shunter.extensions.stalls.section:stall_section",
            capabilities={
                "title": "Time",
                "anchor": "time",
                "profile_artifact": "config/stalls.json",
                "missing": "a stall breakdown (`shunter profile --data` of this data and model measures one)",
            },
            needs="distributed",
        ),
        "energy": Entry(target="shunter.reporting.page.view:energy", capabilities={"title": "Energy"}),
        "features": Entry(
            target="shunter.reporting.page.features:features_section",
            capabilities={
                "title": "Features",
                "artifact": "features.json",
                "missing": "statistics of the features (the run was made before they were kept)",
            },
        ),
        "card": Entry(
            target="shunter.reporting.page.view:card_section",
            capabilities={"title": "Model card", "artifact": "model_card/model_card.md", "missing": "a model card"},
        ),
        "settings": Entry(target="shunter.reporting.page.view:settings", capabilities={"title": "Settings"}),
    },
    group="shunter.report_sections",
)
