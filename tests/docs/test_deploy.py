"""The templates for containers, read as files, for none runs here: who they run as, what they may, who reaches them."""

import configparser
import re
from typing import Any
from urllib.parse import urlparse

import pytest
import yaml

from shunter.settings import PROJECT_ROOT

FOLDER = PROJECT_ROOT / "docs" / "deploy"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
DEPLOYMENT, POLICY = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
POD = DEPLOYMENT["spec"]["template"]["spec"]
(USER,) = re.findall(r"^USER (\d+)$", DOCKERFILE, re.MULTILINE)
SECRET = re.compile(r"PASSWORD|SECRET|AUTH_STRING")


@pytest.mark.parametrize("service", COMPOSE["services"].values(), ids=COMPOSE["services"])
def test_every_container_is_a_user_without_rights_and_writes_to_its_volumes_alone(service: dict[str, Any]) -> None:
    assert service["user"] == USER != "0"
    assert service["read_only"]
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service
    assert service["mem_limit"]
    assert service["pids_limit"]
    for volume in service["volumes"]:
        name, path, *mode = volume.split(":")
        assert path == "/data" or mode == ["ro"], "the user owns /data alone"
        assert name in COMPOSE["volumes"] or mode == ["ro"]


def test_the_image_makes_its_user_the_owner_of_what_is_written() -> None:
    assert f"useradd --uid {USER} " in DOCKERFILE
    assert re.search(r"install -d -o shunter -g shunter -m 0700 /data", DOCKERFILE)
    assert DOCKERFILE.index("make setup") < DOCKERFILE.index(f"USER {USER}"), "the program is root's, for it to read"
    for name in ("HOME", "SHUNTER_HOME", "PREFECT_HOME"):
        assert re.search(rf"[ ]{name}=/data", DOCKERFILE), name


def test_servers_are_published_on_this_machine_alone_and_the_worker_reaches_nothing_but_them() -> None:
    for name, service in COMPOSE["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert set(service["networks"]) <= set(COMPOSE["networks"])
    assert COMPOSE["services"]["worker"]["networks"] == ["inside"]
    assert COMPOSE["networks"]["inside"] == {"internal": True}


def test_passwords_are_asked_for_and_stand_in_no_template() -> None:
    secrets = [
        (key, value)
        for service in COMPOSE["services"].values()
        for key, value in service["environment"].items()
        if SECRET.search(key)
    ]
    assert {key for key, _ in secrets} >= {"PREFECT_SERVER_API_AUTH_STRING", "MLFLOW_AUTH_ADMIN_PASSWORD"}
    assert all(re.fullmatch(r"\$\{[A-Z_]+:\?.+\}", value) for _, value in secrets)
    for entry in POD["containers"][0]["env"]:
        if SECRET.search(entry["name"]):
            assert set(entry) == {"name", "valueFrom"}
            assert "secretKeyRef" in entry["valueFrom"]


def test_mlflow_asks_for_a_password_and_grants_nothing_unasked() -> None:
    mlflow = COMPOSE["services"]["mlflow"]
    assert mlflow["command"][mlflow["command"].index("--app-name") + 1] == "basic-auth"
    (mounted,) = mlflow["configs"]
    assert mlflow["environment"]["MLFLOW_AUTH_CONFIG_PATH"] == mounted["target"]
    parser = configparser.ConfigParser()
    parser.read_string(COMPOSE["configs"][mounted["source"]]["content"])
    assert parser["mlflow"]["default_permission"] == "NO_PERMISSIONS"
    assert parser["mlflow"]["database_uri"].startswith("sqlite:////data/")
    assert "admin_password" not in parser["mlflow"]
    worker = COMPOSE["services"]["worker"]["environment"]
    assert worker["MLFLOW_TRACKING_USERNAME"] == parser["mlflow"]["admin_username"]
    assert worker["MLFLOW_TRACKING_PASSWORD"] == mlflow["environment"]["MLFLOW_AUTH_ADMIN_PASSWORD"]


def test_pods_are_confined_and_reach_the_two_servers_and_the_name_service() -> None:
    own, container = POD["securityContext"], POD["containers"][0]
    assert own["runAsNonRoot"]
    assert str(own["runAsUser"]) == USER
    assert own["seccompProfile"] == {"type": "RuntimeDefault"}
    assert POD["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/data", "/tmp"}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in POD["volumes"]}
    assert container["resources"]["limits"]["memory"]
    assert POLICY["spec"]["podSelector"] == DEPLOYMENT["spec"]["selector"]
    assert POLICY["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert POLICY["spec"]["ingress"] == []
    environment = {entry["name"]: entry.get("value") for entry in container["env"]}
    allowed = {
        (rule["to"][0]["podSelector"]["matchLabels"]["app"], rule["ports"][0]["port"])
        for rule in POLICY["spec"]["egress"]
        if "to" in rule
    }
    addresses = [urlparse(environment[name]) for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI")]
    assert allowed == {(address.hostname, address.port) for address in addresses}
