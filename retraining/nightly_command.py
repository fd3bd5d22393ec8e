"""The command `shunter nightly`."""

from typing import Any

from shunter.errors import DegradedModelError
from shunter.flows.command.flow_commands import AS_JSON
from shunter.flows.command.options import requested, with_options
from shunter.flows.command.start import start
from shunter.flows.command.terminal import AGAIN, one_sentence_errors, print_json, print_line, print_run
from shunter.retraining.nightly_request import NightlyRequest
from shunter.retraining.nightly_runs import NightlyResult


@with_options(NightlyRequest, AS_JSON)
def nightly(**options: Any) -> None:
    """Learn the newest days; promote only a better champion."""
    as_json = options.pop("as_json")
    with one_sentence_errors(AGAIN, as_json=as_json):
        request = requested(NightlyRequest, options)
        night = start("shunter.retraining.nightly_flow:nightly", request)
        if as_json:
            from shunter.flows.command.summary_json import defined

            print_json(defined(night.model_dump(mode="json")))
        else:
            for sentence in (*(finding.words for finding in night.findings), night.reason):
                print_line(sentence)
            print_run(night.run_id)
        check_degradation(night)


def check_degradation(night: NightlyResult) -> None:
    """Raise `DegradedModelError` if a degraded champion stays in use, so that the command ends with its exit code."""
    for finding in night.findings:
        if night.is_degraded and finding.kind == "degraded":
            raise DegradedModelError(finding.words)
