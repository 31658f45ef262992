"""The process of a running node: answers HTTP as Riak does, peers and the `riak` command on its own port.

Started by `riak daemon`. It ends when told to (`riak stop`, SIGTERM), when a fault says so, or when the
process named as its parent in `double.conf` is gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from . import peers
from .commands import Effect, UnrecordedError, answer, services_of
from .faults import Faults, read_faults
from .machine import Machine
from .report import View, ring_from_json, to_json
from .ring import Ring, alone, formed
from .settings import Own, Riaks, processors, read_own, read_riaks
from .stats import stats
from .texts import Said
from .versions import dialect

TICK_SECONDS = 0.5
SHORTEST_SECONDS = 0.05
"""No tick is shorter in real time, however fast the double's time goes."""
READY_SECONDS = 3.0
"""From the start of the process to the first answer: `riak daemon` took 3.6 s, and ping answered then."""


class Node:
    """A running node: its machine, its settings, and what it last heard of its peers."""

    def __init__(self, own: Own, riaks: Riaks) -> None:
        self.own = own
        self.riaks = riaks
        self.lock = threading.RLock()
        self.stopping = threading.Event()
        self._real = time.monotonic()
        self._wall = time.time()
        ring, hints = self._kept()
        self.machine = Machine(
            name=riaks.name,
            ring=ring,
            born=self.now(),
            limit=riaks.transfer_limit,
            hints=hints,
            location=own.location,
        )

    def now(self) -> float:
        """Seconds since 1970, at the double's pace since the start."""
        return self._wall + (time.monotonic() - self._real) / self.own.pace

    def _kept(self) -> tuple[Ring, set[int]]:
        """The ring and the hints that the last life of this node left."""
        file = self.own.state / "ring.json"
        if file.exists():
            kept = json.loads(file.read_text(encoding="utf-8"))
            return ring_from_json(kept["ring"]), set(kept["hints"])
        if self.own.members:
            return formed(self.own.members, self.riaks.ring_size), set()
        return alone(self.riaks.name, self.riaks.ring_size), set()

    def keep(self) -> None:
        """Write down what outlives the process."""
        with self.lock:
            ring = to_json(self.machine.report(self.now(), Faults({})))["ring"]
            kept = json.dumps({"ring": ring, "hints": sorted(self.machine.hints)})
        new = self.own.state / "ring.new"
        new.write_text(kept, encoding="utf-8")
        new.replace(self.own.state / "ring.json")

    def tick(self) -> None:
        """Ask the peers and live on."""
        faults = read_faults(self.own.home)
        names = {*self.machine.ring.members, self.machine.joining} - {self.machine.name, ""}
        heard = peers.reports(self.own, names - faults.unreachable)
        with self.lock:
            before = (self.machine.ring, set(self.machine.hints))
            self.machine.tick(self.now(), heard, faults)
            changed = before != (self.machine.ring, self.machine.hints)
        if changed:
            self.keep()

    def view(self) -> View:
        """What it answers from, its peers asked anew."""
        faults = read_faults(self.own.home)
        names = set(self.machine.ring.members) - {self.machine.name} - faults.unreachable
        others = peers.reports(self.own, names)
        with self.lock:
            now = self.now()
            me = self.machine.report(now, faults)
        return View(
            me=me,
            others=others,
            now=now,
            pid=os.getpid(),
            schedulers=self.riaks.schedulers,
            schedulers_online=self.riaks.schedulers_online,
            processors=processors(),
            width=int(faults.get("width") or 80),
            age=now - self.machine.born,
        )

    def run(self, words: list[str]) -> dict[str, Any]:
        """Do a command; what it prints and exits with."""
        manner = dialect(self.own.version)
        try:
            answered = answer(words, self.view(), quoted=manner.quoted, services=manner.lists_services)
        except UnrecordedError as error:
            return {"unrecorded": str(error)}
        for effect in answered.effects:
            self.effect(effect)
        text = manner.text(answered.said)
        cut = read_faults(self.own.home).get("transfers")
        if cut and words == ["admin", "transfers"]:
            text = manner.text(Said(text, None))[: int(cut)]
        return {"text": text, "code": manner.code(answered.said)}

    def effect(self, effect: Effect) -> None:
        """Change what a command changes, here or at the node that it concerns."""
        machine = self.machine
        if effect.verb in {"limit", "outbound", "inbound"} and effect.node != machine.name:
            body = {"verb": effect.verb, "node": effect.node, "value": effect.value}
            peers.ask(self.own.address(effect.node), "/effect", body)
            return
        with self.lock:
            match effect.verb:
                case "limit":
                    machine.limit = effect.value
                case "outbound":
                    machine.outbound = bool(effect.value)
                case "inbound":
                    machine.inbound = bool(effect.value)
                case "mark_down":
                    machine.adopt(machine.ring.marked(effect.node, "down"), self.now())
                case "commit":
                    machine.adopt(machine.ring.committed(), self.now())
                case "join":
                    machine.joining = effect.node
                case verb:
                    raise ValueError(f"there is no effect {verb}")
        if effect.verb == "join":
            peers.ask(self.own.address(effect.node), "/stage", {"name": machine.name})
        self.keep()

    def stage(self, name: str) -> None:
        """Note a node that has asked to join."""
        with self.lock:
            self.machine.adopt(self.machine.ring.with_staged(name), self.now())
        self.keep()


class Handler(BaseHTTPRequestHandler):
    """What both ports have in common."""

    node: Node
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *words: Any) -> None:  # noqa: A002
        """Nothing: peers ask many times a second."""

    def say(self, code: int, kind: str, text: str) -> None:
        """Send an answer."""
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class RiakHandler(Handler):
    """Riak's HTTP port."""

    def do_GET(self) -> None:
        """`/ping`, which says `OK` while no vnode runs too, and `/stats`; nothing else was recorded."""
        if self.path == "/ping":
            self.say(200, "text/html", "OK")
        elif self.path == "/stats":
            self.say(200, "application/json", json.dumps(stats(self.node.view()), separators=(",", ":")))
        else:
            self.say(404, "text/plain", f"riak-double: {self.path} was not recorded\n")


class OwnHandler(Handler):
    """The double's own port: peers and the `riak` command."""

    def do_GET(self) -> None:
        """What the node tells of itself."""
        node = self.node
        if self.path != "/double/report":
            self.say(404, "text/plain", f"riak-double: there is no {self.path}\n")
            return
        with node.lock:
            report = node.machine.report(node.now(), read_faults(node.own.home))
        self.say(200, "application/json", json.dumps(to_json(report)))

    def do_POST(self) -> None:
        """What it is asked to do."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        node = self.node
        said: Any = {}
        match self.path.removeprefix("/double"):
            case "/run":
                said = node.run(body)
            case "/services":
                said = list(services_of(node.view(), body["name"]))
            case "/effect":
                node.effect(Effect(**body))
            case "/stage":
                node.stage(body["name"])
            case "/stop":
                node.stopping.set()
            case _:
                self.say(404, "text/plain", f"riak-double: there is no {self.path}\n")
                return
        self.say(200, "application/json", json.dumps(said))


class Server(ThreadingHTTPServer):
    """Many ask at once; none of their threads keeps the process alive."""

    daemon_threads = True
    request_queue_size = 64


def serve(node: Node) -> None:
    """Answer and live until told to stop."""
    own, riaks = node.own, node.riaks
    servers = [
        Server((own.bind, own.port), type("Own", (OwnHandler,), {"node": node})),
        Server(riaks.http, type("Riak", (RiakHandler,), {"node": node})),
    ]
    for server in servers:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    dies = read_faults(own.home).seconds("dies")
    born = node.now()
    pause = max(SHORTEST_SECONDS, TICK_SECONDS * own.pace)
    while not node.stopping.wait(pause):
        node.tick()
        if dies is not None and node.now() - born >= dies:
            break
        if own.parent and not Path(f"/proc/{own.parent}").exists():
            break
    node.keep()
    for server in servers:
        server.server_close()


def main() -> None:
    """Be a node, from now until it is stopped."""
    own = read_own()
    riaks = read_riaks(own)
    late = read_faults(own.home).seconds("ping")
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    if stopped.wait((READY_SECONDS if late is None else late) * own.pace):
        sys.exit(0)
    node = Node(own, riaks)
    node.stopping = stopped
    serve(node)
