"""Profiles are measured once a day, and anew whenever the kept ones do not belong here any more."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shunter.engine.profiling.profiles import ProfileKey, local_profiles, read_profiles, write_profiles
from tests.engine.profiling.short_profiles import hurry
from tests.hardware.profiles import make_profile

KEY = ProfileKey(host="0123456789abcdef", torch="2.0", format=1)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "profiles" / "host.json"
    write_profiles(path, KEY, [make_profile()])
    return path


def test_what_was_written_is_read_back(kept: Path) -> None:
    assert read_profiles(kept, KEY) == [make_profile()]
    assert [path.name for path in kept.parent.iterdir()] == ["host.json"], "no partial file is left"


@pytest.mark.parametrize(
    ("hours", "usable"),
    [(0, True), (23, True), (25, False), (-1, False)],
    ids=["now", "today", "old", "clock was wrong"],
)
def test_profiles_last_a_day(kept: Path, hours: float, usable: bool) -> None:
    later = datetime.now(UTC) + timedelta(hours=hours)
    assert (read_profiles(kept, KEY, now=later) is not None) is usable


@pytest.mark.parametrize("change", [{"host": "other"}, {"torch": "2.1"}, {"format": 2}])
def test_another_machine_or_library_needs_its_own_figures(kept: Path, change: dict[str, object]) -> None:
    assert read_profiles(kept, KEY.model_copy(update=change)) is None


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"key": 1}', b"[]"])
def test_a_file_that_cannot_be_understood_counts_as_absent_and_is_named(
    kept: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    kept.write_bytes(content)
    assert read_profiles(kept, KEY) is None
    assert str(kept) in caplog.text


def test_an_absent_file_is_no_reason_to_complain(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_profiles(tmp_path / "none.json", KEY) is None
    assert caplog.text == ""


def test_this_machine_is_measured_once_and_again_after_a_corruption(
    furnished_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    (path,) = (furnished_home / "profiles").glob("*.json")
    first = local_profiles()
    assert first == read_profiles(path, ProfileKey.of(first[0].host)), "the file is read"
    path.write_text(path.read_text()[:100])
    again = local_profiles()
    assert [one.accelerator for one in again] == [one.accelerator for one in first]
    assert read_profiles(path, ProfileKey.of(again[0].host)) == again
    assert again[0].gather_curve
    assert again[0].scatter_curve
    assert again[0].disk is None, "that takes longer, and waits until it is asked for"


def test_what_is_solved_waits_for_no_measurement_of_steps_and_what_is_trained_gets_it_later(
    furnished_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    (path,) = (furnished_home / "profiles").glob("*.json")
    path.unlink()
    (rates, *_) = local_profiles(training_costs=False)
    assert rates.matmul_curve
    assert (rates.step_costs, rates.gather_curve, rates.scatter_curve) == ((), (), ())
    assert local_profiles(training_costs=False)[0] == rates, "kept as any profile"
    (whole, *_) = local_profiles()
    assert whole.step_costs
    assert whole.gather_curve
    measured_now = {"step_costs", "gather_curve", "scatter_curve", "cache_bytes"}
    assert whole.model_dump(exclude=measured_now) == rates.model_dump(exclude=measured_now), "measured once"
    assert local_profiles(training_costs=False)[0] == whole, "what is known is used"


@pytest.mark.usefixtures("furnished_home")
def test_equal_machines_that_share_a_folder_keep_their_own_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    first = local_profiles()
    monkeypatch.setattr("shunter.engine.profiling.profiles.machine_id", lambda: "another")
    found = local_profiles()
    assert {profile.machine for profile in found} == {"another"}
    assert [profile.model_copy(update={"machine": ""}) for profile in found] == [
        profile.model_copy(update={"machine": ""}) for profile in first
    ]
