"""PostgreSQL as the state of several machines: a real server, and runs on a cluster whose nodes are files."""

from __future__ import annotations

import json
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

import pytest

from orchestrator.errors import JournalError
from orchestrator.model.cluster import NodeName
from orchestrator.model.tuning import ValueChange
from orchestrator.next_command import without_password
from orchestrator.runtime.database import DatabaseUse
from orchestrator.runtime.ledger import Tuning
from orchestrator.runtime.store import StateStore, open_store
from tests.cli.console import Console
from tests.cli.leaving_cluster import LeavingCluster
from tests.cli.runs import entry, events_of
from tests.cli.serving import serving
from tests.integration.killing import (
    KILLED,
    QUICKEST,
    Bastion,
    assert_put_back,
    assert_restarted_once,
    prepare,
    truth,
)
from tests.integration.nursery import Nursery
from tests.integration.postgres import PASSWORD, Cut, PostgresProxy, PostgresServer, wait_until

if TYPE_CHECKING:
    from tests.integration.fixtures_bastions import BastionOf
    from tests.integration.fixtures_processes import ProcessCluster

pytestmark = pytest.mark.part(name="postgres")

DONE, USAGE, HELD, FAILED, LEASED = 0, 2, 3, 4, 6
EXPIRY_SECONDS: Final = 15.0
"""In place of 90, of a lease whose holder nobody can look for."""
ENDS_SECONDS: Final = 240.0
"""From a fault to the end of a run. On a quiet machine it takes a minute at most."""
PLAYBOOK: Final[Mapping[str, Any]] = {
    "kind": "elasticsearch",
    "settle": {"consecutive": 2},
    "configuration_management": "ignore",
    "deadlines": {"stop": "1m", "start": "1m", "rejoin": "1m", "recover": "1m", "hold": "15s"},
}
EVERY: Final = int(os.environ.get("ORCHESTRATE_KILLS", "1"))
"""Of which commits one is cut: each, unless somebody looks at some."""
_SECRETS: Final = (PASSWORD, quote(PASSWORD, safe=""), quote(PASSWORD))


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as made:
        yield made


@pytest.fixture(scope="module")
def nursery_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Forks the processes that run to their end."""
    made = Nursery(tmp_path_factory.mktemp("nursery"))
    yield made
    made.close()


class Scene:
    """A cluster, a database, and machines that share it through a proxy.

    Args:
        folder: for all of it.
        server: which has the database.
        nursery: forks the processes that run to their end.
        proxy: the arguments of the proxy.
    """

    def __init__(self, folder: Path, server: PostgresServer, *, nursery: Nursery, **proxy: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.server, self._nursery = folder, server, nursery
        self.database = server.new_database()
        self.proxy = PostgresProxy(to=server.port, **proxy)
        self.cluster = LeavingCluster(folder / "services")
        self.machines: list[Bastion] = []

    def machine(self, name: str, *, options: str = "", **fields: Any) -> Bastion:
        """A machine of its own folder, home and playbook."""
        url = self.server.url(self.database, port=self.proxy.port, options=options)
        fields = {"playbook": PLAYBOOK, "nursery": self._nursery, **fields}
        made = Bastion(folder=self.folder / name, lab=self.cluster, state=url, **fields)
        self.machines.append(made)
        return made

    @contextmanager
    def waiting(self, name: str = "first", **fields: Any) -> Iterator[tuple[Bastion, Callable[[], int]]]:
        """A machine whose run waits while es2 is down; call to let it continue, for its exit code."""
        there = self.folder / "continue"
        waits = f"touch '{there}-not'; while [ ! -e '{there}' ]; do sleep 0.1; done"
        hook = {"run": waits, "local": True, "timeout": "5m"}
        machine = self.machine(name, hooks={"while_stopped": [hook]}, **fields)
        process = machine.begin_restart()

        def end() -> int:
            there.touch()
            return machine.end(process, ENDS_SECONDS)

        wait_until(lambda: Path(f"{there}-not").exists() or process.poll() is not None, 120.0)
        assert process.poll() is None, process.communicate()[0]
        yield machine, end

    def events(self) -> list[str]:
        """The texts of all journals."""
        rows = self.server.execute("SELECT event FROM events ORDER BY run, sequence", self.database)
        return [str(row[0]) for row in rows]

    def outcomes(self) -> list[tuple[object, ...]]:
        """The outcome of each run."""
        return self.server.execute("SELECT outcome FROM runs ORDER BY started", self.database)

    def story(self) -> str:
        """All that was said."""
        return "\n=== next machine ===\n".join(each.story() for each in self.machines)

    def is_whole(self) -> None:
        """All nodes are up, and nothing that a run set is left."""
        assert self.cluster.down == set(), self.story()
        assert self.cluster.settings == {"persistent": {}, "transient": {}}, self.story()

    def is_done(self, **starts: int) -> None:
        """A run is complete: each of these nodes was started so often, and no lease is held."""
        self.is_whole()
        assert self.cluster.starts == {"es1": 0, "es2": 0, "es3": 0, **starts}, self.story()
        assert self.cluster.templates == {}, self.story()
        assert self.server.execute("SELECT run FROM leases", self.database) == [], self.story()

    def hides_the_password(self) -> None:
        """It is in nothing that was said or written."""
        written = {
            str(path): path.read_text(encoding="utf-8", errors="replace")
            for path in self.folder.rglob("*")
            if path.is_file()
        }
        rows = "events", "runs", "requests", "leases", "tunings"
        for table in rows:
            written[table] = repr(self.server.execute(f"SELECT * FROM {table}", self.database))  # noqa: S608
        for where, text in {**written, "the output": self.story()}.items():
            assert not any(secret in text for secret in _SECRETS), where

    def __enter__(self) -> Self:
        self.proxy.__enter__()
        self.cluster.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for machine in self.machines:
            machine.close()
        self.cluster.__exit__(None, None, None)
        self.proxy.__exit__()


@pytest.fixture
def scene(tmp_path: Path, server: PostgresServer, nursery_of_all: Nursery) -> Iterator[Scene]:
    with Scene(tmp_path / "scene", server, nursery=nursery_of_all) as made:
        yield made
        made.hides_the_password()


def _run_of(scene: Scene) -> str:
    (row,) = scene.server.execute("SELECT id FROM runs ORDER BY started LIMIT 1", scene.database)
    return str(row[0])


# Two machines --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lease", ["cluster", "state"])
def test_another_machine_resumes_a_killed_run(scene: Scene, lease: str) -> None:
    book = {**PLAYBOOK, "lease": lease}
    first = scene.machine("first", foreign=True, expiry=EXPIRY_SECONDS, playbook=book)
    second = scene.machine("second", expiry=EXPIRY_SECONDS, playbook=book)
    assert first.restart(at=" stopped") == KILLED, scene.story()
    assert len(scene.cluster.down) == 1
    run = _run_of(scene)

    assert second.orchestrate("status") == DONE, second.story()
    assert run in second.said[-1], second.story()
    assert second.orchestrate("resume", run, "--yes") == DONE, scene.story()
    scene.is_done(es1=1, es2=1, es3=1)
    assert scene.outcomes() == [("done",)]
    assert first.orchestrate("history") == DONE, first.story()
    assert first.said[-1].count(run) == 1, first.story()


def test_the_second_of_two_runs_is_refused_with_the_holder(scene: Scene) -> None:
    book = {**PLAYBOOK, "lease": "state"}
    with scene.waiting(playbook=book, foreign=True) as (_, end):
        second = scene.machine("second", playbook=book)
        assert second.restart() == LEASED, scene.story()
        owner = re.search(
            r"another run holds the lease on lab: run (\S+) of (\S+@\S+), since", second.said[-1]
        )
        assert owner is not None, scene.story()
        assert owner[1] == _run_of(scene)
        assert end() == DONE, scene.story()
    scene.is_done(es1=1, es2=1, es3=1)


def test_requests_reach_a_run_on_another_machine(scene: Scene) -> None:
    with scene.waiting() as (_, end):
        assert scene.machine("second").orchestrate("stop", _run_of(scene)) == DONE, scene.story()
        assert end() == 5, scene.story()
    scene.is_whole()


def test_two_first_commands_make_the_tables_once(server: PostgresServer) -> None:
    url, troubles = server.url(server.new_database()), queue.Queue[BaseException]()
    together = threading.Barrier(8)

    def first() -> None:
        together.wait()
        try:
            open_store(url, {}, access=DatabaseUse.WRITE).close()
        except BaseException as error:  # noqa: BLE001  (shown below)
            troubles.put(error)

    threads = [threading.Thread(target=first) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert troubles.empty(), troubles.get()


# A connection that breaks at a commit --------------------------------------------------------------------


class _Nurseries:
    """A nursery for each thread."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._own, self._all = folder, threading.local(), list[Nursery]()

    def get(self) -> Nursery:
        if not hasattr(self._own, "nursery"):
            folder = self._folder / f"nursery-{threading.get_ident()}"
            folder.mkdir(parents=True)
            self._own.nursery = Nursery(folder)
            self._all.append(self._own.nursery)
        found: Nursery = self._own.nursery
        return found

    def close(self) -> None:
        for each in self._all:
            each.close()


def _played(scene: Scene, machine: Bastion, *, cut: Cut | None) -> None:
    """One restart of es2 whose connection is treated so at one commit, and what finishes it."""
    restart = ("--only", "es2")
    code = machine.restart(*restart)
    assert code in {DONE, USAGE, HELD, FAILED}, scene.story()
    scene.is_whole()
    assert scene.cluster.starts["es2"] <= 1, scene.story()
    scene.proxy.set(None)
    ended = _has_tables(scene) and scene.outcomes() == [("done",)]
    if code != DONE or not ended:  # a run that is done may have lost its last events
        assert "state database postgresql+psycopg://" in machine.said[-1], scene.story()
        if _has_tables(scene) and any("run_started" in text for text in scene.events()):
            assert machine.orchestrate("resume", "--yes", "--retry-failed") == DONE, scene.story()
        else:
            assert machine.restart(*restart) == DONE, scene.story()
    if cut in {None, Cut.BEFORE, Cut.AFTER, Cut.LATE}:
        assert scene.cluster.starts["es2"] == 1, scene.story()
    assert machine.orchestrate("status") == DONE, scene.story()
    assert "NOT RESTORED" not in machine.said[-1], scene.story()
    scene.is_done(es2=1)


def _has_tables(scene: Scene) -> bool:
    return scene.server.execute("SELECT to_regclass('events') IS NOT NULL", scene.database) == [(True,)]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER, Cut.LATE, Cut.DOWN])
def test_a_cut_at_any_commit_is_survived(tmp_path: Path, server: PostgresServer, cut: Cut) -> None:
    nurseries = _Nurseries(tmp_path)

    def play(at: int) -> int:
        with Scene(tmp_path / str(at), server, nursery=nurseries.get(), cut=cut, at=at) as scene:
            _played(scene, scene.machine("machine"), cut=cut)
            scene.hides_the_password()
            return scene.proxy.commits if at == 0 else scene.proxy.cuts

    try:
        commits = play(0)
        assert commits > 20
        with ThreadPoolExecutor(3) as pool:
            played = {at: pool.submit(play, at) for at in range(1, commits + 1, EVERY)}
            failed = {at: one.exception() for at, one in played.items() if one.exception() is not None}
        assert not failed, "\n\n".join(f"commit {at}: {error}" for at, error in failed.items())
        # How often the lease is refreshed differs: a run may have a commit less.
        assert [at for at, one in played.items() if one.result() != 1 and at < commits - 2] == []
    finally:
        nurseries.close()


# A server that fails in mid-run --------------------------------------------------------------------------


def _read_only(scene: Scene, *, on: bool) -> None:
    scene.server.execute(
        f"ALTER DATABASE {scene.database} SET default_transaction_read_only = {'on' if on else 'off'}"
    )
    _end_sessions(scene)


def _end_sessions(scene: Scene) -> None:
    scene.server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "  # noqa: S608  (our own names)
        f"WHERE datname = '{scene.database}' AND pid <> pg_backend_pid()"
    )


def _full(scene: Scene, *, on: bool) -> None:
    """A stand-in for a full disk: each insert ends with the server's error for it."""
    scene.server.execute(
        "CREATE OR REPLACE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
        "'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$",
        scene.database,
    )
    for table in ("events", "leases"):
        words = f"CREATE TRIGGER full_{table} BEFORE INSERT ON {table} EXECUTE FUNCTION full_disk()"
        gone = f"DROP TRIGGER full_{table} ON {table}"
        scene.server.execute(words if on else gone, scene.database)


def _stopped(scene: Scene, *, on: bool) -> None:
    if on:
        scene.server.stop()
    else:
        scene.server.start()


def _silent(scene: Scene, *, on: bool) -> None:
    scene.proxy.set(Cut.HANG if on else None)


def _finishes(scene: Scene, machine: Bastion, **starts: int) -> None:
    """What a run left is resumed; each node was restarted once in all, but for these."""
    assert machine.orchestrate("resume", "--yes", "--retry-failed") == DONE, scene.story()
    scene.is_done(**{"es1": 1, "es2": 1, "es3": 1, **starts})


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        pytest.param(_read_only, "the server takes no writes now", id="read-only"),
        pytest.param(_full, "no space is left on the server's disk", id="full"),
        pytest.param(
            _stopped, "Connection refused|terminating connection|closed the connection", id="stopped"
        ),
        pytest.param(_silent, "has not answered|does not answer|timeout expired", id="silent"),
    ],
)
def test_a_server_that_fails_in_mid_run(scene: Scene, fault: Callable[..., None], words: str) -> None:
    """The run stands down within its limits and names the state; it is resumed when the server is back."""
    with scene.waiting() as (machine, end):
        fault(scene, on=True)
        began = time.monotonic()
        try:
            code = end()
            took = time.monotonic() - began
            scene.is_whole()
            assert code == FAILED, scene.story()
            said = machine.said[-1]
            where = without_password(str(machine.state))
            assert re.search(
                f"the journal cannot be written: state database {re.escape(where)}: .*({words})", said
            ), said
            assert took < ENDS_SECONDS
            began = time.monotonic()
            refused = scene.machine("third").restart("--only", "es1")
            assert (refused, time.monotonic() - began < 90.0) == (USAGE, True), scene.story()
            assert re.search(words, scene.machines[-1].said[-1]), scene.story()
        finally:
            fault(scene, on=False)
    # The journal does not show that the hook ended, so es2 still needs it.
    _finishes(scene, scene.machine("second"), es2=2)


def test_a_short_outage_is_borne(scene: Scene) -> None:
    """A restart of the server between two commits, and a session that an administrator ends."""
    with scene.waiting() as (_, end):
        scene.server.stop()
        scene.server.start()
        _end_sessions(scene)
        assert end() == DONE, scene.story()
    scene.is_done(es1=1, es2=1, es3=1)


def test_a_read_only_server_does_not_prevent_a_restore(scene: Scene) -> None:
    """As with a state file that cannot be written: the record in the cluster and the journal are enough."""
    machine = scene.machine("machine")
    assert machine.restart(at=" stopped") == KILLED, scene.story()
    _read_only(scene, on=True)
    for words in (("status",), ("history",)):
        assert scene.machine("reader").orchestrate(*words) == DONE, scene.story()
    assert machine.orchestrate("restore", _run_of(scene), "--yes") == DONE, scene.story()
    scene.is_whole()
    assert "takes no writes" in machine.said[-1], scene.story()
    _read_only(scene, on=False)
    _finishes(scene, machine)


def test_a_machine_that_vanished_keeps_no_lock_for_long(server: PostgresServer) -> None:
    """It lost its power in a transaction: the server ends the session, and the next command is served."""
    database = server.new_database()
    with PostgresProxy(to=server.port) as proxy:
        lost = open_store(server.url(database, port=proxy.port), {}, access=DatabaseUse.WRITE)
        connection = lost._engine.connect()
        connection.exec_driver_sql("UPDATE meta SET schema = schema")
        proxy.set(Cut.HANG)
        began = time.monotonic()
        with pytest.raises(JournalError, match="another session has kept a row locked"):
            open_store(server.url(database), {}, access=DatabaseUse.WRITE)
        wait_until(lambda: _opens(server.url(database)), 60.0)
        assert time.monotonic() - began < 60.0
        connection.invalidate()
        connection.close()
        lost.close()


def _opens(url: str) -> bool:
    try:
        open_store(url, {}, access=DatabaseUse.WRITE).close()
    except JournalError:
        return False
    return True


# What is kept --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["UTF8", "SQL_ASCII"])
def test_every_view_and_the_ledger(tmp_path: Path, server: PostgresServer, encoding: str) -> None:
    """`status`, `history`, `report`, `serve`, the ledger of tuning. The C locale has SQL_ASCII."""
    database = server.new_database(encoding)
    url = server.url(database)
    run = "20261101-0300-abcd"
    with closing(open_store(url, {}, access=DatabaseUse.WRITE)) as store:
        store.create_run(entry(run, "boot/1/2/3")).append(events_of("lab"), 1.0)
        _ledger(store)
    home, folder = tmp_path / "home", tmp_path / "folder"
    home.mkdir()
    folder.mkdir()
    console = Console(home=home, folder=folder, environment={"ORCHESTRATE_STATE": url})
    page = folder / "page.html"
    for words in (("status",), ("history",), ("status", "--output", "json"), ("report", "--html", str(page))):
        said = console.run(*words)
        assert said.code == DONE, said.err
        assert run in said.out, said.out
        assert not any(secret in said.out + said.err for secret in _SECRETS)
    assert run in page.read_text(encoding="utf-8")
    with serving(console) as served:
        assert run in served.get().text
        assert not _arguments_with_a_secret(), "a process shows the password"


def _ledger(store: StateStore) -> None:
    change = ValueChange(path="/sys/kernel/mm/ähnlich", found="always", wanted="never")
    ledger = store.ledger("lab")
    ledger.record(Tuning(node=NodeName("es1"), tunable="thp", changes=(change,), operator="anna"), 1.0)
    ((owed,),) = ledger.owed().values()
    assert owed.wrote == (change,)
    ledger.undone(owed, operator="anna", at=2.0)
    assert ledger.owed() == {}


# The password --------------------------------------------------------------------------------------------


def _arguments_with_a_secret() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().decode(errors="replace")
        except OSError:  # it has ended
            continue
        if any(secret in text for secret in _SECRETS):
            found.append(text)
    return found


def test_no_process_and_no_hook_shows_the_password(scene: Scene) -> None:
    seen = scene.folder / "seen"
    hook = {"run": f"env > {seen}; ps -eo args >> {seen} || true", "local": True, "timeout": "1m"}
    machine = scene.machine("machine", hooks={"while_stopped": [hook]})
    assert machine.restart("--only", "es2", "--output", "json") == DONE, scene.story()
    assert "PATH=" in seen.read_text(encoding="utf-8")
    assert _arguments_with_a_secret() == []


def test_a_refused_password_is_not_shown(scene: Scene) -> None:
    machine = scene.machine("machine")
    for wrong in (f"{PASSWORD}-planted-too", "planted-wrong"):
        machine.state = str(machine.state).replace(quote(PASSWORD, safe=""), quote(wrong, safe=""))
        assert machine.restart() == USAGE, scene.story()
        said = machine.said[-1]
        assert "password authentication failed" in said, said
        assert "planted" not in said, said
        machine.state = scene.server.url(scene.database)
    open_store(scene.server.url(scene.database), {}, access=DatabaseUse.WRITE).close()


def test_a_password_as_an_argument_is_refused(scene: Scene) -> None:
    machine = scene.machine("machine")
    code, said = machine.aside("status", "--state", str(machine.state))
    assert code == USAGE
    assert "put the whole URL into ORCHESTRATE_STATE, or the password into ~/.pgpass" in said
    assert not any(secret in said for secret in _SECRETS)
    named = without_password(str(machine.state))
    open_store(machine.state, {}, access=DatabaseUse.WRITE).close()
    code, said = machine.aside("history", "--state", named)
    assert code == DONE, said


def test_a_password_in_a_file_of_the_account(scene: Scene) -> None:
    """`~/.pgpass`, as the docs show it: the URL is without one, and can be an argument."""
    machine = scene.machine("machine")
    (host, port), name = ("127.0.0.1", scene.proxy.port), scene.database
    file = machine.folder / ".pgpass"
    secret = PASSWORD.replace("\\", "\\\\").replace(":", "\\:")
    file.write_text(f"{host}:{port}:{name}:orchestrate:{secret}\n", encoding="utf-8")
    file.chmod(0o600)
    machine.state = f"postgresql+psycopg://orchestrate@{host}:{port}/{name}"
    assert machine.restart("--only", "es2", "--output", "json") == DONE, scene.story()
    lines = [json.loads(line) for line in machine.said[-1].splitlines() if line.startswith("{")]
    assert lines[-1]["event"] == "summary" or any(line["event"] == "summary" for line in lines)
    scene.is_done(es2=1)
    file.unlink()  # the password is there on purpose


# Real nodes ----------------------------------------------------------------------------------------------


@pytest.mark.real
def test_another_machine_resumes_on_real_nodes(
    process_cluster: ProcessCluster, bastion_of: BastionOf, server: PostgresServer
) -> None:
    lab, state = process_cluster(QUICKEST), server.url(server.new_database())
    first = bastion_of(lab, "first", foreign=True, expiry=EXPIRY_SECONDS, state=state)
    second = bastion_of(lab, "second", expiry=EXPIRY_SECONDS, state=state)
    third = bastion_of(lab, "third", expiry=EXPIRY_SECONDS, state=state)
    before = prepare(lab)
    assert first.restart(at=" stopped") == KILLED, first.story()
    assert len(truth(lab).lives) == len(before.lives) - 1
    assert second.orchestrate("restore", "--yes") == DONE, second.story()
    assert_put_back(lab, before, second.story())
    assert third.orchestrate("resume", "--yes") == DONE, third.story()
    assert_restarted_once(lab, before, third.story())
