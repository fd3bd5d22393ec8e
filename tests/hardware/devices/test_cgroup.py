"""Limits of control groups, on copies of the kernel's files."""

from pathlib import Path

import pytest

from shunter.hardware.devices.cgroup import cpu_quota, memory_limit_bytes


def files(root: Path, contents: dict[str, str]) -> Path:
    for name, text in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("contents", "cores", "memory_bytes"),
    [
        pytest.param({}, None, None, id="no control groups at all"),
        pytest.param({"proc/self/cgroup": "0::/\n"}, None, None, id="a group without limits"),
        pytest.param(
            {
                "proc/self/cgroup": "0::/app\n",
                "sys/fs/cgroup/app/cpu.max": "max 100000\n",
                "sys/fs/cgroup/app/memory.max": "max\n",
            },
            None,
            None,
            id="version 2, limits switched off",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/app\n",
                "sys/fs/cgroup/app/cpu.max": "250000 100000\n",
                "sys/fs/cgroup/app/memory.max": "1073741824\n",
            },
            2.5,
            2**30,
            id="version 2",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/pod/app\n",
                "sys/fs/cgroup/pod/cpu.max": "100000 100000\n",
                "sys/fs/cgroup/pod/app/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/pod/memory.max": "1000\n",
                "sys/fs/cgroup/pod/app/memory.max": "2000\n",
            },
            1.0,
            1000,
            id="the group around is tighter",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"},
            0.5,
            None,
            id="a container sees its own group as the root",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "4096\n",
            },
            3.0,
            4096,
            id="version 1",
        ),
    ],
)
def test_limits(tmp_path: Path, contents: dict[str, str], cores: float | None, memory_bytes: int | None) -> None:
    root = files(tmp_path, contents)
    assert cpu_quota(root) == cores
    assert memory_limit_bytes(root) == memory_bytes
