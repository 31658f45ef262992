"""The commands of each version, and what comes of what they print, as a fake runner gives it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from orchestrator.model.cluster import NodeName
from orchestrator.model.reading import Unknown
from orchestrator.model.riak import LimitSet, NodeStats, ServiceWait, TransferLimits
from orchestrator.stores.riak.admin import (
    READ_SECONDS,
    Command,
    Commands,
    RiakAdmin,
    commands_for,
)
from orchestrator.stores.riak.dialect import Dialect, dialect_of
from orchestrator.stores.riak.output import CommandOutput
from orchestrator.stores.riak.parse_bucket_types import parse_bucket_types, parse_n_val
from orchestrator.stores.riak.parse_ring import ring_of
from tests.fakes.riak_meanings import DIALECT
from tests.fakes.riak_rings import claimed, names
from tests.fakes.riak_transcripts import recorded
from tests.unit.stores.riak_outputs import V20, V29, V30, owned, partitions_text

DEV1 = NodeName("dev1@127.0.0.1")
DEV2 = NodeName("dev2@127.0.0.1")


@dataclass
class Answers:
    """A runner that knows some command lines by heart."""

    known: Mapping[str, CommandOutput | Unknown]
    asked: list[tuple[NodeName, Command]] = field(default_factory=list)

    def run(self, node: NodeName, command: Command) -> CommandOutput | Unknown:
        self.asked.append((node, command))
        return self.known.get(" ".join(command.argv), Unknown(reason="not run"))


def of(state: str) -> Answers:
    return Answers({each.command: each.output for each in recorded() if each.state == state})


def admin(runner: Answers, dialect: Dialect = DIALECT) -> RiakAdmin:
    return RiakAdmin(runner=runner, commands=lambda _: commands_for(dialect), dialect=dialect)


def test_a_settled_cluster_is_read() -> None:
    asked = admin(of("settled"))
    status = asked.ring_status(DEV1)
    assert not isinstance(status, Unknown)
    assert (status.claimant, status.ring_ready, status.pending) == (DEV1, True, ())
    cluster, members = asked.cluster_status(DEV1), asked.members(DEV1)
    assert not isinstance(cluster, Unknown)
    assert not isinstance(members, Unknown)
    assert [each.node for each in cluster.members] == [each.node for each in members]


def test_a_node_down_is_read_from_its_peer() -> None:
    asked = admin(of("dev2down"))
    ready, transfers = asked.ring_ready(DEV1), asked.transfers(DEV1)
    assert not isinstance(ready, Unknown)
    assert not isinstance(transfers, Unknown)
    assert (ready.agreed, ready.down, transfers.clean) == (False, (DEV2,), False)
    assert asked.transfer_limits(DEV1) == TransferLimits(
        limits={DEV1: 3, NodeName("dev3@127.0.0.1"): 2}, offline=(DEV2,)
    )


def test_a_wait_that_our_limit_ends_is_not_up() -> None:
    runner = of("dev2down")
    assert admin(runner).wait_for_service(DEV1, DEV2, 8.0) == ServiceWait(
        service="riak_kv", up=False, last="[]"
    )
    ((node, command),) = runner.asked
    assert (node, command.timeout) == (DEV1, 8.0)
    assert admin(of("restarted")).wait_for_service(DEV1, DEV2, 8.0) == ServiceWait(
        service="riak_kv", up=True, last="riak_kv is up"
    )


def test_a_limit_that_was_not_set_is_found_beside_the_term_ok() -> None:
    dev9 = NodeName("dev9@127.0.0.1")
    assert admin(of("misc")).set_transfer_limit(DEV1, dev9, 4) == LimitSet(
        limit=None, node=dev9, failed=(dev9,)
    )


def test_what_was_not_run_or_not_read_is_unknown_with_the_node() -> None:
    assert admin(Answers({})).transfers(DEV1) == Unknown(reason="not run")
    cut = admin(Answers({"riak admin transfers": CommandOutput(exit=None, stdout="")})).transfers(DEV1)
    assert cut == Unknown(reason=f"asked on {DEV1}: transfers: the command did not come to its end")


def test_the_words_of_each_version() -> None:
    assert commands_for(V20).asking("ringready").argv == ("riak-admin", "ringready")
    assert commands_for(V29).pid.argv == ("riak", "getpid")
    assert commands_for(V30).asking("ringready").argv == ("riak", "admin", "ringready")
    assert commands_for(V30).pid.argv == ("riak", "pid")
    where = ("/usr/sbin/riak",)
    assert commands_for(V20, riak=where).asking("ringready").argv == ("/usr/sbin/riak-admin", "ringready")
    assert commands_for(V20, riak=where).pid.argv == ("/usr/sbin/riak", "getpid")
    assert commands_for(V30, riak=where).asking("ringready").argv == ("/usr/sbin/riak", "admin", "ringready")
    inside = ("docker", "exec", "riak", "riak")
    assert commands_for(V20, riak=inside).admin == ("docker", "exec", "riak", "riak-admin")
    assert commands_for(V30, riak=inside).admin == (*inside, "admin")
    assert commands_for(V30, riak=("/opt/ring.sh",)).admin == ("/opt/ring.sh", "admin")
    assert commands_for(V20, riak=("/opt/ring.sh",)).admin == ("riak-admin",)
    assert commands_for(V30, admin=("riak-admin",)).pid.argv == ("riak", "pid")
    own = commands_for(V30, riak=("/opt/riak/bin/riak",), admin=("/opt/riak/bin/riak", "admin"))
    assert own.set_transfer_limit(DEV1, 8).argv == (
        "/opt/riak/bin/riak",
        "admin",
        "transfer-limit",
        DEV1,
        "8",
    )


def test_the_shipped_sudoers_allow_the_commands_and_no_others() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "sudoers-riak").read_text()
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    found = re.findall(r"/usr/sbin/riak (?:[^,\n\\]|\\[\[\],])+", lines)
    allowed = [_as_fnmatch(line.strip()) for line in found]
    commands = commands_for(DIALECT, riak=("/usr/sbin/riak",))
    used = [
        *(Command(argv=("/usr/sbin/riak", word)) for word in ("stop", "start", "ping")),
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
        reader.ring_status,
        reader.members,
        reader.cluster_status,
        reader.transfers,
        reader.transfer_limits,
        reader.n_vals,
        reader.who_answers,
    )
    for read in reads:
        read(DEV1)
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


RING = claimed(3, 16)
ONE, TWO, THREE = names(3)
STATS = NodeStats(
    node=ONE,
    kv_vnodes=6,
    connected=frozenset({TWO, THREE}),
    members=frozenset(names(3)),
    ring_size=16,
    ownership=RING.ownership,
)


def told_partitions(end: str = "ok\n") -> dict[str, CommandOutput | Unknown]:
    return {
        f"riak admin cluster partitions -n {node}": CommandOutput(
            exit=0, stdout=partitions_text(node, indices, end)
        )
        for node, indices in owned(RING).items()
    }


def test_the_ring_is_read_node_by_node() -> None:
    reader = admin(Answers(told_partitions()))
    told = {node: reader.partitions(ONE, node) for node in (ONE, TWO, THREE)}
    known = {node: each for node, each in told.items() if not isinstance(each, Unknown)}
    assert ring_of(known, STATS) == RING


def test_partitions_of_another_node_and_none_at_all_are_unknown() -> None:
    known = told_partitions()
    known.pop(f"riak admin cluster partitions -n {TWO}")
    assert isinstance(admin(Answers(known)).partitions(ONE, TWO), Unknown)
    known = told_partitions()
    known[f"riak admin cluster partitions -n {TWO}"] = known[f"riak admin cluster partitions -n {ONE}"]
    assert isinstance(admin(Answers(known)).partitions(ONE, TWO), Unknown), "another node's answer"


STATUS = "{name} is active\n\nyoung_vclock: 20\nn_val: {n_val}\nallow_mult: true\nok\n"


def test_every_bucket_type_tells_its_n_val() -> None:
    known: dict[str, CommandOutput | Unknown] = {
        "riak admin bucket-type list": CommandOutput(
            exit=0, stdout="default (active)\nwide (not active)\nok\n"
        ),
        "riak admin bucket-type status default": CommandOutput(
            exit=0, stdout=STATUS.format(name="default", n_val=3)
        ),
        "riak admin bucket-type status wide": CommandOutput(
            exit=0, stdout=STATUS.format(name="wide", n_val=5)
        ),
    }
    assert admin(Answers(known)).n_vals(DEV1) == {"default": 3, "wide": 5}
    known.pop("riak admin bucket-type status wide")
    assert isinstance(admin(Answers(known)).n_vals(DEV1), Unknown)


def test_a_list_of_bucket_types_that_is_cut_or_odd_is_unknown(subtests: pytest.Subtests) -> None:
    for text in [
        "",
        "ok\n",
        "default (active)\nwide (not active)\n",
        "wide (active)\nok\n",
        "default (active)\nrm;reboot (active)\nok\n",
        "default (active)\nwide\nok\n",
        "default (active)\nwide (active)\nwide (active)\nok\n",
    ]:
        with subtests.test(text=text):
            assert isinstance(parse_bucket_types(CommandOutput(exit=0, stdout=text), DIALECT), Unknown)


def test_an_n_val_that_is_cut_is_unknown() -> None:
    """`n_val: 1` is no less a number than `n_val: 12`: a line must follow."""
    text = STATUS.format(name="wide", n_val=12)
    found = {
        value
        for end in range(len(text))
        if not isinstance(value := parse_n_val(CommandOutput(exit=0, stdout=text[:end]), "wide"), Unknown)
    }
    assert found == {12}
    assert isinstance(parse_n_val(CommandOutput(exit=0, stdout=text), "default"), Unknown)


def test_names_that_mean_something_to_a_shell_are_no_node_names() -> None:
    text = "FALSE ['dev2@host;reboot'] down.  All nodes need to be up to check.\nerror\n"
    known = {"riak admin ringready": CommandOutput(exit=0, stdout=text)}
    assert isinstance(admin(Answers(known)).ring_ready(DEV1), Unknown)
    assert dialect_of("3.2.1") == DIALECT
