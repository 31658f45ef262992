"""A program that asks for a stop, a start or a hook of node `n1` on this machine, and waits to be killed.

    python -m tests.integration.perform_and_wait stop|start|HOOK FOLDER

It prints what came of it. FOLDER is that of a `ScriptService`.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from orchestrator.hosts.port import Hosts
from orchestrator.hosts.settings import Connect, HostSettings
from orchestrator.model.action import HostAction, Moment, RunHook, StartNode, StopNode
from orchestrator.model.policy import Hook
from tests.integration.script_service import ScriptService


def main(what: str, folder: Path) -> None:
    """Do it, and stay."""
    service = ScriptService(folder=folder)
    settings = HostSettings(node="n1", address="localhost", connect=Connect.LOCAL, service=service.settings())
    verbs: dict[str, HostAction] = {"stop": StopNode(node="n1"), "start": StartNode(node="n1")}
    hook = RunHook(node="n1", moment=Moment.WHILE_STOPPED, number=0, hook=Hook(run=what))
    sys.stdout.write(f"{Hosts({'n1': settings}).perform(verbs.get(what, hook))}\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
