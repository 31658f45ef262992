"""A real sshd on loopback, with host key, configuration and authorized keys of its own in a folder."""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.model.host_settings import HostLimits, HostSettings, ServiceSettings
from tests.ports import free_port
from tests.tools import needs

QUICK = HostLimits(connect=4.0, banner=3.0, auth=5.0, command=8.0, keepalive=2.0)


def tool(*command: str) -> str:
    """Run one of OpenSSH's own tools; what it prints."""
    done = subprocess.run(  # noqa: S603  (the command lines of these tests)
        [needs(command[0]), *command[1:]], check=True, capture_output=True, text=True
    )
    return done.stdout


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    tool("ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", str(path))
    return path


@dataclass(kw_only=True)
class Sshd:
    """One server; `stop` ends it and every session it has."""

    folder: Path  # its own
    client_key: Path  # what logs in
    port: int = field(default_factory=free_port)  # on loopback
    options: tuple[str, ...] = ()  # more lines of its configuration
    # more variables of its sessions. `HOME` is an empty folder if it is not among them: bash reads the rc
    # file of its home at each command over SSH, and what this machine's account has in there may take a third
    # of a second.
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None  # the server while it runs

    @property
    def host_key(self) -> Path:
        return self.folder / "host_key"

    def start(self) -> Sshd:
        program = needs("sshd")
        self.folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(
                mode=0o755, exist_ok=True
            )  # sshd's own requirement (privilege separation)
        if not self.host_key.exists():
            make_key(self.host_key)
        authorized = self.folder / "authorized_keys"
        authorized.write_text(self.client_key.with_suffix(".pub").read_text())
        authorized.chmod(0o600)
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        variables = {"HOME": str(home), **self.environment}
        config = self.folder / "sshd_config"
        lines = (
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.host_key}",
            f"AuthorizedKeysFile {authorized}",
            f"PidFile {self.folder / 'sshd.pid'}",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "StrictModes no",  # the folder stands below a temporary one that others may write to
            "UsePAM no",
            "UseDNS no",
            "PermitRootLogin prohibit-password",
            "MaxStartups 100",
            # One line: of several, sshd heeds the first alone.
            "SetEnv " + " ".join(f'"{name}={value}"' for name, value in variables.items()),
            *self.options,
        )
        config.write_text("\n".join(lines) + "\n")
        with (self.folder / "log").open("ab") as log:
            command = [program, "-D", "-e", "-f", str(config)]
            self.process = subprocess.Popen(command, stderr=log, stdout=log)  # noqa: S603  (a server of our own)
        self._await()
        return self

    def _await(self) -> None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                if probe.recv(4) == b"SSH-":
                    return
            time.sleep(0.02)
        raise AssertionError((self.folder / "log").read_text())

    def children(self) -> list[int]:
        """The processes that serve sessions, and theirs; one that ends meanwhile is left out."""
        found: list[int] = []
        waiting = [self.process.pid] if self.process is not None else []
        while waiting:
            pids = _children(waiting.pop())
            found += pids
            waiting += pids
        return found

    def session_servers(self) -> list[int]:
        """Those of them that are sshd itself."""
        return [pid for pid in self.children() if _name(pid).startswith("sshd")]

    def signal_sessions(self, number: signal.Signals) -> None:
        for pid in self.session_servers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> None:
        if self.process is None:
            return
        # By pid, before the listener goes: its children would outlive it.
        sessions = self.session_servers()
        self.process.kill()
        self.process.wait()
        for pid in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process = None

    def known(self, *, hashed: bool = False) -> str:
        """The line of a known hosts file for it."""
        kind, key = self.host_key.with_suffix(".pub").read_text().split()[:2]
        line = f"[127.0.0.1]:{self.port} {kind} {key}\n"
        if not hashed:
            return line
        file = self.folder / "to_hash"
        file.write_text(line)
        tool("ssh-keygen", "-q", "-H", "-f", str(file))
        return file.read_text()

    def settings(self, node: str, known_hosts: Path, **changes: object) -> HostSettings:
        values: dict[str, object] = {
            "node": node,
            "address": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "identities": (str(self.client_key),),
            "known_hosts": (str(known_hosts),),
            "use_agent": False,
            "ssh_config": (),
            "limits": QUICK,
            "service": ServiceSettings(),
        }
        return HostSettings(**{**values, **changes})


def _children(pid: int) -> list[int]:
    """Of all its threads; of a process that is gone, none."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it, or a thread of it, may end between two looks
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""
