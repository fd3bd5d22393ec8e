"""Energy of placements by power measured on the same accelerator, in this and past runs."""

from collections.abc import Sequence

from shunter.hardware.cost.learned_power import LearnedPower, MeasuredLoad, load_of, with_learned_joules
from shunter.hardware.cost.residual import StepObservation
from shunter.hardware.types import HardwareProfile, Workload
from shunter.planner.assessment import Candidate
from shunter.planner.history import History

MOST_MEASUREMENTS = 200  # newest measurements used; the fit's cost grows with their number cubed


def observed_watts(history: History) -> list[StepObservation]:
    """Return past steps with power; for training runs without measured power, mean power is joules over seconds.

    Args:
        history: Past runs.
    """
    measured = [step for step in history.unlimited_steps if step.mean_watts is not None]
    for run in history.runs:
        if run.kind == "member" and run.joules and run.seconds and len(run.steps) == 1:
            step = run.steps[0]
            if step.mean_watts is None:
                measured.append(step.model_copy(update={"mean_watts": run.joules / run.seconds}))
    return sorted(measured, key=lambda step: step.measured_at)[-MOST_MEASUREMENTS:]


def learned_power(profile: HardwareProfile, observations: Sequence[StepObservation]) -> LearnedPower:
    """Fit the power of an accelerator to measured steps on accelerators of the same model.

    Args:
        profile: Profile of the accelerator.
        observations: Steps of any accelerators; those without measured power are ignored.
    """
    return LearnedPower.fit(
        profile,
        [
            MeasuredLoad(
                watts=step.mean_watts,
                **dict(load_of(step.workload, step.placement, profile, step.measured_seconds)),
            )
            for step in observations
            if step.mean_watts is not None and step.accelerator_model == profile.accelerator.model
        ],
    )


def with_learned_watts(
    candidates: Sequence[Candidate],
    workload: Workload,
    profiles: Sequence[HardwareProfile],
    observations: Sequence[StepObservation],
) -> list[Candidate]:
    """Return the candidates with energy by learned power; unchanged if nothing was measured.

    Args:
        candidates: Candidates on any accelerators.
        workload: Demand of the training.
        profiles: Profiles of the accelerators with possible measurements.
        observations: Steps with their power, if measured.
    """
    powers = {profile.accelerator.name: learned_power(profile, observations) for profile in profiles}
    known = {profile.accelerator.name: profile for profile in profiles if powers[profile.accelerator.name].measurements}

    def learned(candidate: Candidate) -> Candidate:
        placement, prediction = candidate.placement, candidate.prediction
        if placement.accelerator not in known:
            return candidate
        load = load_of(workload, placement, known[placement.accelerator], prediction.step_seconds)
        joules = with_learned_joules(prediction, load, powers[placement.accelerator])
        return candidate.model_copy(update={"prediction": joules})

    return [learned(candidate) for candidate in candidates]


def power_notes(profiles: Sequence[HardwareProfile], observations: Sequence[StepObservation]) -> list[str]:
    """Return a note for each accelerator: the number of power measurements and their leave-one-out error.

    If the power of other accelerators is only estimated, a note says that the two kinds are not comparable.

    Args:
        profiles: Profiles of the accelerators to choose from.
        observations: Steps with their power, if measured.
    """
    notes, estimated = [], []
    for profile in profiles:
        power = learned_power(profile, observations)
        name = profile.accelerator.name
        if not power.measurements:
            estimated.append(name)
            continue
        error = power.leave_one_out_error()
        sure = "" if error is None else f", each predicted from the others within {error:.1%} (median)"
        notes.append(f"The power of {name} is learned from {power.measurements} measured training(s){sure}.")
    if notes and estimated:
        notes.append(
            f"That of {', '.join(estimated)} is estimated from a design power: energies of the two "
            "kinds are not comparable."
        )
    return notes
