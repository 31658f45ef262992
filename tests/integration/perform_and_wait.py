"""A program that asks for a stop, a start or a hook of a node, and waits to be killed.

    python -m tests.integration.perform_and_wait stop|start|HOOK SETTINGS

SETTINGS are a `HostSettings`, pickled, in base 64. It prints what came of it.
"""

from __future__ import annotations

import base64
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.hosts.port import Hosts
from orchestrator.model.action import HostAction, Moment, RunHook, StartNode, StopNode
from orchestrator.model.cluster import NodeName
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.policy import Hook
from tests.integration.hostlab.hosts import wait_until

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
"""Far more than any of this takes, for a machine that is busy."""


def job_ended(hosts: Hosts, node: str) -> bool:
    """Whether the last stop or start that ran in the foreground of a node's host has ended."""
    asked = hosts._asked._asked.get(NodeName(node))
    return asked is None or asked.ended


@contextmanager
def killed_at_work(settings: HostSettings, what: str, at_work: Callable[[], bool]) -> Iterator[None]:
    """The program asks for something, and is killed as soon as that is at work."""
    packed = base64.b64encode(pickle.dumps(settings)).decode()
    command = [sys.executable, "-m", "tests.integration.perform_and_wait", what, packed]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}) as program:  # noqa: S603
        try:
            assert wait_until(at_work, seconds=PATIENCE)
        finally:
            program.kill()
    yield


def main(what: str, packed: str) -> None:
    """Do it, and stay."""
    settings: HostSettings = pickle.loads(base64.b64decode(packed))  # noqa: S301  (of the test that calls)
    node = settings.node
    verbs: dict[str, HostAction] = {"stop": StopNode(node=node), "start": StartNode(node=node)}
    hook = RunHook(node=node, moment=Moment.WHILE_STOPPED, number=0, hook=Hook(run=what))
    sys.stdout.write(f"{Hosts({node: settings}).perform(verbs.get(what, hook))}\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
