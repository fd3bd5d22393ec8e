"""Attacks that the test suite makes on the real thing, each told in words and run once more."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.faults.command import ROOT

REGISTRY, SOURCES = "tests/tracking/registry", "tests/ingestion/sources"
# What is attacked, and the test that does it: its file, and the words that choose it there.
ATTACKS: dict[str, tuple[str, str]] = {
    "a page of a foreign origin, and a foreign Host, start a flow run": (
        "tests/operation/test_operation.py",
        "test_strangers_pages_and_names_are_refused_and_nobody_listens_to_other_machines",
    ),
    "who starts a run chooses its command, environment or folder": (
        "tests/operation/test_deployments.py",
        "test_who_starts_a_run_chooses_neither_command_nor_environment_nor_folder",
    ),
    "Prefect is asked without its password": (
        "tests/operation/test_ui.py",
        "test_prefect_shows_its_page_and_answers_nobody_without_its_password",
    ),
    "MLflow is asked without its password": (
        "tests/operation/test_ui.py",
        "test_mlflow_answers_nobody_without_its_password_and_no_foreign_host",
    ),
    "servers are opened to the network without passwords": (
        "tests/operation/test_exposure.py",
        "test_public_host_without_passwords_is_refused_with_what_to_set",
    ),
    "a client on the network joins the processes of a training": (
        "tests/engine/executors/test_contract.py",
        "test_nobody_listens_to_other_machines",
    ),
    "a file between processes is written by somebody else": (
        "tests/extensions/distributed/test_private_files.py",
        "test_a_file_that_others_can_write_or_own_is_refused",
    ),
    "a champion with code, pickles or another loader is loaded": (
        f"{REGISTRY}/test_trusted.py",
        "test_planted_champion_is_refused_and_runs_nothing",
    ),
    "weights that are a pickle, with a matching checksum": (
        f"{REGISTRY}/test_trusted.py",
        "test_weights_that_are_a_pickle_are_refused_even_with_their_checksum",
    ),
    "a vocabulary that is a pickle": (f"{REGISTRY}/test_trusted.py", "test_vocabulary_that_is_a_pickle_is_refused"),
    "weights and checksum exchanged together": (
        f"{REGISTRY}/test_signing.py",
        "test_weights_and_checksum_exchanged_together_are_refused",
    ),
    "an encoder exchanged": (f"{REGISTRY}/test_signing.py", "test_a_changed_encoder_is_refused"),
    "a new version without a signature": (
        f"{REGISTRY}/test_signing.py",
        "test_a_new_version_cannot_do_without_a_signature",
    ),
    "a model that another home has signed": (
        f"{REGISTRY}/test_signing.py",
        "test_a_model_of_another_home_is_refused_until_it_is_accepted",
    ),
    "a file exchanged between look and load": (
        f"{REGISTRY}/test_signing.py",
        "test_what_is_exchanged_after_the_look_is_not_loaded",
    ),
    "a Parquet file of kilobytes that decodes to gigabytes": (
        f"{SOURCES}/test_parquet.py",
        "test_a_small_file_does_not_take_more_than_the_limit",
    ),
    "a Parquet file that lies about its size": (
        f"{SOURCES}/test_parquet.py",
        "test_a_file_that_lies_about_its_size_is_not_believed",
    ),
    "a FIFO, a socket or a device as data": (f"{SOURCES}/test_parquet.py", "test_what_is_no_file_is_refused_at_once"),
    "a link that leaves the roots after the look": (
        f"{SOURCES}/test_parquet.py",
        "test_a_link_that_leaves_the_roots_after_the_look_is_refused",
    ),
    "a path of any shape out of the roots": (f"{SOURCES}/test_guard.py", "test_no_path_of_any_shape_escapes"),
    "a compressed text of more than is allowed": (f"{SOURCES}/test_guard.py", "test_bytes_are_counted_decompressed"),
    "a storage of the search outside the roots": (
        "tests/search/study/test_address.py",
        "test_somebody_else_names_nothing_outside_the_roots",
    ),
    "a password in a request": (
        "tests/search/study/test_address.py",
        "test_a_request_with_a_password_is_refused_before_it_is_kept",
    ),
    "a password found in parameters, tags or artifacts": (
        "tests/tracking/test_secrets_kept.py",
        "test_no_secret_is_in_any_parameter_tag_or_artifact",
    ),
    "a link, a picture or a tag in a text that is shown": (
        "tests/shunter/test_markdown.py",
        "test_no_text_makes_a_link_a_picture_or_a_tag",
    ),
}


@dataclass
class Attack:
    """One attack.

    Attributes:
        attack: In words.
        command: The command that makes it.
        expected: What was expected.
        came: What came; `refused` where that is what came.
    """

    attack: str
    command: str
    expected: str = "refused"
    came: str = "refused"

    @property
    def is_refused(self) -> bool:
        """Whether it came to nothing."""
        return self.came == self.expected


def attacks(names: Sequence[str]) -> list[Attack]:
    """Make these, in one run of the suite; a test that is skipped, or not found, has refused nothing."""
    tests = [ATTACKS[name] for name in names]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = " or ".join(test for _, test in tests)
        files = sorted({file for file, _ in tests})
        command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *files, "-k", words)
        subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, check=False)
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    return [_judged(name, cases) for name in names]


def _judged(name: str, cases: Sequence[ElementTree.Element]) -> Attack:
    file, test = ATTACKS[name]
    made = Attack(name, f"python -m pytest {file} -k {test}")
    own = [case for case in cases if case.get("name", "").partition("[")[0] == test]
    others = {child.tag for case in own for child in case} & {"failure", "error", "skipped"}
    if others == {"skipped"} and any(case.find("skipped") is None for case in own):
        return made  # by those of its cases that are meant for it
    if not own or others:
        made.came = " and ".join(sorted(others)) or "no such test"
    return made
