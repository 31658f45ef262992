"""Every way in which a run on real nodes ends, as a person at a terminal sees it; the next command is typed as printed."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.runtime.signals import SAME_ACT_SECONDS
from tests.integration.killing import PLAYBOOK, QUICKEST, Bastion, assert_put_back, entered, prepare
from tests.integration.nursery import BESIDE, DOOMED
from tests.lab.terminal import Terminal

if TYPE_CHECKING:
    from tests.integration.fixtures_processes import ProcessCluster, Show
    from tests.lab.nodes import LabCluster

pytestmark = [pytest.mark.real, pytest.mark.part(name="nodes")]


class Person:
    """Somebody at a terminal, in a folder of their own."""

    def __init__(self, folder: Path, lab: LabCluster, show: Show, **fields: Any) -> None:
        deadlines = {**PLAYBOOK["deadlines"], "hold": "10s", "start": "20s", "rejoin": "40s"}
        book = {**PLAYBOOK, "deadlines": deadlines, **fields.pop("playbook", {})}
        self.bastion = Bastion(folder=folder, lab=lab, playbook=book, **fields)
        self.show = show
        self.lab = lab
        self._open = ExitStack()
        tools = folder / "bin"
        tools.mkdir()
        program = tools / "orchestrate"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {DOOMED} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        self._path = f"{tools}:/usr/bin:/bin"

    def close(self) -> None:
        self._open.close()

    def begin(self, line: str, **told: Any) -> Terminal:
        """Type a line into a shell."""
        environment = {**BESIDE, **self.bastion._environment(self.bastion._told(**told)), "PATH": self._path}
        del environment["ORCHESTRATE_STATE"]  # the state is at its usual place, below the home folder
        words = ["/bin/sh", "-c", f"exec {line}"]
        return self._open.enter_context(Terminal(words, folder=self.bastion.folder, environment=environment))

    def restart(self, *words: str, **told: Any) -> Terminal:
        return self.begin(" ".join(("orchestrate restart --cluster", str(self.bastion.file), *words)), **told)

    def until(self, terminal: Terminal, phase: str, node: str = "es", seconds: float = 300.0) -> None:
        """Wait until a node has entered this phase."""
        wanted, limit = entered(phase, node=node), time.monotonic() + seconds
        while not any(wanted(*seam) for seam in self.bastion.passed()):
            assert terminal.runs, terminal.text
            assert time.monotonic() < limit, terminal.text
            time.sleep(0.02)

    def end(self, name: str, terminal: Terminal) -> tuple[int, str]:
        """Wait for the end; the exit code, and the text, which is shown."""
        code = terminal.end(300)
        self.show(f"=== {name} (code {code})\n{terminal.text}")
        return code, terminal.text

    def type(self, name: str, line: str, answer: str = "y\n") -> tuple[int, str]:
        terminal = self.begin(line)
        while terminal.runs and "[y/N]" not in terminal.text:
            time.sleep(0.05)
        if terminal.runs:
            terminal.type(answer)
        return self.end(f"{name}: typed {line}", terminal)


def next_command(text: str) -> str:
    """The last command that is printed."""
    return re.findall(r"\borchestrate [a-z]+\b[^\n`]*", text)[-1].strip()


def test_explore(process_cluster: ProcessCluster, tmp_path: Path, show: Show) -> None:
    lab = process_cluster(QUICKEST)
    before = prepare(lab)
    client = lab.client

    me = Person(tmp_path / "me", lab, show)

    def step(title: str, fn: Callable[[], Any]) -> Any:
        try:
            return fn()
        except BaseException as error:  # noqa: BLE001
            show(f"!!! {title}: {error!r}")
            if isinstance(error, KeyboardInterrupt):
                raise
        finally:
            try:
                for node in lab.nodes:
                    lab.configure(node.name, {})
                lab.start_nodes()
                lab.wait_ready(status="yellow", seconds=60)
                from tests.integration.killing import truth
                if truth(lab).settings != before.settings:
                    show(f"!!! settings after {title}: {truth(lab).settings}")
                    client.ask("PUT", "/_cluster/settings", {"persistent": {"*": None}, "transient": {"*": None}})
                    from tests.integration.killing import FOUND
                    client.ask("PUT", "/_cluster/settings", FOUND)
                lab.wait_ready(status="green", seconds=60)
            except BaseException as error:
                show(f"!!! not ready after {title}: {error!r}")

    def typed(name: str, text: str) -> None:
        line = next_command(text)
        me.type(name, line)

    def done() -> None:
        me.end("done", me.restart("--yes"))

    def warned() -> None:
        you = Person(tmp_path / "you", lab, show, document={"notify": [{"url": "http://127.0.0.1:1/x", "on": ["done", "started"]}]})
        you.end("done with a warning", you.restart("--yes", "--only", "es1"))
        you.close()

    def nothing() -> None:
        me.end("nothing to do", me.restart("--yes", "--started-before", "2020-01-01T00:00:00Z"))

    def held_replicas() -> None:
        client.ask("PUT", "/bare", {"settings": {"number_of_shards": 3, "number_of_replicas": 0}})
        lab.wait_ready(status="green")
        code, text = me.end("held by an index without replicas", me.restart("--yes"))
        client.ask("DELETE", "/bare")
        typed("held, cleared", text)

    def held_snapshot() -> None:
        body = {"type": "fs", "settings": {"location": str(lab.directory / "snapshots" / "r"), "max_snapshot_bytes_per_sec": "1kb", "compress": False}}
        client.ask("PUT", "/_snapshot/backup", body)
        client.ask("PUT", "/_snapshot/backup/nightly-2026.11.28?wait_for_completion=false", {})
        time.sleep(1)
        t = me.restart("--yes")
        t.await_text(lambda text: "snapshot" in text, 60)
        time.sleep(5)
        show("\n".join(t.looks[-1].lines))
        code, text = me.end("held by a snapshot", t)
        client.ask("DELETE", "/_snapshot/backup/nightly-2026.11.28", seconds=120)
        typed("held by a snapshot, cleared", text)
        client.ask("DELETE", "/_snapshot/backup")

    def failed() -> None:
        lab.configure("es2", {"no.such.setting": "1"})
        code, text = me.end("failed", me.restart("--yes", "--only", "es2", "--only", "es1"))
        show(str(me.bastion.aside("status")))
        lab.configure("es2", {})
        typed("failed, repaired", text)

    def stopped() -> None:
        t = me.restart("--yes")
        me.until(t, "stopping")
        me.type("stop", "orchestrate stop")
        code, text = me.end("stood down on `stop`", t)
        typed("stood down, resumed", text)

    def paused() -> None:
        t = me.restart("--yes", "--only", "es1", "--only", "es2")
        me.until(t, "stopping")
        me.type("pause", "orchestrate pause")
        code, text = me.end("paused", t)
        typed("paused, resumed", text)

    def interrupted() -> None:
        t = me.restart("--yes", "--only", "es1", "--only", "es2")
        me.until(t, "starting")
        t.type("\x03")
        code, text = me.end("interrupted", t)
        typed("interrupted, resumed", text)

    def twice() -> None:
        t = me.restart("--yes", "--only", "es1", "--only", "es2")
        me.until(t, "starting")
        t.type("\x03")
        me.until(t, "standing_down", node="")
        time.sleep(SAME_ACT_SECONDS)
        t.type("\x03")
        code, text = me.end("interrupted twice", t)
        typed("interrupted twice, restored", text)

    def killed() -> None:
        t = me.restart("--yes", "--only", "es1", "--only", "es2")
        me.until(t, "stopped")
        t.send(signal.SIGKILL)
        code, text = me.end("killed", t)
        for verb in ("status", "history", f"plan --cluster {me.bastion.file}", f"validate --cluster {me.bastion.file}"):
            me.type("killed", f"orchestrate {verb}")
        code, text = me.type("killed, a new restart", f"orchestrate restart --cluster {me.bastion.file} --only es1")

    def by_hand() -> None:
        t = me.restart("--yes", "--only", "es1", "--only", "es2")
        me.until(t, "stopped")
        t.send(signal.SIGKILL)
        me.end("killed", t)
        code, text = me.type("killed", "orchestrate status")
        restore = [c for c in re.findall(r"\borchestrate restore\b[^\n`]*", text)]
        me.type("restored by hand", restore[-1] if restore else "orchestrate restore")
        me.type("after the restore", "orchestrate status")
        typed("restored by hand, resumed", text)

    def deposed() -> None:
        one = Person(tmp_path / "one", lab, show, foreign=True, expiry=4.0)
        two = Person(tmp_path / "two", lab, show, expiry=4.0)
        t = one.restart("--yes", "--only", "es1", "--only", "es2")
        one.until(t, "starting")
        t.send(signal.SIGSTOP)
        time.sleep(6)
        other = two.restart("--yes", "--only", "es3")
        two.end("taken over", other)
        t.send(signal.SIGCONT)
        code, text = one.end("deposed", t)
        one.type("deposed", "orchestrate status")
        one.type("deposed, typed", next_command(text))
        one.close()
        two.close()

    import os
    chosen = os.environ.get("SCENES", "").split()
    for fn in (done, warned, nothing, held_replicas, held_snapshot, failed, stopped, paused, interrupted, twice, killed, by_hand, deposed):
        if not chosen or fn.__name__ in chosen:
            step(fn.__name__, fn)
    me.close()
