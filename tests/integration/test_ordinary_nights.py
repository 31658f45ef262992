"""Ordinary nights on real nodes: runs that end well while everyday things go on, and small scenes of each.

Seven real nodes: six in three zones, of which three vote, and a coordinating-only one. Every oracle reads
something other than the program: the hooks' records, the nodes' logs and settings, the routing table, the
documents.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shlex
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from tests.integration.killing import (
    KILLED,
    QUICKEST,
    SEED,
    Bastion,
    Truth,
    assert_restarted_once,
    entered,
    prepare,
    truth,
)
from tests.integration.killing import PLAYBOOK as QUICK_PLAYBOOK
from tests.integration.proxying import Passing
from tests.integration.zoning import SIX_IN_THREE, Vigil, events, rescued, story, waves, zones_of
from tests.lab.client import Access, LabClient
from tests.lab.errors import LabError
from tests.lab.layout import REPOSITORY, LabNode
from tests.lab.seed import SeedIndex, seed

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import ProcessCluster, Show
    from tests.lab.nodes import LabCluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(4800), pytest.mark.part(name="ordinary")]

FLAPPING = "co1"
SEVEN = (*SIX_IN_THREE, LabNode(name=FLAPPING, zone="a", roles=()))
SIX = tuple(node.name for node in SIX_IN_THREE)
DONE, INTERRUPTED = 0, 5
KILLS = 8
REQUEST_ATTEMPTS = 3
"""How often the program sends one update to a cluster that refuses it before the update counts as refused."""
ONLY_THE_SIX = ("--only", "es*")
"""Not `--exclude co1`: a name that is no member at that moment is taken for a typing error."""
EXPECTED = {"expect": {"nodes": len(SIX)}}
"""An operator with a node that comes and goes counts on the other six."""
PLAYBOOK: Mapping[str, Any] = {
    **QUICK_PLAYBOOK,
    "deadlines": {"stop": "3m", "start": "5m", "rejoin": "5m", "recover": "10m", "hold": "10m"},
}
"""Limits far beyond what a loaded machine needs."""
NIGHT_SECONDS = 2400.0
"""A night that takes longer hangs."""

# What happens in a night ------------------------------------

ROLLOVER_SECONDS = 20.0
UNPLACEABLE_EVERY = 3
"""One rollover in so many makes an index with as many replicas as there are data nodes: one copy too many."""
KEPT = 4
"""How many restored indices, and how many that were rolled over, are kept: the oldest are deleted."""
PATIENCE = 8.0
"""A pause is at least so many times as long as the request before it: a slow machine has a slower night."""
REPOSITORY_NAME = "nightly"
CLOSED, SWUNG, MERGED, SAVED = "closed-and-opened", "swung", "merged", "saved"
INDICES = (
    SeedIndex(name=CLOSED, shards=1, documents=50),
    SeedIndex(name=SWUNG, shards=1, documents=50),
    SeedIndex(name=MERGED, shards=1, documents=400, document_bytes=2000),
    SeedIndex(name=SAVED, shards=2, documents=300),
)
KINDS = (
    *("rollover", "snapshot", "restore", "delete", "close", "open", "replicas", "merge"),
    *("node leaves", "node freezes"),
)
"""What a night is made of; one that is long enough has all of it."""


def only(access: Access, names: list[str], lab: LabCluster) -> Access:
    """The same access, by these nodes alone."""
    endpoints = tuple(lab.endpoint(name) for name in names)
    return Access(endpoints=endpoints, user=access.user, password=access.password, ca=access.ca)


class Night:
    """Everyday events on a cluster while it is restarted. Use as a context manager.

    Indices roll over, and some get more replicas than there are nodes. A snapshot is taken and restored into
    a new index. An index is closed and opened, another one changes its number of replicas, a third one is
    merged. A coordinating-only node leaves, returns, and stands still for seconds. Threads of the test do all
    this with the lab's own client; they share nothing with the program under test.

    Args:
        lab: the cluster.
        log: a file that gets one line for each event, with its time and how it ended.

    Attributes:
        done: how often each kind of event was answered well.
        refused: how often not; a node that is being restarted answers no request.
    """

    def __init__(self, lab: LabCluster, log: Path) -> None:
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._lab, self._log = lab, log
        self._client = LabClient(only(lab.access, list(SIX), lab))
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._took = threading.local()
        self._broken: list[BaseException] = []
        work = {
            self._rolls: ROLLOVER_SECONDS,
            self._saves: 12.0,
            self._closes: 6.0,
            self._swings: 7.0,
            self._merges: 3.0,
            self._flaps: 6.0,
        }
        self._threads = [
            threading.Thread(
                target=self._again, args=(each, seconds), name=f"night{each.__name__}", daemon=True
            )
            for each, seconds in work.items()
        ]

    def __enter__(self) -> Self:
        seed(self._client, INDICES)
        self._ask("PUT", "/rolled-000001", {"aliases": {"rolled": {"is_write_index": True}}})
        location = str(self._lab.directory / REPOSITORY)
        self._ask("PUT", f"/_snapshot/{REPOSITORY_NAME}", {"type": "fs", "settings": {"location": location}})
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it: every thread is over, the flapping node is up, and no index has a copy without a place."""
        self._over.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._lab.start_nodes([FLAPPING])
        self._ask("POST", f"/{CLOSED}/_open")
        self._ask("PUT", "/rolled-*/_settings", {"index.number_of_replicas": 1})
        self._client.close()
        if self._broken:
            raise LabError(f"the night broke down: {self._broken[0]!r}") from self._broken[0]

    def missed(self) -> list[str]:
        """Kinds of events that never came about: such a night shows nothing of them."""
        return [kind for kind in KINDS if not self.done[kind]]

    def told(self) -> str:
        """One line of figures."""
        done = ", ".join(f"{kind} {self.done[kind]}" for kind in KINDS)
        return f"night: {done}; not answered: {dict(self.refused) or 'none'}"

    def _ask(self, method: str, path: str, body: Any = None, *, seconds: float = 30.0) -> Any:
        """By the first endpoint that answers; a node that starts or stops may refuse a request."""
        for _ in range(60):
            try:
                return self._client.ask(method, path, body, seconds=seconds)
            except LabError as error:
                if "answered with 503" not in str(error) and "no endpoint answered" not in str(error):
                    raise
                time.sleep(0.5)
        return self._client.ask(method, path, body, seconds=seconds)

    def _did(self, kind: str, what: Callable[[], object]) -> bool:
        """Do one thing and write it down; whether it was answered well."""
        began, outcome, well = time.time(), "done", True
        try:
            what()
        except LabError as error:
            outcome, well = f"not answered: {str(error)[:200]}", False
        self._took.seconds = time.time() - began
        with self._lock, self._log.open("a", encoding="utf-8") as log:
            (self.done if well else self.refused)[kind] += 1
            log.write(f"{began:.3f} {kind}: {outcome} ({self._took.seconds:.2f} s)\n")
        return well

    def _again(self, work: Callable[[int], None], seconds: float) -> None:
        """Until the night is over: wait so long, or longer where the last request took long."""
        try:
            for number in itertools.count(1):
                pause = seconds if number > 1 else 2.0
                if self._over.wait(max(pause, PATIENCE * getattr(self._took, "seconds", 0.0))):
                    return
                work(number)
        except BaseException as error:  # noqa: BLE001  (whatever it is, it is raised in the caller's thread)
            self._broken.append(error)

    def _rolls(self, _: int) -> None:
        number = self.done["rollover"] + 1
        replicas = len(SIX) if number % UNPLACEABLE_EVERY == 1 else 1
        settings = {"index.number_of_shards": 1, "index.number_of_replicas": replicas}
        if self._did("rollover", lambda: self._ask("POST", "/rolled/_rollover", {"settings": settings})):
            self._deletes(f"rolled-{number + 1 - KEPT:06d}", kept=number < KEPT)

    def _saves(self, number: int) -> None:
        name = f"/_snapshot/{REPOSITORY_NAME}/saved-{number}"
        wanted = {"indices": SAVED, "include_global_state": False}

        def save() -> None:
            said = self._ask("PUT", f"{name}?wait_for_completion=true", wanted, seconds=60.0)
            if said["snapshot"]["state"] != "SUCCESS":  # a shard whose node went down meanwhile
                raise LabError(f"the snapshot is {said['snapshot']['state']}")

        if self._did("snapshot", save):
            renamed = {**wanted, "rename_pattern": SAVED, "rename_replacement": f"restored-{number}"}
            self._did("restore", lambda: self._ask("POST", f"{name}/_restore", renamed))
            self._deletes(f"restored-{number - KEPT}", kept=number <= KEPT)

    def _deletes(self, index: str, *, kept: bool) -> None:
        """As those do who keep only the latest; one that never came about is no loss."""
        if not kept:
            self._did("delete", lambda: self._ask("DELETE", f"/{index}?ignore_unavailable=true"))

    def _closes(self, _: int) -> None:
        if self._did("close", lambda: self._ask("POST", f"/{CLOSED}/_close")):
            self._over.wait(2.0)
            self._did("open", lambda: self._ask("POST", f"/{CLOSED}/_open"))

    def _swings(self, number: int) -> None:
        body = {"index.number_of_replicas": 1 + number % 2}
        self._did("replicas", lambda: self._ask("PUT", f"/{SWUNG}/_settings", body))

    def _merges(self, number: int) -> None:
        document = {"number": number, "text": f"text {number}"}
        self._did("write", lambda: self._ask("POST", f"/{MERGED}/_doc?refresh=true", document))
        self._did("merge", lambda: self._ask("POST", f"/{MERGED}/_forcemerge?max_num_segments=1"))

    def _flaps(self, number: int) -> None:
        """It leaves, or stands still as in a long garbage collection: a member that answers nothing."""

        def leave() -> None:
            self._lab.stop_nodes([FLAPPING])
            try:
                self._over.wait(4.0)
            finally:
                self._lab.start_nodes([FLAPPING])

        def freeze() -> None:
            pid = self._lab.pids()[FLAPPING]
            os.kill(pid, signal.SIGSTOP)
            try:
                self._over.wait(4.0)
            finally:
                os.kill(pid, signal.SIGCONT)

        self._did(*(("node leaves", leave) if number % 2 else ("node freezes", freeze)))


_ALL_RAN = r".*before_stop (.*)while_stopped (.*)after_recovery"


@dataclass(slots=True, kw_only=True)
class HookRecords:
    """A file to which every hook writes its moment, its node, and whether the node's process is there."""

    folder: Path  # of the test; holds the file
    lab: LabCluster  # the cluster
    file: Path = field(init=False)

    def __post_init__(self) -> None:
        self.file = self.folder / "hooks.txt"
        self.file.touch()

    def hooks(self) -> dict[str, list[dict[str, Any]]]:
        """For a playbook."""
        status, file = shlex.quote(str(self.lab.directory / "nodestatus")), shlex.quote(str(self.file))
        shown = f"if {status} {{node}} >/dev/null; then echo alive; else echo gone; fi"
        return {
            moment: [{"run": f'state=$({shown}); echo {{node}} {moment} "$state" "$(date +%s.%N)" >> {file}'}]
            for moment in ("before_stop", "while_stopped", "after_recovery")
        }

    def ran(self) -> dict[str, list[str]]:
        """The moments of each node, in their order; a hook beside a process in the wrong state fails."""
        found: dict[str, list[str]] = {}
        for line in self.file.read_text(encoding="utf-8").splitlines():
            node, moment, state, _ = line.split()
            assert state == ("gone" if moment == "while_stopped" else "alive"), line
            found.setdefault(node, []).append(moment)
        return found

    def assert_once_each(self, but: Collection[str]) -> None:
        """Before the stop, while stopped, and after, once each; a called-off wave may come before.

        The nodes of `but` had more than one turn.
        """
        once = r"(before_stop after_recovery )*before_stop while_stopped after_recovery"
        self._match(lambda node: _ALL_RAN if node in but else once)

    def assert_all_ran(self) -> None:
        """The same after kills and interruptions: a hook whose outcome is not recorded runs again."""
        self._match(lambda _: _ALL_RAN)

    def _match(self, pattern: Callable[[str], str]) -> None:
        ran = self.ran()
        assert set(ran) == set(SIX), ran
        for node, moments in ran.items():
            assert re.fullmatch(pattern(node), " ".join(moments)), f"{node}: {moments}"


def _profile(folder: Path) -> Path:
    """A tuning profile of one value, which the machine has already: a test must not change its kernel.

    Tests on hosts change others meanwhile; this one is every container's own.
    """
    value = int(Path("/proc/sys/net/ipv4/tcp_retries2").read_text(encoding="utf-8"))
    profile = folder / "tuning.yml"
    content = {
        "applies_to": "elasticsearch",
        "persist": False,
        "on_failure": "stop",
        "settings": {"net.ipv4.tcp_retries2": value},
    }
    profile.write_text(json.dumps(content), encoding="utf-8")
    return profile


def _assert_six_restarted(lab: LabCluster, before: Truth, where: str, *, once: Collection[str]) -> None:
    """Each of the six lives another life, settings and leases are as before, all copies are there."""
    lab.wait_ready(status="green", seconds=120)
    after = truth(lab)
    for name in SIX:
        assert after.lives[name] != before.lives[name], f"{where}: {name}"
        assert name not in once or after.starts[name] - before.starts[name] == 1, f"{where}: {name}"
    assert after.settings == before.settings, where
    assert after.leases == (), where


def _assert_nothing_was_lost(vigil: Vigil, went_by: Mapping[str, str]) -> None:
    """No acknowledged document, no search, no shard that nobody closed; never nodes of two zones away."""
    told = vigil.told()
    assert vigil.proof.whole, told
    assert vigil.watcher.seen.lost == [
        each for each in vigil.watcher.seen.lost if each.shard.startswith(f"[{CLOSED}]")
    ], told
    for away in vigil.watcher.seen.away:
        assert len({went_by[name] for name in away}) <= 1, told


def _figures(night: Night, vigil: Vigil) -> str:
    """For the output; the index that is closed again and again is read without copies as often."""
    closed = re.escape(f"[{CLOSED}][0]")
    return f"{night.told()}\n  {re.sub(f'({closed}, )*{closed}', f'[{CLOSED}][0] (closed)', vigil.told())}"


@contextmanager
def _night(lab: LabCluster, folder: Path) -> Iterator[tuple[Night, Vigil]]:
    zones = zones_of(SIX_IN_THREE)
    roles = LabClient(lab.access).ask("GET", "/_cat/nodes?h=name,node.role&format=json")
    assert [node["name"] for node in roles if node["node.role"] == "-"] == [FLAPPING], roles
    with (
        Vigil(only(lab.access, list(SIX), lab), zones) as vigil,
        Night(lab, folder / "night.txt") as night,
    ):
        yield night, vigil


def _until_the_night_had_all(night: Night, seconds: float = 900.0) -> None:
    """A run may be over before everything has happened: the rest comes after it, however slow the machine."""
    limit = time.monotonic() + seconds
    while night.missed() and time.monotonic() < limit:
        time.sleep(0.5)
    assert night.missed() == [], night.told()


@pytest.mark.parametrize(("strategy", "version"), [("zone", QUICKEST), ("node", "9.1.0")])
@pytest.mark.proves("ordinary-night")
def test_a_run_ends_well_on_an_ordinary_night(
    *,
    process_cluster: ProcessCluster,
    bastion_of: BastionOf,
    tmp_path: Path,
    show: Show,
    strategy: str,
    version: str,
) -> None:
    lab = process_cluster(version, nodes=SEVEN)
    records = HookRecords(folder=tmp_path, lab=lab)
    playbook = {**PLAYBOOK, "tune": str(_profile(tmp_path))}
    bastion = bastion_of(lab, document=EXPECTED, playbook=playbook, hooks=records.hooks(), strategy=strategy)
    before = prepare(lab)
    with _night(lab, tmp_path) as (night, vigil):
        run = bastion.begin_restart("--output", "json", *ONLY_THE_SIX)
        code = bastion.end(run, NIGHT_SECONDS)
        _until_the_night_had_all(night)
    show(f"{version} {strategy}\n  {story(bastion.said[-1])}\n  {_figures(night, vigil)}")
    assert code == DONE, f"{bastion.story()}\n{night.told()}"
    again = rescued(bastion.said, vigil.watcher.seen)
    records.assert_once_each(but=again)
    _assert_six_restarted(lab, before, bastion.story(), once=set(SIX) - again)
    _assert_nothing_was_lost(vigil, zones_of(SIX_IN_THREE))


@pytest.mark.proves("killed-at-night")
def test_a_run_killed_on_an_ordinary_night_ends_well(
    *,
    process_cluster: ProcessCluster,
    bastion_of: BastionOf,
    tmp_path: Path,
    show: Show,
) -> None:
    """A signal after seconds that are drawn, `resume` after each: 0 in the end, and everything was done."""
    chance = random.Random(SEED)  # noqa: S311  (a seed that can be given again)
    lab = process_cluster(QUICKEST, nodes=SEVEN)
    records = HookRecords(folder=tmp_path, lab=lab)
    bastion = bastion_of(lab, document=EXPECTED, playbook=PLAYBOOK, hooks=records.hooks(), strategy="zone")
    before = prepare(lab)
    told = [f"ORCHESTRATE_SEED={SEED}:"]
    with _night(lab, tmp_path) as (night, vigil):
        run = bastion.begin_restart("--output", "json", *ONLY_THE_SIX)
        for number in itertools.count():
            code = (
                _disturbed(bastion, run, chance, told) if number < KILLS else bastion.end(run, NIGHT_SECONDS)
            )
            if code == DONE:
                break
            assert code in (KILLED, INTERRUPTED), f"{' '.join(told)}\n{bastion.story()}\n{night.told()}"
            run = bastion.begin("resume", "--yes", "--output", "json")
    show(f"{' '.join(told)}\n  {_figures(night, vigil)}")
    rescued(bastion.said, vigil.watcher.seen)
    records.assert_all_ran()
    _assert_six_restarted(lab, before, f"{' '.join(told)}\n{bastion.story()}", once=())
    _assert_nothing_was_lost(vigil, zones_of(SIX_IN_THREE))


def _disturbed(bastion: Bastion, run: subprocess.Popen[str], chance: random.Random, told: list[str]) -> int:
    """Its exit code, after a signal that came after some seconds, or without one if it was over before.

    The seconds count from the first thing that it does: how long a process takes to load is another matter.
    """
    seconds = chance.uniform(2.0, 16.0)
    which = chance.choice([signal.SIGINT, signal.SIGKILL])
    while run.poll() is None and not bastion.passed():
        time.sleep(0.05)
    limit = time.monotonic() + seconds
    while run.poll() is None and time.monotonic() < limit:
        time.sleep(0.05)
    if run.poll() is None:
        run.send_signal(which)
        told.append(f"{which.name} after {seconds:.1f} s")
    return bastion.end(run, NIGHT_SECONDS)


# Small scenes ------------------------------------


def _go_on(folder: Path) -> tuple[dict[str, list[dict[str, Any]]], Callable[[str], None]]:
    """A `while_stopped` hook that keeps each node down until it is let go."""
    file = shlex.quote(str(folder))
    hook = {"run": f"until [ -e {file}/{{node}} ]; do sleep 0.1; done"}
    return {"while_stopped": [hook]}, lambda node: (folder / node).touch()


@pytest.mark.proves("interrupted")
def test_an_interrupted_turn_is_done_again_with_its_hooks(
    process_cluster: ProcessCluster, bastion_of: BastionOf, tmp_path: Path
) -> None:
    """Interrupted after the stop: the node is started without its hook, which `resume` makes up for."""
    lab = process_cluster(QUICKEST, nodes=SEVEN)
    records = HookRecords(folder=tmp_path, lab=lab)
    hooks = {"while_stopped": records.hooks()["while_stopped"]}
    bastion, before = bastion_of(lab, document=EXPECTED, playbook=PLAYBOOK, hooks=hooks), prepare(lab)
    run = bastion.begin_restart("--only", "es1")
    bastion.await_seam(run, entered("stopping"))
    run.send_signal(signal.SIGINT)
    assert bastion.end(run) == INTERRUPTED, bastion.story()
    assert records.ran() == {}, "the signal came too late to show anything"
    assert bastion.orchestrate("resume", "--yes") == DONE, bastion.story()
    assert records.ran() == {"es1": ["while_stopped"]}, bastion.story()
    after = truth(lab)
    assert after.settings == before.settings
    assert after.lives["es1"] != before.lives["es1"]


@pytest.mark.proves("unplaceable-copies", "index-changes")
def test_changes_to_indices_while_a_node_is_down_are_ignored(
    process_cluster: ProcessCluster, bastion_of: BastionOf, tmp_path: Path
) -> None:
    """While es1 is down an index is made with a replica too many; while es2 is, one is closed and opened.

    While es3 is, another one gets a replica too many, and a restore begins that outlasts the run: as long as
    it goes on its primary is missing.
    """
    lab = process_cluster(QUICKEST, nodes=SEVEN)
    gate = tmp_path / "go"
    gate.mkdir()
    hooks, let_go = _go_on(gate)
    three = ("es1", "es2", "es3")
    bastion, before = bastion_of(lab, document=EXPECTED, playbook=PLAYBOOK, hooks=hooks), prepare(lab)
    seed(
        lab.client,
        [
            SeedIndex(name=CLOSED, shards=2, replicas=5, documents=50),
            SeedIndex(name=SWUNG, shards=1, documents=50),
        ],
    )
    restore = _slow_restore(lab)
    run = bastion.begin_restart("--output", "json", *itertools.chain(*(("--only", name) for name in three)))
    bastion.await_seam(run, entered("stopped", node="es1"))
    settings = {"number_of_shards": 1, "number_of_replicas": len(SIX)}
    lab.client.ask("PUT", "/one-too-many?timeout=1s&wait_for_active_shards=1", {"settings": settings})
    let_go("es1")
    bastion.await_seam(run, entered("stopped", node="es2"))
    lab.client.ask("POST", f"/{CLOSED}/_close")
    lab.client.ask("POST", f"/{CLOSED}/_open")
    let_go("es2")
    bastion.await_seam(run, entered("stopped", node="es3"))
    lab.client.ask("PUT", f"/{SWUNG}/_settings?timeout=1s", {"index.number_of_replicas": len(SIX)})
    restore()
    let_go("es3")
    assert bastion.end(run) == DONE, bastion.story()
    still = _active_primaries(lab, "restored")
    said = bastion.said[-1]
    assert events(said, "rescued") == [], bastion.story()
    told = str(events(said, "not_waited_for"))
    assert "one-too-many" in told, bastion.story()
    assert SWUNG in told, bastion.story()
    assert still == 0, "the restore was over too early to show anything"
    lab.client.ask("DELETE", f"/one-too-many,{SWUNG},restored")
    assert_restarted_once(lab, before, bastion.story(), nodes=three)


def _slow_restore(lab: LabCluster) -> Callable[[], None]:
    """Save an index; what is given restores it as `restored`, at a rate at which that takes many minutes."""
    repository, name = f"/_snapshot/{REPOSITORY_NAME}", "kept"
    settings = {"location": str(lab.directory / REPOSITORY), "max_restore_bytes_per_sec": "10kb"}
    lab.client.ask("PUT", repository, {"type": "fs", "settings": settings})
    lab.client.ask("PUT", f"/{name}", {"settings": {"number_of_shards": 1}})
    lab.client.ask("POST", f"/{name}/_bulk?refresh=true", _documents(6000))
    saved = {"indices": name, "include_global_state": False}
    lab.client.ask("PUT", f"{repository}/kept?wait_for_completion=true", saved, seconds=60.0)
    lab.wait_ready(status="green")
    renamed = {**saved, "rename_pattern": name, "rename_replacement": "restored"}
    return lambda: lab.client.ask("POST", f"{repository}/kept/_restore", renamed)


def _active_primaries(lab: LabCluster, index: str) -> int:
    health = lab.client.ask("GET", f"/_cluster/health/{index}", accept=(408,))
    return int(health["active_primary_shards"])


@pytest.mark.proves("refused-calls")
def test_single_refusals_and_a_write_in_doubt_end_no_run(
    process_cluster: ProcessCluster, bastion_of: BastionOf, tmp_path: Path
) -> None:
    """The first update that disables allocation is refused with 429, and the first stop by its command.

    The first time that the lease is to name the node that goes down, that is written and no answer comes.
    """
    lab = process_cluster(QUICKEST, nodes=SEVEN)
    before = prepare(lab)
    once = shlex.quote(str(tmp_path / "refused"))
    nodectl = shlex.quote(str(lab.directory / "nodectl"))
    stop = f"if [ -e {once} ]; then {nodectl} stop {{node}}; else touch {once}; echo no right >&2; exit 1; fi"
    with Refusing(lab, times=REQUEST_ATTEMPTS) as refusing:
        hosts = lab.cluster_document()["hosts"]
        service = {**hosts["service"], "stop": f"sh -c {shlex.quote(stop)}"}
        document = {**EXPECTED, "endpoints": [refusing.url], "hosts": {**hosts, "service": service}}
        # The run does not end before a stop that may come late could come: at most this limit.
        hasty = {**PLAYBOOK, "deadlines": {**PLAYBOOK["deadlines"], "stop": "1m"}}
        bastion = bastion_of(lab, document=document, playbook=hasty)
        code = bastion.restart("--output", "json", "--only", "es1")
    assert code == DONE, bastion.story()
    assert refusing.refusals == REQUEST_ATTEMPTS
    assert refusing.cuts == 1
    failed = [(line["action"]["verb"], line["reason"]) for line in events(bastion.said[-1], "action_failed")]
    assert any(verb == "stop" and "no right" in reason for verb, reason in failed), failed
    assert any("429" in reason for _, reason in failed), failed
    assert any("the record in the cluster could not be written" in reason for _, reason in failed), failed
    assert_restarted_once(lab, before, bastion.story(), nodes=["es1"])


@pytest.mark.proves("busy-candidate")
def test_a_candidate_that_merges_is_passed_over(
    process_cluster: ProcessCluster, bastion_of: BastionOf
) -> None:
    """Merges on es1 go on and on: es2 goes first, and es1 once they have ended."""
    lab = process_cluster(QUICKEST, nodes=SEVEN)
    before = prepare(lab)
    bastion = bastion_of(lab, document=EXPECTED, playbook=PLAYBOOK)
    with merging(lab, on=("es1", "es5")) as merges:
        run = bastion.begin_restart("--output", "json", "--only", "es1", "--only", "es2")
        bastion.await_seam(run, entered("stopped", node="es2"))
        merges.set()
        assert bastion.end(run) == DONE, bastion.story()
    assert waves(bastion.said[-1]) == [("es2",), ("es1",)], bastion.story()
    assert_restarted_once(lab, before, bastion.story(), nodes=["es1", "es2"])


@contextmanager
def merging(lab: LabCluster, *, on: tuple[str, str]) -> Iterator[threading.Event]:
    """Force-merges on two nodes, queued one behind the other, until the event is set."""
    index = "merging"
    pinned = {"index.routing.allocation.include._name": ",".join(on)}
    lab.client.ask("PUT", f"/{index}", {"settings": {"number_of_shards": 1, **pinned}})
    lab.wait_ready(status="green")
    over, broken = threading.Event(), list[BaseException]()
    first = threading.Semaphore(0)

    def work() -> None:
        client = lab.client
        try:
            while not over.is_set():
                client.ask("POST", f"/{index}/_bulk?refresh=true", _documents(500))
                client.ask("POST", f"/{index}/_forcemerge?max_num_segments=1", seconds=120.0)
                first.release()
        except LabError as error:
            if not over.is_set():
                broken.append(error)

    threads = [threading.Thread(target=work, name=f"merges-{each}", daemon=True) for each in range(4)]
    for thread in threads:
        thread.start()
    assert first.acquire(timeout=60), broken
    try:
        yield over
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert broken == []


def _documents(count: int) -> str:
    action, dice = json.dumps({"index": {}}), random.SystemRandom()
    return "".join(f"{action}\n{json.dumps({'text': dice.randbytes(500).hex()})}\n" for _ in range(count))


class Refusing(Passing):
    """Refuses to disable allocation, as a busy cluster does (429).

    It passes the first record of the lease that names a node in hand on, and cuts the answer off.

    Args:
        lab: the cluster.
        times: how often it refuses.

    Attributes:
        refusals: how many updates it refused.
        cuts: how many lease writes it passed on without an answer.
    """

    def __init__(self, lab: LabCluster, *, times: int) -> None:
        super().__init__(lab.endpoints)
        self.refusals = self.cuts = 0
        self._times = times

    def refused(self, method: str, path: str, body: bytes) -> tuple[int, Any] | None:
        """429 for the first updates that disable allocation."""
        del path
        disables = b"cluster.routing.allocation.enable" in body and b'"primaries"' in body
        if method != "PUT" or not disables or self.refusals >= self._times:
            return None
        self.refusals += 1
        return 429, {"error": {"type": "circuit_breaking_exception", "reason": "busy"}, "status": 429}

    def cut_off(self, method: str, path: str, body: bytes) -> bool:
        """Once, for a record that names a node in hand."""
        if self.cuts or method != "PUT" or "/orchestrate-lease-" not in path:
            return False
        kept = json.loads(body)["_meta"]["orchestrate"]
        cut = bool(json.loads(kept)["in_hand"])
        self.cuts += cut
        return cut
