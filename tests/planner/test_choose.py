"""Selection with real probes of the real model on this machine."""

from typing import ClassVar, Literal

import pytest

from shunter.engine.data.dataset import Dataset
from shunter.engine.probes.measurement import Measurement
from shunter.errors import InfeasibleError, RequestError
from shunter.hardware.types import HardwareProfile, Placement, Quantity
from shunter.markdown import plain
from shunter.models.registry import model_spec
from shunter.planner.candidates.offers import local_offers
from shunter.planner.candidates.placements import kind
from shunter.planner.choose import choose
from shunter.planner.decide import Decision, NoFeasiblePlacementError
from shunter.planner.describe import describe
from shunter.planner.history import History, data_key
from shunter.planner.job_size import JobSize
from shunter.planner.predict.correct import corrected
from shunter.planner.predict.predicted import predicted_candidates
from shunter.planner.predict.probes import PILOT_STEPS, PILOTS, next_to_probe, probe_steps
from shunter.planner.rank.ranking import rank
from shunter.planner.rank.totals import Terms
from shunter.requests import JobRequest, Limits, SelectRequest, TrainRequest, Weights
from shunter.tasks.select import select
from shunter.tracking.convention import data_params
from shunter.tracking.evidence import EvidenceKind
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile, make_workload
from tests.planner.measurements import at, measurement, past_run

ONE_EPOCH = JobSize(tuning_epochs=0, final_epochs=1, evaluation_share=0)
LEAST_TIME = Terms(limits=Limits(), weights=Weights.parse("time"), job=ONE_EPOCH)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=20_000)


@pytest.fixture(scope="module")
def profiles() -> list[HardwareProfile]:
    return [make_profile(cores=2)]


def test_the_chosen_placement_was_measured(dataset: Dataset, profiles: list[HardwareProfile]) -> None:
    decision = choose(dataset, TrainRequest(), profiles, probe_seconds=600)
    assert decision.prediction.step_seconds_source == "measured"
    assert decision.prediction.memory_source == "measured"
    assert decision.placement == decision.table[0].candidate.placement
    assert decision.workload == describe(dataset, model_spec())
    measured = [row for row in decision.table_rows() if row["step_source"] == "measured"]
    assert PILOTS <= len(measured) <= len(decision.table)
    assert min(row.hours for row in decision.table) == decision.hours


def test_limits_are_judged_on_measured_figures(dataset: Dataset, profiles: list[HardwareProfile]) -> None:
    request = TrainRequest(limits=Limits(max_memory_gib=0.001))
    with pytest.raises(InfeasibleError, match=r"0\.001"):
        choose(dataset, request, profiles, probe_seconds=1)


def test_where_nothing_here_keeps_the_limits_the_message_names_what_would(dataset: Dataset) -> None:
    slow = [make_profile(cores=1, matmul_flops_per_second={"fp32": Quantity(value=1e8, source="measured")})]
    hours = choose(dataset, TrainRequest(), slow, probe_seconds=0).hours
    limits = Limits(max_hours=0.5 * hours)
    for asked in (TrainRequest, SelectRequest):  # `select` and `--dry-run` say what `train` does
        shorter = choose(dataset, asked(limits=limits), slow, probe_seconds=0)
        assert shorter.hours == pytest.approx(limits.max_hours)
        assert [miss.limit for miss in shorter.shortened_by] == ["time"]
    with pytest.raises(NoFeasiblePlacementError) as raised:
        choose(dataset, SelectRequest(limits=Limits(max_hours=1e-4 * hours)), slow, probe_seconds=0)
    assert {option for relaxation in raised.value.relaxations for option in relaxation.bounds} == {"--max-hours"}


def test_an_unknown_model_family_is_refused_before_anything_is_measured(
    dataset: Dataset, profiles: list[HardwareProfile]
) -> None:
    with pytest.raises(RequestError, match="unheard"):
        choose(dataset, TrainRequest(model="unheard"), profiles)


class TestOrderOfProbes:
    def probed(self, truth: dict[Placement, float], profile: HardwareProfile) -> tuple[list[Placement], Placement]:
        """Placements in the order in which they are measured when `truth` times the estimate is what is found."""
        workload = make_workload(train_samples=80_000)
        candidates = predicted_candidates(workload, local_offers([profile], None))
        found: dict[Placement, Measurement | None] = {}
        while True:
            table = rank(corrected(candidates, found, workload), LEAST_TIME).table
            following = next_to_probe(table, found)
            if following is None:
                return list(found), table[0].candidate.placement
            estimate = next(
                candidate for candidate in candidates if candidate.placement == following.placement
            ).prediction
            found[following.placement] = measurement(
                estimate.step_seconds * truth.get(following.placement, 1.0),
                steps=probe_steps(following, found),
                memory_bytes=estimate.memory_bytes,
            )

    def test_every_kind_is_tried_once_before_the_leader_is_confirmed(self) -> None:
        order, chosen = self.probed({}, make_profile(cores=2))
        assert len({(placement.threads, placement.precision) for placement in order[:PILOTS]}) == 4
        assert chosen in order

    def test_a_promising_candidate_that_disappoints_loses_to_a_measured_one(self) -> None:
        profile = make_profile(cores=2)
        _, first_choice = self.probed({}, profile)
        order, chosen = self.probed({first_choice: 50.0}, profile)
        assert chosen != first_choice
        assert {first_choice, chosen} <= set(order)

    def test_the_leader_is_also_measured_at_its_smallest_batch(self) -> None:
        order, chosen = self.probed({}, make_profile(cores=2))
        alike = [placement.batch_size for placement in order if kind(placement) == kind(chosen)]
        assert {64, chosen.batch_size} <= set(alike)

    def test_what_does_not_fit_into_memory_is_never_tried(self) -> None:
        order, _ = self.probed({}, make_profile(cores=2, memory_bytes=2**20))
        assert order == []


def test_the_first_probe_of_a_kind_is_short_and_the_next_last_about_a_second() -> None:
    candidate = predicted_candidates(make_workload(), local_offers([make_profile(cores=1)], None))[0]
    assert probe_steps(candidate, {}) == PILOT_STEPS
    for step_seconds, steps in ((1e-4, 100), (0.05, 20), (3.0, PILOT_STEPS)):
        known = candidate.model_copy(
            update={"prediction": candidate.prediction.model_copy(update={"step_seconds": step_seconds})}
        )
        assert probe_steps(known, {candidate.placement: None}) == steps


class TestCorrection:
    def setup_method(self) -> None:
        self.workload = make_workload(train_samples=80_000)
        self.candidates = predicted_candidates(self.workload, local_offers([make_profile(cores=1)], None))
        self.first, *self.others = self.candidates

    def measurement(self, *, watts_measured: bool) -> Measurement:
        return measurement(
            2 * self.first.prediction.step_seconds,
            memory_bytes=self.first.prediction.memory_bytes + 10**6,
            mean_watts=50.0,
            watts_measured=watts_measured,
        )

    def test_neighbours_inherit_the_ratio_in_time_and_the_difference_in_memory(self) -> None:
        found = {self.first.placement: self.measurement(watts_measured=False)}
        _, *after_others = corrected(self.candidates, found, self.workload)
        for before, candidate in zip(self.others, after_others, strict=True):
            after = candidate.prediction
            assert after.step_seconds == pytest.approx(2 * before.prediction.step_seconds)
            assert after.epoch_seconds == pytest.approx(2 * before.prediction.epoch_seconds)
            assert after.memory_bytes == before.prediction.memory_bytes + 10**6
            assert (after.step_seconds_source, after.memory_source) == ("estimated", "estimated")

    def test_two_batch_sizes_tell_the_fixed_part_of_a_step_from_what_samples_add(self) -> None:
        def truth(placement: Placement) -> float:
            """Half a millisecond and, in bf16, half of what each sample adds in fp32."""
            return 0.5e-3 + placement.batch_size * (1e-6 if placement.precision == "bf16" else 2e-6)

        found = {
            candidate.placement: measurement(truth(candidate.placement))
            for candidate in self.candidates
            if (candidate.placement.precision, candidate.placement.batch_size)
            in {("fp32", 64), ("fp32", 512), ("bf16", 512)}
        }
        for candidate in corrected(self.candidates, found, self.workload):
            assert candidate.prediction.step_seconds == pytest.approx(truth(candidate.placement))

    def test_noise_never_makes_a_step_take_no_time(self) -> None:
        seconds = {("fp32", 64): 5e-3, ("fp32", 512): 4e-3, ("bf16", 512): 1e-3}
        found = {
            candidate.placement: measurement(found_seconds)
            for candidate in self.candidates
            if (found_seconds := seconds.get((candidate.placement.precision, candidate.placement.batch_size)))
        }
        for candidate in corrected(self.candidates, found, self.workload):
            assert candidate.prediction.step_seconds > 0
            assert candidate.prediction.epoch_seconds > 0

    @pytest.mark.parametrize(("watts_measured", "source"), [(True, "measured"), (False, "estimated")])
    def test_power_is_called_measured_only_where_a_counter_measured_it(self, watts_measured: bool, source: str) -> None:
        found = {self.first.placement: self.measurement(watts_measured=watts_measured)}
        after = corrected(self.candidates, found, self.workload)[0].prediction
        assert after.step_seconds_source == "measured"
        assert after.energy_source == source
        watts = 50.0 if watts_measured else 30.0  # The test profile's busy power.
        assert after.epoch_joules == pytest.approx(watts * after.epoch_seconds)

    def test_out_of_memory_is_remembered(self) -> None:
        after = corrected(self.candidates, {self.first.placement: None}, self.workload)
        assert [candidate.out_of_memory for candidate in after] == [True] + [False] * len(self.others)


def test_the_task_shows_the_decision_in_the_flow_run(
    dataset: Dataset, profiles: list[HardwareProfile], prefect_server: None
) -> None:
    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.runtime import flow_run

    @flow
    def selecting() -> tuple[Decision, str]:
        return select(dataset, TrainRequest(), profiles), flow_run.get_id() or ""

    decision, run_id = selecting()
    with get_client(sync_client=True) as client:
        everyones = client.read_artifacts()  # other tests' flows have shown theirs on the same server
    shown = {artifact.key: str(artifact.data) for artifact in everyones if str(artifact.flow_run_id) == run_id}
    assert decision.placement.label in shown["decision"]
    assert plain(decision.explanation) in shown["decision-reason"]
    assert shown["decision-reason"].count("needs the least time") == 1, "told once"


class NightlyResult(JobRequest, frozen=True):
    job_kind: ClassVar[Literal["train", "nightly"]] = "nightly"


def test_nights_learn_their_work_from_nights_and_trainings_from_trainings(
    dataset: Dataset, profiles: list[HardwareProfile]
) -> None:
    data = data_key(data_params(dataset))
    shares: dict[EvidenceKind, float] = {"train": 0.3, "nightly": 0.9}
    history = History(
        runs=tuple(
            past_run(at(64), run_id=of, kind=of, data=data, auc=0.75, seconds=100.0, work_share=share)
            for of, share in shares.items()
        )
    )
    requests: dict[EvidenceKind, JobRequest] = {
        "train": TrainRequest(model="dlrm"),
        "nightly": NightlyResult.model_validate({"model": "dlrm"}),
    }
    for of, request in requests.items():
        table = choose(dataset, request, profiles, probe_seconds=0, history=history).table
        share = next(row.candidate.work_share for row in table if row.candidate.placement.batch_size == 64)
        assert share == pytest.approx(shares[of], rel=0.2)
