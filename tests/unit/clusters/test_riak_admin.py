"""The commands of each version, and what comes of what they print, as a fake runner gives it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import ServiceWait
from orchestrator.riak.admin import (
    READ_SECONDS,
    AdminCommand,
    Commands,
    RiakAdmin,
    commands_for,
)
from orchestrator.riak.output import CommandOutput, RiakDialect, dialect_of, reading
from tests.fakes.riak_meanings import DIALECT
from tests.riak_transcripts import recorded
from tests.unit.clusters.cases import all_cases, unread

V20, V29, V30 = (dialect_of(version) or DIALECT for version in ("2.0.0", "2.9.10", "3.0.16"))

DEV1 = NodeName("dev1@127.0.0.1")
DEV2 = NodeName("dev2@127.0.0.1")


@dataclass
class Answers:
    """A runner that knows some command lines by heart."""

    known: Mapping[str, CommandOutput | Unknown]
    asked: list[tuple[NodeName, AdminCommand]] = field(default_factory=list)

    def run(self, node: NodeName, command: AdminCommand) -> CommandOutput | Unknown:
        self.asked.append((node, command))
        return self.known.get(" ".join(command.argv), Unknown(reason="not run"))


def of(state: str) -> Answers:
    return Answers({each.command: each.output for each in recorded() if each.state == state})


def admin(runner: Answers, dialect: RiakDialect = DIALECT) -> RiakAdmin:
    return RiakAdmin(runner=runner, commands=lambda _: commands_for(dialect), dialect=dialect)


def test_a_wait_that_our_limit_ends_is_not_up() -> None:
    for state, up, last in (("dev2down", False, "[]"), ("restarted", True, "riak_kv is up")):
        runner = of(state)
        found = admin(runner).wait_for_service(DEV1, DEV2, 8.0)
        assert found == ServiceWait(service="riak_kv", up=up, last=last)
        ((node, command),) = runner.asked
        assert (node, command.timeout) == (DEV1, 8.0)


def test_what_was_not_run_or_not_read_is_unknown_with_the_node() -> None:
    assert unread(lambda: admin(Answers({})).transfers(DEV1)) == "not run"
    cut = admin(Answers({"riak admin transfers": CommandOutput(exit=None, stdout="")}))
    said = f"asked on {DEV1}: transfers: the command did not come to its end"
    assert unread(lambda: cut.transfers(DEV1)) == said


def test_the_words_of_each_version() -> None:
    where, inside = ("/usr/sbin/riak",), ("docker", "exec", "riak", "riak")
    for dialect, riak, admin_words, pid in [
        (V20, None, ("riak-admin",), ("riak", "getpid")),
        (V29, None, ("riak-admin",), ("riak", "getpid")),
        (V30, None, ("riak", "admin"), ("riak", "pid")),
        (V20, where, ("/usr/sbin/riak-admin",), ("/usr/sbin/riak", "getpid")),
        (V30, where, ("/usr/sbin/riak", "admin"), ("/usr/sbin/riak", "pid")),
        (V20, inside, ("docker", "exec", "riak", "riak-admin"), (*inside, "getpid")),
        (V30, inside, (*inside, "admin"), (*inside, "pid")),
        (V30, ("/opt/ring.sh",), ("/opt/ring.sh", "admin"), ("/opt/ring.sh", "pid")),
        (V20, ("/opt/ring.sh",), ("riak-admin",), ("/opt/ring.sh", "getpid")),
    ]:
        commands = commands_for(dialect) if riak is None else commands_for(dialect, riak=riak)
        assert commands.asking("ringready").argv == (*admin_words, "ringready")
        assert commands.pid.argv == pid
    assert commands_for(V30, admin=("riak-admin",)).pid.argv == ("riak", "pid")
    program = "/opt/riak/bin/riak"
    own = commands_for(V30, riak=(program,), admin=(program, "admin"))
    assert own.set_transfer_limit(DEV1, 8).argv == (program, "admin", "transfer-limit", DEV1, "8")


def test_the_shipped_sudoers_allow_the_commands_and_no_others() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "sudoers-riak").read_text()
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    found = re.findall(r"/usr/sbin/riak (?:[^,\n\\]|\\[\[\],])+", lines)
    allowed = [_as_fnmatch(line.strip()) for line in found]
    commands = commands_for(DIALECT, riak=("/usr/sbin/riak",))
    used = [
        *(AdminCommand(argv=("/usr/sbin/riak", word)) for word in ("stop", "start", "ping")),
        commands.pid,
        commands.versions,
        commands.watched_nodes("riak_kv"),
        commands.set_transfer_limit(DEV1, 8),
        commands.wait_for_service("riak_kv", DEV1, 5.0),
        commands.timer,
        commands.set_timer(1000),
        commands.set_timer(10_000),
        commands.force_handoff,
        commands.manager_state,
    ]
    asked = Answers({})
    reader = RiakAdmin(runner=asked, commands=lambda _: commands, dialect=DIALECT)
    reads = (
        reader.ring_ready,
        reader.cluster_status,
        reader.transfers,
        reader.transfer_limits,
        reader.n_vals,
        reader.who_answers,
    )
    for read in reads:
        reading(partial(read, DEV1))
    words = {" ".join(each.argv) for each in used} | {" ".join(command.argv) for _, command in asked.asked}
    words |= {
        " ".join(commands.asking("cluster", "partitions", "-n", DEV1).argv),
        " ".join(commands.asking("bucket-type", "status", "default").argv),
    }
    assert {line for line in words if not any(fnmatchcase(line, rule) for rule in allowed)} == set()
    assert [rule for rule in allowed if not any(fnmatchcase(line, rule) for line in words)] == []


def _as_fnmatch(rule: str) -> str:
    """A rule whose marks are escaped for sudo, as `fnmatch` has them."""
    marks = {"\\[": "[[]", "\\]": "[]]", "\\,": ","}
    return re.sub(r"\\[\[\],]", lambda found: marks[found[0]], rule)


def test_the_shipped_sudoers_end_what_may_never_end() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "sudoers-riak").read_text()
    groups = dict(re.findall(r"(?m)^Cmnd_Alias (\w+) = ((?:.*\\\n)*.*)$", text))
    limits = dict(re.findall(r"(?m)^Defaults!(\w+) command_timeout=(\d+)$", text))
    ended = {
        line: int(limits[group])
        for group in limits
        for line in re.findall(r"/usr/sbin/riak ([^,\n\\]+)", groups[group])
    }
    assert ended == {"stop": 1800, "start": 1800, "admin wait-for-service riak_kv *": 5}


def test_every_command_has_a_limit_and_no_word_for_a_shell() -> None:
    commands: Commands = commands_for(DIALECT)
    plain = [commands.pid, commands.versions]
    plain += [commands.asking("transfers"), commands.set_transfer_limit(DEV1, 4)]
    plain += [commands.wait_for_service("riak_kv", DEV1, 5.0)]
    assert all(0 < each.timeout <= 300 for each in plain)
    assert commands.asking("transfers").timeout == READ_SECONDS
    assert all(
        word.replace("-", "").replace("@", "").replace(".", "").replace("_", "").isalnum()
        for each in plain
        for word in each.argv
    )


def test_an_answer_about_another_node_is_unknown() -> None:
    """Of partitions by name; of bucket types each, none of which may be left out."""
    case = next(
        each
        for each in all_cases()
        if each.parser.endswith("parse_partitions") and each.name == "owned and stopped"
    )
    one, two = case.keys["value"]["node"], NodeName("riak2@10.0.0.2")
    output = CommandOutput(exit=0, stdout=case.text)
    told = {f"riak admin cluster partitions -n {node}": output for node in (one, two)}
    reader = admin(Answers(told))
    assert reader.partitions(DEV1, one).node == one
    assert "instead of" in unread(lambda: reader.partitions(DEV1, two))
    assert unread(lambda: reader.partitions(DEV1, DEV2)) == "not run"
    status = "{name} is active\n\nyoung_vclock: 20\nn_val: {n_val}\nallow_mult: true\nok\n"
    listed = "default (active)\nwide (not active)\nok\n"
    of_types: dict[str, CommandOutput | Unknown] = {
        "riak admin bucket-type list": CommandOutput(exit=0, stdout=listed)
    }
    for name, n_val in (("default", 3), ("wide", 5)):
        assert unread(lambda: admin(Answers(of_types)).n_vals(DEV1))
        text = status.format(name=name, n_val=n_val)
        of_types[f"riak admin bucket-type status {name}"] = CommandOutput(exit=0, stdout=text)
    assert admin(Answers(of_types)).n_vals(DEV1) == {"default": 3, "wide": 5}
