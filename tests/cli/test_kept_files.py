"""What the program of c10690cd wrote is read for good: its JSON, plans, ledgers, and its files on hosts.

`tests/data/kept` was written by that program and stays as it is: `commands.json` has its exit codes, flags
and the names in its JSON, `shapes.json` an example of each event, action and policy, `plans.json` saved plans
and a snapshot, `hosts.json` hosts that it tuned, locks, records of install steps, and a lease on a Riak host.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main
from sqlalchemy import insert

from orchestrator.cli.options import Output
from orchestrator.cli.program import app, run
from orchestrator.errors import ExitCode
from orchestrator.hosts import exclusion, installing
from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.script import Section
from orchestrator.model import encoding
from orchestrator.model.action import Moment
from orchestrator.model.host import Connect, Manager
from orchestrator.model.host_settings import HostSettings, ServiceSettings
from orchestrator.model.upgrade import InstallState, InstallView
from orchestrator.riak.lease_files import Folder, KeptFile, Listing, parse_listing
from orchestrator.riak.output import CommandOutput
from orchestrator.runtime import codec, tables
from tests.cli.console import Console
from tests.cli.loaded_cluster import LoadedCluster, Posts
from tests.cli.operating import Operating
from tests.cli.small_cluster import SmallCluster
from tests.fakes import host_kinds
from tests.fakes.host_tree import HostTree
from tests.kept import kept, lost, names, write_state

COMMANDS: Final = kept("commands")
HOSTS: Final = kept("hosts")
GONE: Final = {"orchestrate demo"}
"""Commands that may go: of this one, `make demo` is what stays."""


def _flags(command: Any, name: str = "orchestrate") -> Iterator[tuple[str, set[str]]]:
    yield name, {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)}
    for verb, inner in getattr(command, "commands", {}).items():
        yield from _flags(inner, f"{name} {verb}")


def test_no_exit_code_command_or_flag_is_lost() -> None:
    """Their help is on the page of commands, which `make docs` writes and a test compares."""
    assert lost({code.name: code.value for code in ExitCode}, COMMANDS["exit_codes"]) == []
    now = dict(_flags(typer.main.get_command(app)))
    missing = {name: set(flags) - now.get(name, set()) for name, flags in COMMANDS["flags"].items()}
    assert {name: flags for name, flags in missing.items() if flags and name not in GONE} == {}


@pytest.fixture
def around(console: Console, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which commands are given, with the state file of that program."""
    write_state(console.state)
    monkeypatch.setenv("HOME", str(console.home))
    monkeypatch.setenv("ORCHESTRATE_STATE", f"sqlite:///{console.state}")
    monkeypatch.chdir(console.folder)
    return console.folder


def _lost_names(now: Mapping[str, set[str]], old: Mapping[str, list[str]]) -> dict[str, set[str]]:
    missing = {event: set(were) - now.get(event, set()) for event, were in old.items()}
    return {event: found for event, found in missing.items() if found}


def _by_event(output: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in map(json.loads, output.splitlines()):
        found.setdefault(line["event"], set()).update(names(line))
    return found


@pytest.mark.parametrize("command", COMMANDS["commands"], ids=lambda command: command["line"])
def test_json_of_a_command_loses_no_name(
    around: Path, capsys: pytest.CaptureFixture[str], command: dict[str, Any]
) -> None:
    with LoadedCluster(posts_a=Posts()) as cluster:
        cluster.write_file(around)
        assert run([*command["line"].split(), "--output", "json"]) == command["code"]
        assert _lost_names(_by_event(capsys.readouterr().out), command["names"]) == {}


CODECS: Final[Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "events": (codec.decode_event, encoding.encode_event),
    "actions": (codec.decode_action, encoding.encode_action),
    "changes": (codec.decode_change, encoding.fields_of),
    "policies": (codec.decode_policy, encoding.fields_of),
    "leases": (codec.decode_lease, codec.encode_lease),
}


def test_codec_loses_no_name_or_value() -> None:
    for kind, (decode, encode) in CODECS.items():
        for old in kept("shapes")[kind]:
            assert lost(json.loads(json.dumps(encode(decode(old)))), old) == [], old


@pytest.mark.parametrize("name", kept("plans")["plans"])
def test_apply_of_a_saved_plan_refuses_before_any_request(
    around: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """It has no record of how its hosts were to be reached."""
    saved = kept("plans")["plans"][name]
    with SmallCluster() as cluster:
        for file, content in (("lab.yml", saved["cluster_file"]), ("plan.json", saved["plan"])):
            text = json.dumps(content).replace("FOLDER", str(around)).replace("URL", cluster.url)
            (around / file).write_text(text)
        assert run(["apply", "plan.json", "--yes"]) == ExitCode.PLAN_MISMATCH
        assert cluster.asked == []
    assert "it was saved by an earlier version" in capsys.readouterr().err


def test_rehearse_plays_on_a_saved_snapshot(around: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (around / "snapshot.json").write_text(json.dumps(kept("plans")["snapshot"]))
    code = run(["rehearse", "--snapshot", "snapshot.json", "--seed", "3", "--output", "json"])
    assert code in {ExitCode.DONE, ExitCode.FAILED}
    assert "rehearsed" in _by_event(capsys.readouterr().out)


def _put(tree: HostTree, files: Mapping[str, str | None]) -> None:
    """Write what `HostTree.files` has listed."""
    for path in sorted(path for path, text in files.items() if text is None)[::-1]:
        at = tree.at(path)
        if at.is_dir() and not at.is_symlink():
            at.rmdir()
        else:
            at.unlink(missing_ok=True)
    for path, text in sorted(files.items()):
        if text == "a folder":
            tree.folder(path)
        elif text is not None:
            tree.at(path).unlink(missing_ok=True)
            if text.startswith("-> "):
                tree.link(path, text.removeprefix("-> "))
            else:
                tree.write(path, text.replace("ROOT", str(tree.path)))


@pytest.mark.parametrize("kind", HOSTS["trees"])
def test_tune_revert_restores_its_hosts_byte_for_byte(kind: str, tmp_path: Path) -> None:
    old = HOSTS["trees"][kind]
    tree = getattr(host_kinds, kind)(tmp_path / "host")
    tree.folder("/etc/security/limits.d")
    _put(tree, old["found"])
    before = tree.files()
    _put(tree, old["left"])
    left = tree.files()
    assert left != before
    ben = Operating(tree, tmp_path / "ben", old["node"], cluster="lab", output=Output.JSON)
    rows = json.loads(json.dumps(old["ledger"]).replace("ROOT", str(tree.path)))
    with closing(ben):
        with ben.store._engine.begin() as connection:
            connection.execute(insert(tables.tunings), rows)
        ben.restores(before)
        profile = ben.around.files.tuning_profile("riak" if ben.node.startswith("riak@") else "elasticsearch")
        code, said = ben.apply(profile)
        assert code is ExitCode.DONE
        assert _lost_names(_by_event(said), COMMANDS["tune apply"]) == {}


INSTALLED: Final = {
    "done": InstallView(ticket="run-1/n1/0/1", state=InstallState.DONE, said="installed"),
    "failed": InstallView(ticket="run-1/n1/0/1", state=InstallState.FAILED, said="exit 7: no space left"),
    "lost": InstallView(ticket="run-1/n1/0/1", state=InstallState.LOST, said=""),
    "hook": None,
}


@pytest.mark.parametrize("what", INSTALLED)
def test_its_locks_and_install_records_are_read(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder that was killed keeps nothing from running, and the record of its install step is kept."""
    connection = LocalConnection({})
    monkeypatch.setattr(exclusion, "FOLDERS", (str(tmp_path),))
    service = ServiceSettings(manager=Manager.COMMAND, stop="true", start="true", status="false")
    settings = HostSettings(node="n1", address="localhost", connect=Connect.LOCAL, service=service)
    hook, _ = exclusion.of_hook(settings, Moment.BEFORE_STOP, "echo done", 20.0)

    def answer(script: str) -> str:
        result = connection.run(script, timeout=30.0)
        assert isinstance(result, CommandResult), result
        assert result.exit == 0, result
        return result.stdout

    answer(hook)  # makes the folder
    (folder,) = tmp_path.iterdir()
    shutil.rmtree(folder)
    folder.mkdir(mode=0o700)
    for name, text in HOSTS["locks"][what].items():
        (folder / name).write_text(text)
    recorded = installing.record_script(settings)
    assert installing.read_record(Section(exit=0, text=answer(f"{recorded} || :"))) == INSTALLED[what]
    assert exclusion.read_holder(answer(f"{exclusion.holder_script(settings)} || :")) is None
    assert answer(hook) == "done\n"
    assert sorted(each.name for each in folder.iterdir()) == sorted(HOSTS["locks"][what]), "the same lock"


@pytest.mark.parametrize("mark", HOSTS["riak_lease"]["texts"])
def test_its_lease_on_a_riak_host_is_read(mark: str, tmp_path: Path) -> None:
    old = HOSTS["riak_lease"]
    text = old["texts"][mark]
    folder = Folder(path=str(tmp_path), cluster=old["cluster"])
    Path(folder.file(1)).write_text(text)
    assert Path(folder.file(1)).name == Path(old["file"]).name
    result = LocalConnection({}).run(shlex.join(folder.list().argv), timeout=30.0)
    assert isinstance(result, CommandResult)
    listing = parse_listing(CommandOutput(exit=result.exit, stdout=result.stdout))
    assert isinstance(listing, Listing)
    found = listing.files[1]
    assert isinstance(found, KeptFile)
    assert found.mark.value == mark
    assert lost(json.loads(json.dumps(codec.encode_lease(found.record))), json.loads(text)["record"]) == []
