"""`orchestrate upgrade` on three real nodes under load, with indices that roll over.

The packages of the lab lack the API that lists deprecations, so that predicate is disabled; without that an
upgrade to another major version is held.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.integration import killing
from tests.integration.generations import (
    DATA,
    PLAYBOOK,
    ROLES,
    Story,
    assert_settings,
    prepare,
    settings_of,
    small_lab,
    under_load,
)
from tests.integration.restarting import Begun, events, held_by, orchestrate
from tests.integration.secured import SECURED
from tests.lab.client import LabClient
from tests.lab.distributions import find_distribution
from tests.lab.java import find_java
from tests.lab.nodes import LabCluster

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import ProcessCluster, Show

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]
in_upgrades = pytest.mark.part(name="upgrades")

OLD, NEW = "7.17.28", "8.19.0"
REMOVED = "gateway.expected_nodes"
"""A setting that 7.17 takes and 8 refuses."""


@pytest.fixture(scope="module")
def packages() -> Iterator[Packages]:
    with small_lab(OLD) as lab:
        prepare(lab)
        yield Packages(lab, NEW)


def _held(
    packages: Packages,
    folder: Path,
    *words: str,
    to: str = NEW,
    unlisted: bool = True,
    **changes: object,
) -> Mapping[str, str]:
    """The predicates that hold an upgrade, with what is said. Nothing was changed or installed."""
    lab = packages.lab
    pids, before = lab.pids(), _asked(lab, settings_of)
    if unlisted:
        words = (*words, "--disable-predicate", "no_critical_deprecations")
    book = packages.playbook(upgrade=packages.upgrade(**changes))
    code, lines = orchestrate(packages, folder, "upgrade", "--to", to, *words, playbook=book)
    assert code == 3, lines[-1]
    assert lab.pids() == pids
    assert_settings(lab, before, Story(OLD))
    assert packages.installs().begun == {}
    found = {name for name, _ in held_by(lines)}
    text = str(lines)
    return dict.fromkeys(found, text)


@in_upgrades
def test_an_upgrade_that_cannot_go_well_is_held(
    packages: Packages, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """The last row: the servers of these tests lack that part of X-Pack, and unknown is never healthy."""
    for to, changes, unlisted, predicate, says in (
        ("9.1.0", {"verify": []}, True, "upgrade_path_is_supported", "upgrade to the last 8.x first"),
        ("7.17.0", {"verify": []}, True, "no_node_is_newer", "newer than 7.17.0"),
        ("8.18.0", {}, True, "hosts_can_install", "package-8.18.0"),
        (NEW, {}, False, "no_critical_deprecations", "GET /_migration/deprecations"),
    ):
        with subtests.test(predicate=predicate):
            held = _held(packages, tmp_path, to=to, unlisted=unlisted, **changes)
            assert set(held) == {predicate}
            assert says in held[predicate]


@in_upgrades
def test_no_snapshot_then_an_old_one(packages: Packages, tmp_path: Path) -> None:
    lab = packages.lab
    held = _held(packages, tmp_path, snapshot_younger_than="1h")
    assert "there is no finished snapshot" in held["snapshot_is_recent"]
    lab.client.ask("PUT", "/_snapshot/nightly", {"type": "fs", "settings": {"location": "nightly"}})
    lab.client.ask("PUT", "/_snapshot/nightly/one?wait_for_completion=true", {"indices": "people"})
    held = _held(packages, tmp_path, snapshot_younger_than="1s")
    assert "the youngest, nightly/one, is" in held["snapshot_is_recent"]
    held = _held(packages, tmp_path, to="8.18.0", snapshot_younger_than="1h")
    assert set(held) == {"hosts_can_install"}, "this one is young enough"


@in_upgrades
def test_a_keystore_with_a_password(packages: Packages, tmp_path: Path) -> None:
    """By the server's own tool, in the home of a server that was unpacked."""
    lab = packages.lab
    name, pid = next(iter(lab.pids().items()))
    words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
    (home,) = (word.partition("=")[2] for word in words if word.startswith("-Des.path.home="))
    config = lab.directory / name / "config"
    # As in every package but the reduced one of these tests.
    for tool in Path(home, "bin").iterdir():
        tool.chmod(0o755)
    bundled = Path(home, "jdk")
    bundled.symlink_to(find_java(find_distribution(OLD)).path)
    keystore = config / "elasticsearch.keystore"
    found, owner = keystore.read_bytes(), keystore.stat()
    try:
        subprocess.run(  # noqa: S603  (the server's own)
            [f"{home}/bin/elasticsearch-keystore", "passwd"],
            env={**os.environ, "ES_PATH_CONF": str(config)},
            input="secret-1\nsecret-1\n",
            text=True,
            capture_output=True,
            check=True,
        )
        assert set(_held(packages, tmp_path)) == {"keystores_need_no_password"}
    finally:
        keystore.write_bytes(found)
        os.chown(keystore, owner.st_uid, owner.st_gid)
        bundled.unlink()


@in_upgrades
def test_a_setting_that_the_target_refuses(packages: Packages, tmp_path: Path) -> None:
    lab, name = packages.lab, packages.lab.nodes[0].name
    with (lab.directory / name / "config" / "elasticsearch.yml").open("a", encoding="utf-8") as file:
        file.write(f"\n{REMOVED}: 3\n")
    lab.stop_nodes([name])
    lab.start_nodes([name])
    lab.wait_ready(status="green")
    held = _held(packages, tmp_path)
    assert set(held) == {"settings_known_to_target"}
    assert REMOVED in held["settings_known_to_target"]
    assert f"take it out of the files of {name}" in held["settings_known_to_target"]


_PARTS: Final = ("config", "launch.json")
_SCRIPT: Final = """\
#!/bin/sh
# install NODE VERSION
set -e
cd {directory}/"$1"
printf 'begun %s %s\\n' "$1" "$2" >> {log}
sleep {seconds}
rm -rf config.new
cp -rp "package-$2/config" config.new
cp -p "package-$2/launch.json" launch.json.new
rm -rf config
mv config.new config
mv launch.json.new launch.json
printf 'ended %s %s\\n' "$1" "$2" >> {log}
"""


@dataclass(frozen=True, slots=True)
class Installs:
    """What the script wrote down: how often it began and ended, by node."""

    begun: Mapping[str, int]
    ended: Mapping[str, int]


class Packages:
    """The packages of a lab's nodes: the version that they run, and another one.

    Args:
        lab: whose nodes they are for.
        settings: of the nodes with the other version, beside those of the lab.
        seconds: how long an installation takes at least.
    """

    def __init__(
        self,
        lab: LabCluster,
        version: str,
        *,
        settings: Mapping[str, str] | None = None,
        seconds: float = 2.0,
    ) -> None:
        self.version = version.rpartition("-")[2]
        self.lab = lab
        self._log = lab.directory / f"installs-{self.version}.log"
        self._script = lab.directory / f"install-{self.version}"
        for node in lab.nodes:
            self._stage(node.name, version, settings or {})
        directory, log = (shlex.quote(str(path)) for path in (lab.directory, self._log))
        text = _SCRIPT.format(directory=directory, log=log, seconds=seconds)
        self._script.write_text(text, encoding="utf-8")
        self._script.chmod(0o755)

    def _stage(self, node: str, version: str, settings: Mapping[str, str]) -> None:
        folder = self.lab.directory / node
        _copy(folder, folder / "package-before")
        self.lab.upgrade(node, version)
        self.lab.configure(node, settings)
        _copy(folder, folder / f"package-{self.version}")
        _copy(folder / "package-before", folder)

    def cluster_document(self) -> dict[str, Any]:
        """The lab's cluster file. Each node has a package of its own, so they need not go together."""
        document: dict[str, Any] = self.lab.cluster_document()
        return {**document, "hosts": {**document["hosts"], "together": "never"}}

    def upgrade(self, **changes: object) -> dict[str, Any]:
        """The playbook's `upgrade`."""
        there = shlex.quote(str(self.lab.directory)) + "/{node}"
        return {
            "install": [{"run": f"{shlex.quote(str(self._script))} {{node}} {{version}}", "as_root": False}],
            "installed": f"cmp -s {there}/package-{{version}}/launch.json {there}/launch.json",
            "verify": [{"run": f"test -d {there}/package-{{version}}"}],
            **changes,
        }

    def playbook(self, **changes: object) -> dict[str, Any]:
        """A playbook that upgrades to the other version."""
        return {**PLAYBOOK, "upgrade": self.upgrade(), **changes}

    def installs(self) -> Installs:
        """The installations so far."""
        text = self._log.read_text(encoding="utf-8") if self._log.exists() else ""
        counts = {word: Counter[str]() for word in ("begun", "ended")}
        for line in text.splitlines():
            word, node, _ = line.split()
            counts[word][node] += 1
        return Installs(begun=counts["begun"], ended=counts["ended"])


def _copy(source: Path, target: Path) -> None:
    """The parts of a version, with their owners."""
    target.mkdir(exist_ok=True)
    for part in _PARTS:
        found, place = source / part, target / part
        if found.is_dir():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(found, place, copy_function=shutil.copy2)
            shutil.copystat(found, place)
        else:
            shutil.copy2(found, place)
    _same_owner(source, target)


def _same_owner(source: Path, target: Path) -> None:
    for part in _PARTS:
        for path in ((source / part), *(source / part).rglob("*")):
            found = path.stat()
            shutil.chown(target / path.relative_to(source), found.st_uid, found.st_gid)


CLUSTER = "8.19.0"
UNLISTED = ("--disable-predicate", "no_critical_deprecations")
ROLLED = "rolled"
FEWEST_KILLS = 5
"""An upgrade of three nodes has more than two hundred seams."""


def _packages(lab: LabCluster, version: str) -> Packages:
    roles = {"node.roles": ROLES[version]} if version in ROLES else {}
    return Packages(lab, version, settings=roles)


def _asked(lab: LabCluster, what: Callable[[LabClient], Any]) -> Any:
    with closing(lab.client) as client:
        return what(client)


def _versions(lab: LabCluster) -> dict[str, str]:
    nodes = _asked(lab, lambda client: client.ask("GET", "/_nodes/_all/process"))["nodes"].values()
    return {node["name"]: node["version"] for node in nodes}


@contextmanager
def _rollovers(lab: LabCluster, seconds: float = 20.0) -> Iterator[None]:
    """A write alias that gets another index every so many seconds, as with index lifecycles."""
    ended = threading.Event()
    first = {"settings": {"number_of_shards": 1, "number_of_replicas": 1}, "aliases": {ROLLED: {}}}
    exists = _asked(lab, lambda client: client.ask("GET", "/_cat/aliases?format=json"))
    if ROLLED not in {each["alias"] for each in exists}:
        _asked(lab, lambda client: client.ask("PUT", f"/{ROLLED}-000001", first))

    def roll() -> None:
        while not ended.wait(seconds):
            try:
                _asked(lab, lambda client: client.ask("POST", f"/{ROLLED}/_rollover", {}))
            except Exception as failure:  # noqa: BLE001  (a node goes down beside it: the next one in 20 s)
                sys.stderr.write(f"no rollover: {failure}\n")

    thread = threading.Thread(target=roll, name="rollovers")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _finished(folder: Path, packages: Packages, story: Story, *words: str) -> None:
    """Resume until it is done."""
    code, lines = orchestrate(packages, folder, "resume", *words, playbook=packages.playbook())
    story.add(f"resume: exit {code}, {lines[-1].get('outcome')}: {lines[-1].get('message')}")
    assert code == 0, "\n".join(map(str, lines[-8:]))


def _begun(folder: Path, packages: Packages) -> Begun:
    words = ("--to", packages.version, *UNLISTED)
    return Begun(packages, folder, "upgrade", *words, playbook=packages.playbook())


def plainly(lab: LabCluster, folder: Path, packages: Packages, story: Story) -> None:
    """One run, undisturbed; a second one finds nothing to do."""
    words = ("upgrade", "--to", packages.version, *UNLISTED)
    code, lines = orchestrate(packages, folder, *words, playbook=packages.playbook())
    story.add(f"upgrade: exit {code}, {lines[-1].get('outcome')}")
    assert code == 0, "\n".join(map(str, lines[-8:]))
    before = lab.pids()
    code, lines = orchestrate(packages, folder, *words, playbook=packages.playbook())
    story.add(f"again: exit {code}, {lines[-1]}")
    assert code == 0, lines[-1]
    assert lab.pids() == before


def killed(_lab: LabCluster, folder: Path, packages: Packages, story: Story) -> None:
    """SIGKILL at a random line of its output, three times, each resumed."""
    dice = random.Random(packages.version)  # noqa: S311  (repeatable, and secret to nobody)
    at = dice.randint(8, 40)
    with _begun(folder, packages) as run:
        run.wait_for(lambda _: len(run.lines()) >= at)
    story.add(f"SIGKILL after {at} lines")
    for _ in range(2):
        at = dice.randint(8, 24)
        with Begun(packages, folder, "resume", playbook=packages.playbook()) as run:
            run.wait_for(lambda _, at=at: len(run.lines()) >= at)
        story.add(f"resumed, and SIGKILL after {at} lines")
    _finished(folder, packages, story)


def started_too_early(lab: LabCluster, folder: Path, packages: Packages, story: Story) -> None:
    """Something else starts a node as soon as its installation has begun."""
    with _begun(folder, packages) as run:
        sent = run.wait_for(
            lambda line: line["event"] == "action_sent" and line["action"]["verb"] == "install"
        )
        name = sent["action"]["node"]
        subprocess.run(lab.nodectl("start", name), check=True, capture_output=True)  # noqa: S603  (the lab's)
        code, lines = run.end(600)
    again = [line["node"] for line in events(lines, "owed_again")]
    story.add(f"{name} was started beside its installation; owed again: {again}; exit {code}")
    assert code == 0, "\n".join(map(str, lines[-8:]))
    assert name in again, "the process that came up beside the step upgraded nothing"


def rescued(lab: LabCluster, folder: Path, packages: Packages, story: Story) -> None:
    """After the last reading a new index has its only copy on the first node, which is started at once."""
    words = ("--to", packages.version, *UNLISTED)
    book = packages.playbook()
    code, lines = orchestrate(packages, folder, "plan", *words, playbook=book)
    assert code == 0, lines[-1]
    (plan,) = events(lines, "plan")
    name = plan["waves"][0]["nodes"][0]
    race = {"moment": "stop", "node": name, "endpoint": lab.endpoints[0]}
    soon = {**book, "deadlines": {**book["deadlines"], "hold": "10s"}}
    code, lines = orchestrate(packages, folder, "upgrade", *words, playbook=soon, race=race)
    shards = [line["shards"] for line in events(lines, "rescued")]
    story.add(f"rescued {shards}: exit {code}, {lines[-1].get('message')}")
    assert shards == [["[just-made][0]"]], "\n".join(map(str, lines[-8:]))
    assert code != 0, "that node still needs the version"
    _asked(lab, lambda client: client.ask("DELETE", "/just-made"))
    _finished(folder, packages, story)


def upgraded(
    lab: LabCluster,
    folder: Path,
    version: str,
    story: Story,
    how: Callable[[LabCluster, Path, Packages, Story], None],
) -> None:
    """Under load and rollovers: every node ends on the version, each installed once to its end."""
    folder.mkdir()
    for index in ("load", *(each.name for each in DATA)):
        _asked(lab, lambda client, index=index: client.ask("DELETE", f"/{index}", accept=(404,)))
    before = prepare(lab)
    packages = _packages(lab, version)

    def whole() -> None:
        with _rollovers(lab):
            how(lab, folder, packages, story)

    under_load(lab, whole, story)
    names = {node.name for node in lab.nodes}
    assert _versions(lab) == dict.fromkeys(names, packages.version), str(story)
    installs = packages.installs()
    story.add(f"installs begun {dict(installs.begun)}, ended {dict(installs.ended)}")
    assert installs.begun == installs.ended == dict.fromkeys(names, 1), str(story)
    assert_settings(lab, before, story)


WAYS: tuple[Callable[[LabCluster, Path, Packages, Story], None], ...] = (killed, started_too_early, rescued)


def test_three_nodes_are_upgraded_under_load(
    process_cluster: ProcessCluster, tmp_path: Path, show: Show
) -> None:
    """With TLS and users; the tests on 9.1 go on with that cluster."""
    story = Story(f"{CLUSTER} to 9.1.0")
    upgraded(process_cluster(CLUSTER, security=SECURED), tmp_path / "9.1.0", "9.1.0", story, plainly)
    show(str(story))


@in_upgrades
@pytest.mark.parametrize(
    "versions",
    [
        ("6.8.23", "7.17.28", "8.19.0", "9.1.0"),
        ("opensearch-1.3.20", "opensearch-2.19.0", "opensearch-3.1.0", "opensearch-3.3.0"),
    ],
    ids=["Elasticsearch", "OpenSearch"],
)
def test_a_cluster_is_upgraded_from_major_to_major(
    tmp_path: Path, show: Show, versions: tuple[str, ...]
) -> None:
    """Old indices are reindexed between the majors; each upgrade is disturbed in another way."""
    first, *others = versions
    with small_lab(first) as lab:
        for older, version, way in zip(versions, others, WAYS, strict=False):
            lab.distribution = find_distribution(older)  # the load speaks to it, and to the next one
            story = Story(f"to {version}, {way.__name__}")
            upgraded(lab, tmp_path / version, version, story, way)
            story.add(f"reindexed: {_reindex_old(lab, version)}")
            show(str(story))


def _reindex_old(lab: LabCluster, version: str) -> list[str]:
    """Give every index of an older major version a successor of this one, with as many documents."""
    major = version.rpartition("-")[2].partition(".")[0]
    settings = _asked(lab, lambda client: client.ask("GET", "/_all/_settings?flat_settings=true&human=true"))
    done = []
    for name, found in settings.items():
        created = str(found["settings"]["index.version.created_string"])
        if created.partition(".")[0] != major:
            _asked(lab, lambda client, name=name: _reindex(client, name, major))
            done.append(f"{name} of {created}")
    return done


def _reindex(client: LabClient, name: str, major: str) -> None:
    """With a scroll and bulk requests: the lab's packages have no module that reindexes."""
    new = f"{name.removeprefix('.')}-in-{major}"
    client.ask("POST", f"/{name}/_refresh")
    page = client.ask("POST", f"/{name}/_search?scroll=1m", {"size": 2000, "sort": ["_doc"]})
    while page["hits"]["hits"]:
        lines: list[str] = []
        for hit in page["hits"]["hits"]:
            lines += (json.dumps({"index": {"_id": hit["_id"]}}), json.dumps(hit["_source"]))
        answer = client.ask("POST", f"/{new}/_bulk", "\n".join(lines) + "\n", seconds=60)
        assert answer["errors"] is False, str(answer)[:500]
        page = client.ask("POST", "/_search/scroll", {"scroll": "1m", "scroll_id": page["_scroll_id"]})
    client.ask("POST", f"/{new}/_refresh", accept=(404,))
    old, copied = (
        client.ask("GET", f"/{each}/_count", accept=(404,)).get("count", 0) for each in (name, new)
    )
    assert old == copied, (name, old, copied)
    client.ask("DELETE", f"/{name}")


@in_upgrades
def test_an_index_that_is_too_old_holds_before_any_change(tmp_path: Path) -> None:
    """Made by 6.8, opened by 7.17, and not by 8."""
    with small_lab("6.8.23") as lab:
        prepare(lab)
        for node in lab.nodes:
            lab.upgrade(node.name, "7.17.28")
        lab.stop_nodes()
        lab.start_nodes()
        lab.wait_ready(status="green")
        before = _asked(lab, settings_of)
        pids = lab.pids()
        packages = _packages(lab, "8.19.0")
        words = ("--to", "8.19.0", *UNLISTED)
        code, lines = orchestrate(packages, tmp_path, "upgrade", *words, playbook=packages.playbook())
        assert code == 3, lines[-1]
        assert {name for name, _ in held_by(lines)} == {"indices_open_in_target"}, lines[-3:]
        assert "people" in str(lines), lines[-3:]
        assert lab.pids() == pids
        assert packages.installs().begun == {}
        assert_settings(lab, before, Story("6.8.23"))


@pytest.mark.part(name="kills")
def test_killed_again_and_again_every_step_runs_once(bastion_of: BastionOf) -> None:
    """SIGKILL, and resumed by a process that is killed too, until one comes to the end."""
    with small_lab("opensearch-2.19.0") as lab:
        before = killing.prepare(lab)
        packages = _packages(lab, "opensearch-3.1.0")
        book = {**killing.PLAYBOOK, "upgrade": packages.upgrade()}
        bastion = bastion_of(packages, playbook=book, together="never")
        words = ("--cluster", str(bastion.file), "--yes", "--to", packages.version)
        code = bastion.orchestrate("upgrade", *words, seam=2)
        kills = 0
        for number in count(3):
            if code == 0:
                break
            assert code == killing.KILLED, bastion.story()
            kills += 1
            code = bastion.orchestrate("resume", "--yes", seam=number)
        assert kills > FEWEST_KILLS, bastion.story()
        killing.assert_restarted_once(lab, before, bastion.story())
        names = {node.name for node in lab.nodes}
        assert _versions(lab) == dict.fromkeys(names, packages.version)
        installs = packages.installs()
        assert installs.begun == installs.ended == dict.fromkeys(names, 1), bastion.story()
