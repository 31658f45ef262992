"""The process of a running node: answers HTTP as Riak does, peers and the `riak` command on its own port.

Started by `riak daemon`. It ends when told to (`riak stop`, SIGTERM), or when the
process named as its parent in `double.conf` is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socketserver
import sys
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from . import peers
from .commands import OF_ITSELF, Effect, UnrecordedError, answer, services_of
from .faults import FaultError, Faults, read_faults
from .lasting import seconds_of
from .machine import Machine
from .report import View, to_json
from .ring import formed
from .settings import Own, Riaks, processors, read_own, read_riaks
from .short import UNRECORDED, unrecorded
from .stats import stats

TICK_SECONDS = 0.5
SHORTEST_SECONDS = 0.1
"""No tick is shorter in real time, however fast the double's time goes."""
READY_SECONDS = 3.0
"""From the start of the process to the first answer: `riak daemon` took 3.6 s, and ping answered then."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command prints."""

    text: str  # all of it
    code: int  # the exit code
    seconds: float = 0.0  # real ones, that the command takes
    to_stderr: bool = False  # where it goes


class Node:
    """A running node: its machine, its settings, and what it last heard of its peers."""

    def __init__(self, own: Own, riaks: Riaks) -> None:
        self.own = own
        self.riaks = riaks
        self.lock = threading.RLock()
        self.stopping = threading.Event()
        self._real = time.monotonic()
        self._wall = time.time()
        self._faults = Faults({})
        self._peers = peers.Peers(own)
        self.machine = Machine(
            name=riaks.name,
            ring=formed(own.members or (riaks.name,), riaks.ring_size),
            born=self.now(),
            limit=riaks.transfer_limit,
            hints=self._kept(),
        )
        self._lived = self.machine.born

    def now(self) -> float:
        """Seconds since 1970, at the double's pace since the start."""
        return self._wall + (time.monotonic() - self._real) / self.own.pace

    def faults(self) -> Faults:
        """What is wrong now; a file that cannot be understood changes nothing, and `riak` says so."""
        with contextlib.suppress(FaultError):
            self._faults = read_faults(self.own.home)
        return self._faults

    def _kept(self) -> set[int]:
        """The hints that the last life of this node left."""
        file = self.own.state / "hints.json"
        return set(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else set()

    def keep(self) -> None:
        """Write down what outlives the process; one at a time, for a clock and commands both change it."""
        with self.lock:
            new = self.own.state / "hints.new"
            new.write_text(json.dumps(sorted(self.machine.hints)), encoding="utf-8")
            new.replace(self.own.state / "hints.json")

    def tick(self) -> None:
        """Ask the peers and live on."""
        faults = self.faults()
        names = {*self.machine.ring.members} - {self.machine.name}
        heard = self._peers.reports(names)
        with self.lock:
            before = set(self.machine.hints)
            now = self.now()
            # At a quick pace much happens between two ticks: what is over makes room for the next.
            while self._lived + TICK_SECONDS < now:
                self._lived += TICK_SECONDS
                self.machine.tick(self._lived, heard, faults)
            self._lived = now
            self.machine.tick(now, heard, faults)
            changed = before != self.machine.hints
        if changed:
            self.keep()

    def view(self, *, alone: bool = False) -> View:
        """What it answers from, its peers asked anew unless it is `alone`."""
        names = set(self.machine.ring.members) - {self.machine.name}
        others = {} if alone else self._peers.reports(names)
        with self.lock:
            now = self.now()
            me = self.machine.report(now)
        return View(
            me=me,
            others=others,
            now=now,
            pid=os.getpid(),
            schedulers=self.riaks.schedulers,
            schedulers_online=self.riaks.schedulers_online,
            processors=processors(),
            age=now - self.machine.born,
            locations=self.own.locations,
        )

    def run(self, words: list[str]) -> Printed:
        """Do a command of `riak` that was given on this host."""
        try:
            read_faults(self.own.home)
            answered = answer(words, self.view(alone=words[0] in OF_ITSELF))
        except FaultError as error:
            return Printed(f"riak-double: {error}\n", UNRECORDED, to_stderr=True)
        except UnrecordedError as error:
            return Printed(unrecorded(str(error)), UNRECORDED, to_stderr=True)
        for effect in answered.effects:
            self.effect(effect)
        return Printed(answered.said.whole, 0, seconds=seconds_of(words[0]) * self.own.pace)

    def effect(self, effect: Effect) -> None:
        """Change what a command changes, here or at the node that it concerns."""
        machine = self.machine
        if effect.verb in {"limit", "force"} and effect.node != machine.name:
            body = {"verb": effect.verb, "node": effect.node, "value": effect.value}
            peers.ask(self.own.address(effect.node), "effect", body)
            return
        with self.lock:
            match effect.verb:
                case "limit":
                    machine.limit = effect.value
                case "timer":
                    machine.timer = effect.value
                case "force":
                    machine.hand_off_now(self.now())
                case verb:
                    raise ValueError(f"there is no effect {verb}")


class RiakHandler(BaseHTTPRequestHandler):
    """Riak's HTTP port."""

    node: Node
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *words: Any) -> None:  # noqa: A002
        """Nothing: it is asked many times a second."""

    def do_GET(self) -> None:
        """`/ping`, which says `OK` while no vnode runs too, and `/stats`; nothing else was recorded."""
        if self.path == "/ping":
            self._say(200, "text/html", "OK")
        elif self.path == "/stats":
            self._say(200, "application/json", json.dumps(stats(self.node.view()), separators=(",", ":")))
        else:
            self._say(404, "text/plain", f"riak-double: {self.path} was not recorded\n")

    def _say(self, code: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class OwnHandler(socketserver.StreamRequestHandler):
    """The double's own port: peers and the `riak` command."""

    node: Node

    def handle(self) -> None:
        """For each line in one line out, until the other side goes; a command is answered once."""
        with contextlib.suppress(ConnectionError):  # it was killed: nobody waits for an answer
            for line in self.rfile:
                if not line.startswith(b"["):
                    self._run(line)
                    return
                what, body = json.loads(line)
                self.wfile.write(json.dumps(self._answer(what, body)).encode() + b"\n")

    def _run(self, line: bytes) -> None:
        """A command, as `short.py` asks for it."""
        _, *words = line.decode(errors="surrogateescape").removesuffix("\n").split("\0")
        done = self.node.run(words)
        text = done.text.encode(errors="surrogateescape")
        head = f"{done.code} {2 if done.to_stderr else 1} {done.seconds:.3f} {len(text)}\n"
        self.wfile.write(head.encode() + text)

    def _answer(self, what: str, body: Any) -> Any:
        node = self.node
        match what:
            case "report":
                with node.lock:
                    report = node.machine.report(node.now())
                return to_json(report)
            case "services":
                return list(services_of(node.view(), body["name"]))
            case "effect":
                node.effect(Effect(**body))
            case "stop":
                node.stopping.set()
            case _:
                return {"error": f"there is no {what}"}
        return {}


class RiakServer(ThreadingHTTPServer):
    """Many ask at once; none of their threads keeps the process alive."""

    daemon_threads = True
    request_queue_size = 64


class OwnServer(socketserver.ThreadingTCPServer):
    """As above."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64


def serve(node: Node) -> None:
    """Answer and live until told to stop."""
    own, riaks = node.own, node.riaks
    servers: list[socketserver.BaseServer] = [
        OwnServer((own.bind, own.port), type("Own", (OwnHandler,), {"node": node})),
        RiakServer(riaks.http, type("Riak", (RiakHandler,), {"node": node})),
    ]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    pause = max(SHORTEST_SECONDS, TICK_SECONDS * own.pace)
    while not node.stopping.wait(pause):
        node.tick()
        if own.parent and not Path(f"/proc/{own.parent}").exists():
            break
    node.keep()
    for server in servers:
        server.server_close()


def main() -> None:
    """Be a node, from now until it is stopped."""
    own = read_own()
    own.note_pid(os.getpid())  # whoever started it may be killed before that
    riaks = read_riaks(own)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    if stopped.wait(READY_SECONDS * own.pace):
        sys.exit(0)
    node = Node(own, riaks)
    node.stopping = stopped
    serve(node)
