"""A folder that stands for `/` of a host: its files, its values under /proc and /sys, its programs.

No program of the tree sees the real machine: `PATH` holds the tree's own programs, and links to those of the
real machine that only know files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.model.host import Connect, HostFacts, Manager
from orchestrator.model.host_settings import HostSettings, ServiceSettings
from orchestrator.model.reading import Reading
from orchestrator.tuning.facts import ANSWER_BYTES, facts_script, read_facts
from orchestrator.tuning.tunable import FactReads
from tests.fakes.host_tools import (
    BASE_TOOLS,
    SYSTEMD_TOOLS,
    SYSV_TOOLS,
    TOOLS,
    TUNED_ADM,
    TUNED_ADM_RHEL6,
    executable,
)

THP = "/sys/kernel/mm/transparent_hugepage"
THP_RHEL6 = "/sys/kernel/mm/redhat_transparent_hugepage"


class HostTree:
    """A host made of files.

    Args:
        path: of the folder; its name must hold no quotes or blanks, since programs of the tree name it.

    Attributes:
        data: data paths of its node.
        manager: of its node's service.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data: tuple[str, ...] = ()
        self.manager = Manager.SYSTEMD
        self.unit = "elasticsearch"
        for name in ("etc", "proc", "sys", "run", "dev", "tmp", "bin", "toolbox"):
            (path / name).mkdir(parents=True, exist_ok=True)
        for name in ("sudo-refuses", "sudo-without-password", "read-only", "stuck"):
            self.write(f"/.state/{name}", "")
        self.write("/.log", "")
        for name, body in TOOLS.items():
            self.program(name, body)
        for name in BASE_TOOLS.split():
            real = shutil.which(name)
            if real is not None:
                (path / "toolbox" / name).symlink_to(real)

    # How it is reached.

    @property
    def environment(self) -> dict[str, str]:
        """What `HostSettings.environment` must hold for the tree's programs to be found, and no others.

        The home of its account is beside it: what is kept there is no part of the tree.
        """
        return {"PATH": f"{self.path}/bin:{self.path}/toolbox", "HOME": f"{self.path}-home"}

    def settings(self, node: str = "es1", **changes: object) -> HostSettings:
        """How the program reaches it: locally, with the tree as root."""
        made = HostSettings(
            node=node,
            address=node.rpartition("@")[2],
            connect=Connect.LOCAL,
            environment=self.environment,
            service=ServiceSettings(manager=self.manager, unit=self.unit),
            data=self.data,
            root=str(self.path),
        )
        return replace(made, **changes)

    def connection(self) -> LocalConnection:
        """Runs commands on it."""
        return LocalConnection(self.environment)

    # Files.

    def at(self, path: str) -> Path:
        """Where a path of the host really is."""
        return self.path / path.lstrip("/")

    def write(self, path: str, text: str | bytes) -> None:
        """Make a file with its folders."""
        at = self.at(path)
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(text.encode() if isinstance(text, str) else text)

    def read(self, path: str) -> str | None:
        """A file's text; None where there is none."""
        at = self.at(path)
        return at.read_text() if at.exists() else None

    def folder(self, path: str) -> None:
        """Make a folder."""
        self.at(path).mkdir(parents=True, exist_ok=True)

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link; an absolute target is the host's, so it is written relative to the link."""
        at = self.at(path)
        at.parent.mkdir(parents=True, exist_ok=True)
        relative = os.path.relpath(self.at(target), at.parent) if target.startswith("/") else target
        at.symlink_to(relative)

    def remove(self, path: str) -> None:
        """Take a file or link away."""
        self.at(path).unlink()

    def files(self) -> dict[str, str]:
        """What anyone may have changed, to compare before with after: texts of files, targets of links."""
        kept: dict[str, str] = {}
        for at in sorted(self.path.rglob("*")):
            name = f"/{at.relative_to(self.path)}"
            if name.startswith(("/bin/", "/toolbox/", "/.log", "/tmp/")):
                continue
            if at.is_symlink():
                kept[name] = f"-> {at.readlink()}"
            elif at.is_file():
                kept[name] = at.read_bytes().decode(errors="backslashreplace")
            elif name.startswith("/etc/"):
                kept[name] = "a folder"
        return kept

    def snapshot(self) -> dict[str, tuple[int, str]]:
        """The same with the mode of each."""
        return {name: (self.at(name).lstat().st_mode, text) for name, text in self.files().items()}

    def facts(self, reads: Sequence[FactReads] = (), **changes: object) -> Reading[HostFacts]:
        """What the program makes of it, by the script that a real host gets."""
        settings = self.settings(**changes)
        return read_facts(self.answer(reads, settings), settings, reads)

    def answer(self, reads: Sequence[FactReads] = (), settings: HostSettings | None = None) -> str:
        """What it prints then."""
        line = facts_script(settings or self.settings(), reads)
        result = self.connection().run(line, timeout=60, keep=ANSWER_BYTES)
        assert isinstance(result, CommandResult), result
        assert result.truncated == 0
        return result.stdout

    def shell(self, script: str, words: Sequence[str] = ("/bin/sh",)) -> subprocess.CompletedProcess[str]:
        """Run a script of ours as its boot does, with programs of the real machine that only know files."""
        file, folder = self.at("/script-under-test.sh"), self.at("/tmp/work")
        file.write_text(script)
        folder.mkdir(exist_ok=True)
        return subprocess.run(  # noqa: S603  (our own script on a tree)
            [*words, str(file)],
            env={"PATH": f"{self.path}/toolbox"},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def known_facts(self, reads: Sequence[FactReads] = (), **changes: object) -> HostFacts:
        """The facts of a host that tells its general ones."""
        facts = self.facts(reads, **changes)
        assert isinstance(facts, HostFacts), facts
        return facts

    # Programs.

    def program(self, name: str, body: str) -> None:
        """Give the host a program: a POSIX-sh script after `root=` and `services=`, noted in the log."""
        at = self.path / "bin" / name
        at.write_text(executable(body, str(self.path)))
        at.chmod(0o755)

    def first(self, name: str, lines: str) -> None:
        """Let a program of the tree begin with these lines."""
        body = {**TOOLS, **SYSTEMD_TOOLS, **SYSV_TOOLS, "tuned-adm": TUNED_ADM}[name]
        self.program(name, f"{lines}\n{body}")

    def without(self, *names: str) -> None:
        """Take programs away."""
        for name in names:
            for folder in ("bin", "toolbox"):
                (self.path / folder / name).unlink(missing_ok=True)

    def calls(self, *programs: str) -> tuple[str, ...]:
        """The command lines that the tree's programs got, in order; of these programs, if any is named."""
        lines = (self.path / ".log").read_text().splitlines()
        return tuple(line for line in lines if not programs or line.split(" ", 1)[0] in programs)

    def said(self, name: str) -> list[str]:
        """What a program of the tree noted under this name, or wrote there."""
        return (self.read(f"/.state/{name}") or "").splitlines()

    def refuse_sudo(self, part: str) -> None:
        """Let sudo refuse every command that holds this text."""
        self._note("sudo-refuses", part)

    def read_only(self, path: str) -> None:
        """Let every write to a path fail."""
        self._note("read-only", str(self.at(path)))

    def stuck(self, path: str) -> None:
        """Let writes to a value succeed and change nothing."""
        self._note("stuck", str(self.at(path)))

    def _note(self, name: str, line: str) -> None:
        with (self.path / ".state" / name).open("a") as file:
            file.write(f"{line}\n")

    # The system.

    def machine(self, *, cpus: int = 8, memory: int = 64 << 30) -> None:
        """CPUs and bytes of memory."""
        self.write(
            "/proc/cpuinfo", "".join(f"processor\t: {n}\nflags\t\t: fpu sse2\n\n" for n in range(cpus))
        )
        self.write("/proc/meminfo", f"MemTotal:       {memory // 1024} kB\nMemFree: 1000 kB\n")

    def systemd(self) -> None:
        """Let systemd run."""
        self.manager = Manager.SYSTEMD
        self.folder("/run/systemd/system")
        for name in ("etc/systemd/system", "etc/sysctl.d", "etc/tmpfiles.d", "etc/udev/rules.d"):
            self.folder(f"/{name}")
        for name, body in SYSTEMD_TOOLS.items():
            self.program(name, body)

    def sysv(self) -> None:
        """Let init scripts and run levels do."""
        self.manager = Manager.SYSV
        for name in ("etc/init.d", "etc/udev/rules.d", *(f"etc/rc{level}.d" for level in range(7))):
            self.folder(f"/{name}")
        self.write("/etc/inittab", "# the default run level\nid:3:initdefault:\n")
        self.write("/etc/sysctl.conf", "# Kernel sysctl configuration file\nnet.ipv4.ip_forward = 0\n")
        self.write("/etc/rc.d/rc.local", "#!/bin/sh\ntouch /var/lock/subsys/local\n")
        self.at("/etc/rc.d/rc.local").chmod(0o755)
        for name, body in SYSV_TOOLS.items():
            self.program(name, body)

    def service(self, name: str, *, running: bool = True, enabled: bool = True, masked: bool = False) -> None:
        """Install a service, for the init system that the tree has."""
        state = self.path / ".state" / "services" / name
        state.mkdir(parents=True, exist_ok=True)
        for word, holds in (("running", running), ("enabled", enabled), ("masked", masked)):
            if holds:
                (state / word).touch()
        if self.manager is Manager.SYSV:
            self.write(f"/etc/init.d/{name}", "#!/bin/sh\n")
            for level in (2, 3, 4, 5):
                self.link(f"/etc/rc{level}.d/{'S85' if enabled else 'K15'}{name}", f"/etc/init.d/{name}")
        elif not masked:
            self.write(f"/usr/lib/systemd/system/{name}.service", "[Service]\n")

    def tuned(self, active: str | None, profiles: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Install tuned (ktune on a sysv host) with its profiles: what each writes, by path."""
        profiles = {**({active: {}} if active else {}), **(profiles or {})}
        for name, values in profiles.items():
            lines = "".join(f"{path} {value}\n" for path, value in values.items())
            self.write(f"/.state/tuned/{name}", lines)
        if self.manager is Manager.SYSV:
            self.service("tuned", running=active is not None)
            self.service("ktune", running=active is not None)
            self.write("/etc/tune-profiles/active-profile", f"{active or 'off'}\n")
            self.write("/etc/sysconfig/ktune", 'SYSCTL_POST="/etc/sysctl.conf"\n')
            self.program("tuned-adm", TUNED_ADM_RHEL6)
        else:
            self.service("tuned")
            self.write("/etc/tuned/active_profile", f"{active}\n" if active else "")
            for name, values in profiles.items():
                options = "".join(f"{path}={value}\n" for path, value in values.items())
                self.write(f"/usr/lib/tuned/{name}/tuned.conf", f"[main]\nsummary={name}\n[sysfs]\n{options}")
            self.program("tuned-adm", TUNED_ADM)

    # Values of the kernel.

    def sysctl(self, name: str, value: str | int) -> None:
        """A value under /proc/sys, by its dotted name."""
        self.write(f"/proc/sys/{name.replace('.', '/')}", f"{value}\n")

    def sysctls(self, values: Mapping[str, str | int]) -> None:
        """Several of them."""
        for name, value in values.items():
            self.sysctl(name, value)

    def hugepages(
        self, folder: str, *, enabled: str, defrag: str, khugepaged: str, sizes: Sequence[int] = ()
    ) -> None:
        """Transparent huge pages as the kernel shows them; sizes in KiB are those of newer kernels."""
        self.write(f"{folder}/enabled", f"{enabled}\n")
        self.write(f"{folder}/defrag", f"{defrag}\n")
        self.write(f"{folder}/khugepaged/defrag", f"{khugepaged}\n")
        self.write(f"{folder}/khugepaged/scan_sleep_millisecs", "10000\n")
        for size in sizes:
            self.write(f"{folder}/hugepages-{size}kB/enabled", "always inherit madvise [never]\n")
            self.write(
                f"{folder}/hugepages-{size}kB/shmem_enabled", "always inherit within_size advise [never]\n"
            )
