"""The general facts of a host: kernel, distribution, init system, CPUs, memory, virtualisation. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final

from orchestrator.hosts.facts_frames import CUT_OFF, Answer, Output
from orchestrator.model.host_facts import InitSystem
from orchestrator.model.reading import Reading, Unknown

_RELEASE: Final = re.compile(r"(?:release|VERSION *=) *(\d[\d.]*)")
_RELEASE_FILES: Final = {"/etc/redhat-release": "rhel", "/etc/SuSE-release": "sles"}
"""Release files older than os-release, and the ID that os-release uses since."""
_REDHAT_KIN: Final = {"centos": "centos", "oracle": "ol", "scientific": "scientific", "fedora": "fedora"}
_MAKERS: Final = (
    *(("virtualbox", "oracle"), ("innotek", "oracle"), ("vmware", "vmware"), ("qemu", "kvm"), ("kvm", "kvm")),
    *(("xen", "xen"), ("microsoft corporation virtual", "microsoft"), ("amazon ec2", "amazon")),
    ("google", "google"),
)
"""Names of a machine's maker, and the matching name in systemd-detect-virt."""
_CONTAINERS: Final = {"/.dockerenv": "docker", "/run/.containerenv": "podman", "/proc/vz": "openvz"}
_CPU_LIST: Final = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Facts of the whole host, as in `HostFacts`."""

    kernel: str
    distribution: str
    distribution_version: str
    init: InitSystem
    numa_nodes: int
    cpus: int
    memory: int
    virtualisation: str
    command_line: tuple[str, ...]


def read_system(answer: Answer) -> Reading[System]:
    """The general facts; `Unknown` with the first missing fact, if a host lacks one that every host has."""
    if "files" not in answer.titles:  # the part after the general facts
        return Unknown(reason=f"general facts: {CUT_OFF}")
    kernel = answer.output("kernel")
    if isinstance(kernel, Unknown) or kernel.exit != 0:
        return Unknown(reason=f"uname -r: {kernel.reason if isinstance(kernel, Unknown) else kernel.why}")
    init, numa_nodes, cpus, memory = _init(answer), _numa_nodes(answer), _cpus(answer), _memory(answer)
    if isinstance(init, Unknown):
        return init
    if isinstance(numa_nodes, Unknown):
        return numa_nodes
    if isinstance(cpus, Unknown):
        return cpus
    if isinstance(memory, Unknown):
        return memory
    command_line = _own(answer, "/proc/cmdline")
    if isinstance(command_line, Unknown):
        return command_line
    name, version = _distribution(answer)
    return System(
        kernel=kernel.text.strip(),
        distribution=name,
        distribution_version=version,
        init=init,
        numa_nodes=numa_nodes,
        cpus=cpus,
        memory=memory,
        virtualisation=_virtualisation(answer),
        command_line=tuple(command_line.split()),
    )


def _own(answer: Answer, path: str) -> Reading[str]:
    """A file that every host has."""
    text = answer.own.get(path)
    if text is None:
        return Unknown(reason=f"{path}: no such file")
    return text


def _init(answer: Answer) -> Reading[InitSystem]:
    there = answer.lines("markers-of-system")
    if isinstance(there, Unknown):
        return Unknown(reason=f"init system: {there.reason}")
    if "/run/systemd/system" in there:  # sd_booted(3)
        return InitSystem.SYSTEMD
    scripts = "/etc/init.d" in there or "/etc/rc.d/init.d" in there
    return InitSystem.SYSV if scripts and "/run/openrc" not in there else InitSystem.OTHER


def _numa_nodes(answer: Answer) -> Reading[int]:
    there = answer.lines("markers-of-system")
    if not isinstance(there, Unknown) and "/sys/devices/system/node" not in there:
        return 1  # a kernel without NUMA
    return _count(answer, "/sys/devices/system/node/online")


def _cpus(answer: Answer) -> Reading[int]:
    path = "/sys/devices/system/cpu/online"
    if path in answer.own:
        return _count(answer, path)
    counted = answer.output("processors")
    if isinstance(counted, Unknown):
        return Unknown(reason=f"CPUs: {counted.reason}")
    number = counted.text.strip()
    # Some architectures have no such lines: zero means that the count is unknown.
    count = int(number) if re.fullmatch("[0-9]{1,6}", number) else 0
    return count or Unknown(reason=f"CPUs: {counted.why}")


def _count(answer: Answer, path: str) -> Reading[int]:
    """How many numbers a list such as `0-3,8` contains."""
    text = _own(answer, path)
    if isinstance(text, Unknown):
        return text
    if not _CPU_LIST.fullmatch(text.strip()):
        return Unknown(reason=f"{path}: not understood: {text.strip()[:80]!r}")
    ends = [part.split("-") for part in text.strip().split(",")]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in ends)


def _memory(answer: Answer) -> Reading[int]:
    said = answer.output("memory")
    if isinstance(said, Unknown):
        return Unknown(reason=f"memory: {said.reason}")
    found = re.search(r"^MemTotal: +(\d+) kB$", said.text, re.MULTILINE)
    return int(found[1]) * 1024 if found else Unknown(reason=f"/proc/meminfo: {said.why}")


def _distribution(answer: Answer) -> tuple[str, str]:
    """ID and version as in os-release, also where only older files give them; empty if no file does."""
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        text = answer.own.get(path)
        if isinstance(text, str):
            values = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
            return _unquoted(values.get("ID", "linux")), _unquoted(values.get("VERSION_ID", ""))
    for path, identity in _RELEASE_FILES.items():
        text = answer.own.get(path)
        if isinstance(text, str):
            version = _RELEASE.search(text)
            first = text.split(" ", 1)[0].lower()
            return _REDHAT_KIN.get(first, identity), version[1] if version else ""
    text = answer.own.get("/etc/debian_version")
    return ("debian", text.strip()) if isinstance(text, str) else ("", "")


def _unquoted(value: str) -> str:
    try:
        return "".join(shlex.split(value))
    except ValueError:
        return value.strip()


def _virtualisation(answer: Answer) -> str:
    """The name that systemd-detect-virt uses; empty if it is unknown."""
    said = answer.outputs.get("virtual")
    if said is not None:
        known = (
            isinstance(said, Output) and not said.killed and re.fullmatch(r"[a-z0-9-]+", said.text.strip())
        )
        return said.text.strip() if isinstance(said, Output) and known else ""
    there = answer.lines("markers-of-system")
    words = () if isinstance(there, Unknown) else there
    container = next((name for path, name in _CONTAINERS.items() if path in words), None)
    if container:
        return container
    maker = " ".join(
        text.strip()
        for path, text in answer.own.items()
        if path.startswith("/sys/class/dmi/") and isinstance(text, str)
    ).lower()
    told = next((name for word, name in _MAKERS if word in maker), None)
    if told:
        return told
    flag = answer.output("hypervisor")
    if "/proc/xen" in words:
        return "xen"
    if isinstance(flag, Unknown) or flag.text.strip() not in ("0", "1"):
        return ""
    return "vm-other" if flag.text.strip() == "1" else "none"
