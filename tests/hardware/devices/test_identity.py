"""Equal machines are told apart, containers of one machine are not, and nothing can be read from an id."""

from pathlib import Path

import pytest

from shunter.hardware.devices.identity import machine_id


def install(root: Path, machine: str = "a" * 32, address: str = "52:54:00:12:34:56") -> Path:
    """A machine's files as far as they identify it."""
    write(root / "etc/machine-id", machine)
    write(root / "proc/sys/kernel/random/boot_id", "boot-1")
    card = root / "sys/class/net/eth0"
    write(card / "address", address)
    write(card / "type", "1")
    pci = root / "sys/devices/pci0000:00/0000:00:03.0"
    pci.mkdir(parents=True)
    (card / "device").symlink_to(pci)
    return root


def contain(root: Path, host_uuid: str = "", boot: str = "boot-1", disk: str = "") -> Path:
    """A container's files: the machine-id of its image, a virtual card, and the host's kernel."""
    write(root / ".dockerenv", "")
    write(root / "etc/machine-id", "f" * 31 + "e")
    write(root / "etc/hostname", root.name)
    write(root / "sys/class/net/eth0/address", "02:42:ac:11:00:02")
    write(root / "proc/sys/kernel/random/boot_id", boot)
    if host_uuid:
        write(root / "sys/class/dmi/id/product_uuid", host_uuid)
    if disk:
        write(root / "sys/class/nvme/nvme0/serial", disk)
    return root


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def test_this_machine_stays_itself_and_keeps_its_secret() -> None:
    assert machine_id() == machine_id()
    assert len(machine_id()) == 16
    try:
        installation = Path("/etc/machine-id").read_text().strip()
    except OSError:
        return
    assert machine_id() not in installation


def test_a_boot_changes_nothing_and_another_installation_or_card_does(tmp_path: Path) -> None:
    first = machine_id(install(tmp_path / "first"))
    write(tmp_path / "first/proc/sys/kernel/random/boot_id", "boot-2")
    assert machine_id(tmp_path / "first") == first
    assert machine_id(install(tmp_path / "other", machine="b" * 32)) != first
    assert machine_id(install(tmp_path / "cloned", address="52:54:00:99:99:99")) != first, "an image has one machine-id"


def test_cards_that_come_and_go_do_not_count(tmp_path: Path) -> None:
    root = install(tmp_path / "machine")
    first = machine_id(root)
    write(root / "sys/class/net/docker0/address", "02:42:01:02:03:04")
    for name, folder in (("usb0", "pci0000:00/usb1/1-1"), ("wlan0", "pci0000:00/0000:00:05.0")):
        (root / "sys/devices" / folder).mkdir(parents=True)
        write(root / f"sys/class/net/{name}/address", "aa:bb:cc:dd:ee:ff")
        write(root / f"sys/class/net/{name}/type", "1")
        (root / f"sys/class/net/{name}/device").symlink_to(root / "sys/devices" / folder)
    (root / "sys/class/net/wlan0/wireless").mkdir()
    assert machine_id(root) == first


@pytest.mark.parametrize(
    ("same", "other"),
    [
        ({"host_uuid": "4c4c4544-0001"}, {"host_uuid": "4c4c4544-0002"}),
        ({"disk": "S5GXNX0R1"}, {"disk": "S5GXNX0R2"}),
        ({"boot": "boot-1"}, {"boot": "boot-9"}),
        ({"host_uuid": "00000000-0000-0000-0000-000000000000", "disk": "one"}, {"host_uuid": "None", "disk": "two"}),
    ],
)
def test_containers_of_one_image_are_told_apart_by_their_machines(
    tmp_path: Path, same: dict[str, str], other: dict[str, str]
) -> None:
    first, second = contain(tmp_path / "first", **same), contain(tmp_path / "second", **same)
    elsewhere = contain(tmp_path / "elsewhere", **other)
    assert machine_id(first) == machine_id(second)
    assert machine_id(first) != machine_id(elsewhere)
