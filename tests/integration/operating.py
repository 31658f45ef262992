"""What an operator does, for tests on real hosts: writes a cluster file, runs the program, looks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.hostlab.hosts import REBOOT_USER, HostCluster
from tests.integration.lease_records import lease_records
from tests.lab.client import LabClient

PROGRAM = (sys.executable, "-m", "orchestrator")
PASSWORD_VARIABLE = "LAB_PASSWORD"  # noqa: S105  (the name of a variable)
RUN_SECONDS = 1500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Somebody with a cluster file, a state folder and the program."""

    folder: Path  # of the operator's own; holds the cluster file, playbook and state
    cluster: HostCluster  # the hosts
    reboot: bool = False
    before: tuple[str, ...] = ()  # a command that is to start the program (`unshare …`)
    password: str | None = None  # what the variable of the password holds; None for the right one
    password_file: Path | None = None  # holds the password, in place of the variable

    @property
    def password_source(self) -> str:
        """Where the password is, as the cluster file names it."""
        return f"env:{PASSWORD_VARIABLE}" if self.password_file is None else f"file:{self.password_file}"

    def write(self, *, playbook: Mapping[str, Any] | None = None) -> Path:
        """Write the cluster file (JSON is YAML) and, if wanted, a playbook of the operator's own."""
        cluster = self.cluster
        content: dict[str, Any] = {
            "kind": "elasticsearch",
            "name": "lab",
            "endpoints": list(cluster.endpoints),
            "hosts": {
                "connect": "ssh",
                "user": REBOOT_USER if self.reboot else cluster.ssh_user,
                "identity": str(cluster.identity),
                "known_hosts": str(cluster.known_hosts),
                "sudo": True,
                "service": {"manager": cluster.flavour.init, "unit": cluster.unit},
            },
        }
        if cluster.flavour.secured:
            content["auth"] = {
                "basic": {"username": cluster.orchestrator.user, "password": self.password_source}
            }
            content["tls"] = {"ca": str(cluster.ca)}
        if playbook is not None:
            book = self.folder / "playbook.yml"
            book.write_text(json.dumps({"kind": "elasticsearch", **playbook}), encoding="utf-8")
            content["playbook"] = str(book)
        path = self.folder / "lab.yml"
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    @property
    def environment(self) -> dict[str, str]:
        """The process's variables: the password stands there and nowhere else."""
        return {
            **os.environ,
            PASSWORD_VARIABLE: self.password or self.cluster.orchestrator.password or "",
            "ORCHESTRATE_STATE": f"sqlite:///{self.folder}/state.db",
            "HOME": str(self.folder),
        }

    def orchestrate(self, *words: str, seconds: float = RUN_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run the program to its end."""
        try:
            return subprocess.run(  # noqa: S603  (the program under test)
                [*self.before, *PROGRAM, *words],
                env=self.environment,
                cwd=self.folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as late:
            said = b"".join(part for part in (late.stdout, late.stderr) if part).decode(errors="replace")
            told = f"{' '.join(words)} did not end in {seconds:g} s; it said:\n{said}"
            raise AssertionError(told) from late

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start the program and let it run."""
        return subprocess.Popen(  # noqa: S603  (the program under test)
            [*self.before, *PROGRAM, *words],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            stdin=subprocess.DEVNULL,
        )


def ask(cluster: HostCluster, verb: str, path: str, body: Any = None, *, accept: tuple[int, ...] = ()) -> Any:
    """Ask the cluster as its superuser."""
    with closing(LabClient(cluster.admin)) as client:
        return client.ask(verb, path, body, accept=accept)


def settings(cluster: HostCluster) -> dict[str, dict[str, Any]]:
    """All cluster settings, flat, level by level: the truth, past the program under test."""
    read = ask(cluster, "GET", "/_cluster/settings?flat_settings=true")
    return {level: read[level] for level in ("persistent", "transient")}


def lives(cluster: HostCluster) -> dict[str, str]:
    """The ephemeral id of each node: another one after each start of its process."""
    nodes = ask(cluster, "GET", "/_cluster/state/nodes")["nodes"]
    return {node["name"]: node["ephemeral_id"] for node in nodes.values()}


def leases(cluster: HostCluster) -> list[str]:
    """Names of lease records in the cluster."""
    with closing(LabClient(cluster.admin)) as client:
        return lease_records(client)


def starts(cluster: HostCluster, name: str) -> int:
    """How often systemd has started the node's service since its host came up."""
    line = f"journalctl --no-pager -q -u {cluster.unit} | grep -c 'Starting '"
    return int(cluster.exec(name, line, check=False).stdout.strip() or 0)
