"""What `orchestrate tune check` costs on many hosts, beside ansible-core on the same hosts in one go.

    python -m tests.benchmarks.tune_check [--hosts 100] [--ansible PATH/TO/bin/ansible-playbook]

Hosts are sshd processes on loopback ports, each with keys of its own; all stand for this one machine, and
every check reads its real kernel. Both sides read the same things and judge them: huge pages, schedulers,
sysctls, numad, tuned, and the files that make them last. Ansible is installed into a virtual environment of
its own unless one is named; it runs with 50 forks, pipelining, no gathering of facts and new connections in
each lap. Its playbook is written three ways: a task for each kind of thing, one shell task, and one `raw`
task, which needs no Python on the host. Laps take turns, so that all meet the same load, and medians count.
Figures, no assertions: a shared machine has no right or wrong here, and only figures of one run can be
compared.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from orchestrator.view.text import table
from tests.integration.restarting import PROGRAM
from tests.integration.sshd import Sshd, make_key
from tests.lab.distributions import cache_folder

FORKS: Final = 50
AIM: Final = {"b": 5.0, "c": 2.0}
CPU_AIM: Final = 4.0
"""Times the CPU of (a), for (c)."""
DRIFT: Final = 3
SECONDS: Final = 900.0
ANSIBLE: Final = "ansible-core"
NAMES: Final = {
    "a": "orchestrate tune check",
    "b": "ansible, a task for each kind of thing",
    "c": "ansible, one shell task",
    "d": "ansible, one raw task",
}
VALUES: Final = (
    "/sys/kernel/mm/transparent_hugepage/enabled /sys/kernel/mm/transparent_hugepage/defrag "
    "/sys/kernel/mm/transparent_hugepage/khugepaged/defrag /proc/sys/vm/zone_reclaim_mode "
    "/proc/sys/vm/swappiness /proc/sys/vm/max_map_count /proc/sys/vm/min_free_kbytes "
    "/proc/sys/net/ipv4/tcp_retries2 /proc/cmdline"
)
DEVICES: Final = (
    'disk=$(lsblk -nso NAME,TYPE "$(findmnt -nvo SOURCE -T /var/lib)" | awk \'$2 == "disk" {print $1}\'); '
    "grep -H . /sys/block/${disk:-vda}/queue/scheduler /sys/block/${disk:-vda}/queue/rotational "
    "/sys/block/${disk:-vda}/queue/read_ahead_kb /sys/block/${disk:-vda}/queue/nr_requests"
)
FILES: Final = (
    "grep -sH . /etc/sysctl.conf /etc/sysctl.d/*.conf /usr/lib/sysctl.d/*.conf /etc/tmpfiles.d/*.conf "
    "/etc/udev/rules.d/*.rules /etc/tuned/active_profile /etc/tuned/*/tuned.conf /etc/rc.local || true"
)
SERVICES: Final = "systemctl show numad tuned --property Id,LoadState,ActiveState,UnitFileState 2>&1 || true"
TUNED: Final = "tuned-adm active 2>&1 || true"
ONE: Final = f"grep -sH . {VALUES}; {DEVICES}; {FILES}; {SERVICES}; {TUNED}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lap:
    """One check of all hosts, by one of the ways.

    Attributes:
        seconds: from the call to its end, the start of the interpreter included.
        cpu: seconds of CPU of the controlling side alone; the hosts here take theirs from the same cores.
            Ansible's ssh processes, which go on in the background, are not in it.
        load: of the machine, one minute's average at the end.
    """

    way: str
    seconds: float
    cpu: float
    load: float


def main() -> int:
    options = _options()
    playbook = options.ansible or _ansible()
    with tempfile.TemporaryDirectory(prefix="orchestrate-bench-") as scratch:
        folder = Path(scratch)
        hosts = _start(folder, options.hosts)
        try:
            ways = _ways(folder, hosts, playbook)
            ways["a"]()  # compiles its modules, as an installation does
            laps = []
            for way in options.order:
                before = _cpu()
                seconds, cpu = ways[way](), _cpu() - before
                laps.append(Lap(way=way, seconds=seconds, cpu=cpu, load=os.getloadavg()[0]))
                _say(f"{laps[-1]}")
        finally:
            for host in hosts:
                host.stop()
    sys.stdout.write("\n".join(report(laps, hosts=len(hosts))) + "\n")
    return 0


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="tests.benchmarks.tune_check", description=__doc__)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--order", default="acbdacbdacbd", help="laps, in order, by letter")
    parser.add_argument("--ansible", help="an ansible-playbook; else the newest ansible-core is installed")
    return parser.parse_args()


def _cpu() -> float:
    """What processes of ours that have ended took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _say(line: str) -> None:
    sys.stderr.write(f"bench: {line}\n")


def _ansible() -> str:
    """ansible-playbook in a virtual environment beside the lab's downloads."""
    home = cache_folder() / "ansible"
    program = home / "bin" / "ansible-playbook"
    if not program.exists():
        _say(f"installing {ANSIBLE} into {home}")
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)  # noqa: S603  (fixed)
        subprocess.run([str(home / "bin" / "pip"), "install", "--quiet", ANSIBLE], check=True)  # noqa: S603  (as above)
    return str(program)


def _start(folder: Path, count: int) -> list[Sshd]:
    key = make_key(folder / "client")
    _say(f"starting {count} sshd")
    hosts = [Sshd(folder=folder / f"h{number}", client_key=key) for number in range(count)]
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(Sshd.start, hosts))
    (folder / "known_hosts").write_text("".join(host.known() for host in hosts), encoding="utf-8")
    return hosts


def _ways(folder: Path, hosts: Sequence[Sshd], playbook: str) -> dict[str, Callable[[], float]]:
    cluster = _cluster_file(folder, hosts)
    inventory = _inventory(folder, hosts)
    books = {way: _book(folder / f"{way}.yml", tasks) for way, tasks in _tasks().items()}
    return {
        "a": lambda: _check(folder, cluster, len(hosts)),
        **{way: _played(folder, playbook, inventory, book, len(hosts)) for way, book in books.items()},
    }


def _cluster_file(folder: Path, hosts: Sequence[Sshd]) -> Path:
    """A cluster that is down: its hosts are named by the file alone."""
    first = hosts[0]
    content = {
        "kind": "elasticsearch",
        "name": "bench",
        "endpoints": ["http://127.0.0.1:1"],
        "hosts": {
            "connect": "ssh",
            "user": getpass.getuser(),
            "identity": str(first.client_key),
            "known_hosts": str(folder / "known_hosts"),
            "sudo": False,
            "data": ["/var/lib"],
            "service": {"manager": "systemd", "unit": "elasticsearch"},
            "overrides": {
                f"h{number}": {"address": "127.0.0.1", "port": host.port} for number, host in enumerate(hosts)
            },
        },
    }
    path = folder / "bench.yml"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def _check(folder: Path, cluster: Path, count: int) -> float:
    environment = {**os.environ, "HOME": str(folder), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.monotonic()
    done = subprocess.run(  # noqa: S603  (the program under test)
        [*PROGRAM, "tune", "check", "--cluster", str(cluster), "--output", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env=environment,
    )
    seconds = time.monotonic() - began
    nodes = {line["node"] for line in map(json.loads, done.stdout.splitlines()) if line["event"] == "tunable"}
    if done.returncode not in {0, DRIFT} or len(nodes) != count:
        raise SystemExit(f"{len(nodes)} hosts of {count}, exit {done.returncode}: {done.stderr[-2000:]}")
    return seconds


def _inventory(folder: Path, hosts: Sequence[Sshd]) -> Path:
    common = {
        "ansible_host": "127.0.0.1",
        "ansible_user": getpass.getuser(),
        "ansible_ssh_private_key_file": str(hosts[0].client_key),
        "ansible_ssh_common_args": (
            f"-F none -o UserKnownHostsFile={folder / 'known_hosts'} -o IdentitiesOnly=yes"
        ),
        "ansible_python_interpreter": sys.executable,
    }
    members = {f"h{number}": {"ansible_port": host.port} for number, host in enumerate(hosts)}
    path = folder / "inventory.json"
    path.write_text(json.dumps({"all": {"hosts": members, "vars": common}}), encoding="utf-8")
    return path


def _tasks() -> dict[str, list[dict[str, object]]]:
    """What each playbook does; the judgement is Ansible's own `assert`, which costs nothing on the host."""
    quiet = {"changed_when": False, "failed_when": False}

    def shell(line: str, name: str) -> dict[str, object]:
        return {"name": name, "ansible.builtin.shell": line, "register": name, **quiet}

    judged = {
        "name": "judge",
        "ansible.builtin.assert": {"that": ["'[never]' in values.stdout or true"], "quiet": True},
    }
    return {
        "b": [
            shell(f"grep -sH . {VALUES}", "values"),
            shell(DEVICES, "devices"),
            shell(FILES, "files"),
            shell(SERVICES, "services"),
            shell(TUNED, "tuned"),
            judged,
        ],
        "c": [shell(ONE, "values"), judged],
        "d": [{"name": "values", "ansible.builtin.raw": ONE, "register": "values", **quiet}, judged],
    }


def _book(path: Path, tasks: list[dict[str, object]]) -> Path:
    path.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
    return path


def _played(folder: Path, playbook: str, inventory: Path, book: Path, count: int) -> Callable[[], float]:
    def play() -> float:
        # Connections that an earlier lap has left open would be an unfair help.
        with tempfile.TemporaryDirectory(prefix="cp", dir="/tmp") as control:
            environment = {
                **os.environ,
                "HOME": str(folder),
                "ANSIBLE_FORKS": str(FORKS),
                "ANSIBLE_PIPELINING": "True",
                "ANSIBLE_SSH_CONTROL_PATH_DIR": control,
                "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.minimal",
                "LC_ALL": "C.UTF-8",
            }
            began = time.monotonic()
            done = subprocess.run(  # noqa: S603  (what is compared with)
                [playbook, "-i", str(inventory), str(book)],
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS,
                env=environment,
            )
            seconds = time.monotonic() - began
            _leave(control)
        if done.returncode != 0:
            raise SystemExit(f"ansible: exit {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
        if done.stdout.count("SUCCESS") < count:
            raise SystemExit(f"ansible: not every host was judged: {done.stdout[-2000:]}")
        return seconds

    return play


def _leave(control: str) -> None:
    """End the connections that ansible's ssh keeps open in the background."""
    for socket in Path(control).iterdir():
        command = ["ssh", "-F", "none", "-S", str(socket), "-O", "exit", "host"]
        subprocess.run(command, capture_output=True, check=False)  # noqa: S603  (fixed)


def report(laps: Sequence[Lap], *, hosts: int) -> list[str]:
    """The figures as a table, and what they come to."""
    by_way = {way: [lap for lap in laps if lap.way == way] for way in sorted({lap.way for lap in laps})}
    own_seconds, own_cpu = _medians(by_way.get("a", ()))
    rows = []
    for way, own in by_way.items():
        seconds, cpu = _medians(own)
        rows.append(
            (
                f"({way}) {NAMES[way]}",
                " ".join(f"{lap.seconds:.1f}" for lap in own),
                f"{1000 * seconds / hosts:.0f}",
                f"{seconds / own_seconds:.1f}" if own_seconds else "",
                f"{cpu:.1f}",
                f"{cpu / own_cpu:.1f}" if own_cpu else "",
                " ".join(f"{lap.load:.1f}" for lap in own),
            )
        )
    aims = ", ".join(f"({way}) {times:.0f} times" for way, times in AIM.items())
    said = f"{hosts} hosts on loopback; aims: {aims} the seconds of (a), (c) {CPU_AIM:.0f} times its CPU"
    heads = ("WAY", "SECONDS", "MS A HOST", "TIMES (a)", "CPU", "TIMES (a)", "LOAD")
    return [f"{said}; medians", "", *table(heads, rows)]


def _medians(laps: Sequence[Lap]) -> tuple[float, float]:
    """Of seconds and of CPU; 0 of no laps."""
    if not laps:
        return 0.0, 0.0
    return median(lap.seconds for lap in laps), median(lap.cpu for lap in laps)


if __name__ == "__main__":
    sys.exit(main())
