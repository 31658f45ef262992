# ruff: noqa: E501  (the tables are read by their rows: a file, its place and its message in one line each)
"""Files of kind riak: what they mean, and what is refused by file, line and key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.config.cluster import ClusterFile, RiakClusterSpec, check_cluster
from orchestrator.config.disabling import PredicateNames
from orchestrator.config.merging import MergeFlags
from orchestrator.config.playbook import PlaybookSpec, check_playbook
from orchestrator.config.policy import Overrides, build_policy
from orchestrator.config.riak import RiakWords, address_of, names_of
from orchestrator.config.riak_playbook import RiakPlaybookSpec
from orchestrator.config.services import Manager, ServiceSettings
from orchestrator.config.yaml import parse
from orchestrator.errors import ConfigError, ExitCode, UsageError
from orchestrator.model.policy import (
    Deadlines,
    Hook,
    Hooks,
    Kind,
    LeasePlace,
    Policy,
    RecoveryLimits,
    Strategy,
)

HOME = Path("/home/op")
HEAD = "kind: riak\nname: ring\nendpoints: ['http://riak1:8098']\n"
BOOK = "kind: riak\n"
LEFT_ALONE = RecoveryLimits(
    node_initial_primaries_recoveries=None,
    node_concurrent_recoveries=None,
    max_bytes_per_sec=None,
    concurrent_streams=None,
)


def _cluster(text: str = "", head: str = HEAD) -> ClusterFile:
    return check_cluster(parse(head + text, "ring.yml"), path=Path("/etc/o/ring.yml"), home=HOME)


def _policy(
    playbook: str = BOOK, flags: Overrides | None = None, cluster: ClusterFile | None = None
) -> Policy:
    return build_policy(
        cluster or _cluster(),
        check_playbook(parse(playbook, "b.yml"), path=Path("b.yml"), name="b"),
        flags or Overrides(),
        predicates=PredicateNames(known=("ring_ready",), always_on=()),
        nodes=5,
        now=1e9,
    )


def _commands(program: str = "/usr/sbin/riak") -> ServiceSettings:
    return ServiceSettings(
        manager=Manager.COMMAND,
        stop=f"{program} stop",
        start=f"{program} start",
        status=f"{program} ping",
        status_as_root=True,
    )


def test_a_file_may_say_next_to_nothing() -> None:
    cluster = _cluster()
    spec = cluster.spec
    assert isinstance(spec, RiakClusterSpec)
    assert (spec.playbook, spec.kind, spec.name) == ("riak-rolling-restart", Kind.RIAK, "ring")
    assert cluster.riak_words("riak@riak1") == RiakWords(command=("/usr/sbin/riak",))
    host = cluster.host("riak@riak1")
    assert (host.address, host.sudo, host.service) == ("riak1", "auto", _commands())
    assert cluster.secret_references() == ()


def test_the_keys_of_the_contract_are_read() -> None:
    cluster = _cluster(
        'hosts: {nodes: {riak1: 10.0.0.1}}\nriak: {command: /opt/riak/bin/riak, admin: "riak admin"}\n'
    )
    words = RiakWords(command=("/opt/riak/bin/riak",), admin=("riak", "admin"))
    assert cluster.riak_words("riak@riak1") == words
    host = cluster.host("riak@riak1")
    assert (host.address, host.service) == ("10.0.0.1", _commands("/opt/riak/bin/riak"))


def test_the_machine_of_a_member(subtests: pytest.Subtests) -> None:
    for member, nodes, address in [
        ("riak@riak1", {"riak@riak1": "10.0.0.1", "riak1": "10.0.0.2"}, "10.0.0.1"),
        ("riak@riak1", {"riak1": "10.0.0.2", "riak2": "10.0.0.3"}, "10.0.0.2"),
        ("riak@10.0.0.2", {"riak1": "10.0.0.2"}, "10.0.0.2"),
        ("riak@riak9", {"riak1": "10.0.0.2"}, "riak9"),
        ("dev2@127.0.0.1", {}, "127.0.0.1"),
        ("a@b@riak1", {"riak1": "10.0.0.2"}, "10.0.0.2"),
        ("riak1", {"riak1": "10.0.0.2"}, "10.0.0.2"),
    ]:
        with subtests.test(member=member, nodes=nodes, address=address):
            assert address_of(member, nodes) == address


def test_a_member_is_meant_by_its_host_or_its_hosts_address() -> None:
    nodes = {"riak1": "10.0.0.1", "riak@riak3": "10.0.0.1"}
    assert names_of("riak@10.0.0.1", nodes) == ("riak1", "10.0.0.1")
    assert names_of("riak@riak1", nodes) == ("riak1",)


def test_overrides_match_host_or_full_name_and_the_latter_wins() -> None:
    cluster = _cluster(
        """hosts:
  nodes: {riak1: 10.0.0.1, riak2: 10.0.0.2}
  overrides:
    riak@riak1: {user: full, address: 10.9.9.9}
    riak1: {user: host, port: 1}
    "riak*": {user: glob, port: 2, sudo: false}
    "10.0.0.*": {port: 4}
    riak2: {port: 5}
"""
    )
    one = cluster.host("riak@riak1")
    assert (one.user, one.port, one.address, one.sudo) == ("full", 1, "10.9.9.9", False)
    assert one.service == _commands()
    two = cluster.host("riak@10.0.0.2")
    assert (two.user, two.port, two.address) == ("glob", 5, "10.0.0.2")
    three = cluster.host("other@riak3")
    assert (three.user, three.port, three.address) == ("glob", 2, "riak3")
    assert cluster.host("other@elsewhere").user is None


def test_entries_of_hosts_that_fit_no_member_are_warned_of() -> None:
    cluster = _cluster(
        """hosts:
  nodes:
    riak1: 10.0.0.1
    riak2: 10.0.0.2
    riak@riak3: 10.0.0.3
    riak4: 10.0.0.4
  overrides:
    riak1: {port: 1}
    riak9: {port: 1}
"""
    )
    assert cluster.overrides_without_node(["riak@riak1", "riak@10.0.0.2", "riak@riak3"]) == (
        "ring.yml:12: hosts.overrides.riak9: no node of the cluster is called so",
        "ring.yml:9: hosts.nodes.riak4: no node of the cluster is called so",
    )


def test_nodes_of_a_machine_have_own_commands_by_placeholders() -> None:
    cluster = _cluster("riak: {command: '/opt/{name}/bin/riak', admin: 'in-{host} {node} admin'}\n")
    assert cluster.riak_words("dev1@127.0.0.1") == RiakWords(
        command=("/opt/dev1/bin/riak",), admin=("in-127.0.0.1", "dev1@127.0.0.1", "admin")
    )
    assert cluster.host("dev1@127.0.0.1").service == _commands("/opt/dev1/bin/riak")
    assert cluster.host("dev2@127.0.0.1").service == _commands("/opt/dev2/bin/riak")
    assert cluster.riak_words("dev3") == RiakWords(
        command=("/opt/dev3/bin/riak",), admin=("in-dev3", "dev3", "admin")
    )


def test_nodes_of_a_machine_have_own_commands_by_overrides() -> None:
    cluster = _cluster(
        """riak: {command: /usr/sbin/riak, admin: riak admin}
hosts:
  overrides:
    dev2@127.0.0.1: {riak: {command: "/opt/two/{name}"}}
    "dev*": {riak: {command: /opt/glob/riak, admin: /opt/glob/riak admin}}
"""
    )
    assert cluster.riak_words("dev2@127.0.0.1") == RiakWords(
        command=("/opt/two/dev2",), admin=("/opt/glob/riak", "admin")
    ), "key by key, and the full name wins"
    assert cluster.host("dev2@127.0.0.1").service == _commands("/opt/two/dev2")
    assert cluster.host("dev3@127.0.0.1").service == _commands("/opt/glob/riak")
    assert cluster.riak_words("riak@a") == RiakWords(command=("/usr/sbin/riak",), admin=("riak", "admin"))


def test_a_name_with_shell_characters_goes_into_no_command() -> None:
    cluster = _cluster("riak: {command: '/opt/{name}/riak'}\n")
    for ask in (cluster.riak_words, cluster.host):
        with pytest.raises(ConfigError) as caught:
            ask("a;reboot@riak1")
        assert str(caught.value) == (
            "ring.yml:4: riak: riak.command: the name of node a;reboot@riak1 means something to a shell"
        )


def test_the_service_is_riak_itself_unless_the_file_says() -> None:
    usual = _cluster("riak: {command: docker exec riak riak}\nhosts: {sudo: false, service: {start: mine}}\n")
    assert usual.host("riak@a").service == ServiceSettings(
        manager=Manager.COMMAND,
        stop="docker exec riak riak stop",
        start="mine",
        status="docker exec riak riak ping",
        status_as_root=True,
    )
    for manager in (Manager.SYSTEMD, Manager.SYSV, Manager.DOCKER):
        chosen = _cluster(f"hosts: {{service: {{manager: {manager.value}}}}}\n")
        assert chosen.host("riak@a").service == ServiceSettings(manager=manager, unit="riak")
    mixed = _cluster(
        "hosts:\n  service: {manager: systemd, unit: riak-kv}\n  overrides:\n    b: {service: {manager: command}}\n"
    )
    assert mixed.host("riak@a").service == ServiceSettings(manager=Manager.SYSTEMD, unit="riak-kv")
    assert mixed.host("riak@b").service == _commands()


def test_a_status_of_the_operator_s_own_is_run_as_it_is() -> None:
    """Only `riak ping` is known to need root's rights: a line of the file has its own `sudo` where it needs one."""
    own = _cluster("hosts: {service: {status: pgrep beam.smp}}\n").host("riak@a").service
    assert (own.status, own.status_as_root) == ("pgrep beam.smp", False)


def test_an_empty_playbook_changes_the_transfer_limit_alone() -> None:
    assert _policy() == Policy(
        kind=Kind.RIAK,
        cluster="ring",
        playbook="b",
        recovery_limits=LEFT_ALONE,
        flush=False,
        rebalance_while_running=None,
        transfer_limit=8,
        zone_attribute="location",
    )


def test_every_key_of_a_playbook_reaches_the_policy() -> None:
    policy = _policy(
        """kind: riak
strategy: zone
max_unavailable: 40%
lease: state
transfer_limit: 4
settle: {consecutive: 5}
deadlines: {stop: 1m, start: 2m, rejoin: 3m, recover: 4h, hold: 6m, gate: 7m, reboot: 8m}
on_failure: stand_down
hooks:
  before_stop: [{run: "depool {node}"}]
"""
    )
    assert policy == Policy(
        kind=Kind.RIAK,
        cluster="ring",
        playbook="b",
        strategy=Strategy.ZONE,
        max_unavailable=2,
        lease=LeasePlace.STATE,
        recovery_limits=LEFT_ALONE,
        flush=False,
        rebalance_while_running=None,
        transfer_limit=4,
        settle_consecutive=5,
        deadlines=Deadlines(stop=60, start=120, rejoin=180, recover=14_400, hold=360, gate=420, reboot=480),
        hooks=Hooks(before_stop=(Hook(run="depool {node}"),)),
        zone_attribute="location",
    )


def test_sets_of_nodes_have_the_usual_budget() -> None:
    wanted = _policy(BOOK + "strategy: shard-safe\n")
    assert (wanted.strategy, wanted.max_unavailable) == (Strategy.SHARD_SAFE, None)
    assert _policy(BOOK + "strategy: shard-safe\nmax_unavailable: 3\n").max_unavailable == 3


@pytest.mark.parametrize("path", ["var/tmp", "", "/var/\ntmp"])
def test_the_folder_of_the_lease_is_absolute(path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _cluster(f"riak: {{lease_directory: {json.dumps(path)}}}\n")
    assert "riak.lease_directory" in str(caught.value)


def test_the_transfer_limit_can_be_left_alone() -> None:
    assert _policy(BOOK + "transfer_limit:\n").transfer_limit is None


def test_every_key_of_the_other_kind_is_refused_with_a_reason() -> None:
    other = set(PlaybookSpec.model_fields) - set(RiakPlaybookSpec.model_fields)
    assert other == set(RiakPlaybookSpec.ELSEWHERE)
    for key in sorted(other):
        with pytest.raises(ConfigError) as caught:
            check_playbook(parse(f"{BOOK}{key}: 1\n", "b.yml"), path=Path("b.yml"), name="b")
        assert str(caught.value) == f"b.yml:2: {key}: {RiakPlaybookSpec.ELSEWHERE[key]}"
        assert str(caught.value).startswith(f"b.yml:2: {key}: not for `kind: riak`: ")


def test_a_playbook_of_another_kind_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        _policy("kind: elasticsearch\n")
    assert str(caught.value) == (
        "the playbook b is for elasticsearch (`kind`), and ring is riak: name another one in "
        "/etc/o/ring.yml (`playbook`) or with --playbook"
    )
    elasticsearch = _cluster(head=HEAD.replace("kind: riak", "kind: elasticsearch"))
    with pytest.raises(UsageError, match="the playbook b is for riak"):
        _policy(cluster=elasticsearch)
    assert caught.value.exit_code is ExitCode.USAGE


def test_a_merge_is_refused_by_name() -> None:
    flags = Overrides(merge=MergeFlags(patterns=("posts-*",), max_segments=None, allow_writes=False))
    with pytest.raises(UsageError) as caught:
        _policy(flags=flags)
    assert str(caught.value) == (
        "ring is riak, which has no segments to merge: post-bulk-index and force-merge are for elasticsearch; "
        "`orchestrate restart` restarts its nodes"
    )


WORDS = "must be a program and plain words: what means something to a shell (blanks in a word, quotes, $, ~, ;, braces) is refused, since Riak's own script has a second shell read its words"
LISTED = "'root@a' is neither an IP address nor a host name"

CLUSTER_FILES = [
    (HEAD.replace("http://riak1:8098", "http://riak1"), 3, "endpoints[0]", "must name the port, such as http://riak1:8098: neither 80 nor 8098 is assumed"),
    (HEAD.replace("riak1:8098", "u:s3cret@a:1"), 3, "endpoints[0]", "must not hold a user or a password; `/ping` and `/stats` are read without logging in"),
    ("kind: riak\nname: ring\n", None, "endpoints", "is missing"),
    (HEAD.replace("['http://riak1:8098']", "['http://a:1', 'http://a:1/']"), 3, "endpoints", "http://a:1 is given twice"),
    (HEAD.replace("ring", '"ring\\n"'), 2, "name", "must be a name of one line, without blanks at its ends or control characters"),
    (HEAD.replace("ring", '"\\e[31mring"'), 2, "name", "must be a name of one line, without blanks at its ends or control characters"),
    (HEAD.replace("ring", '" ring"'), 2, "name", "must be a name of one line, without blanks at its ends or control characters"),
    (HEAD + "auth: {api_key: env:K}\n", 4, "auth", "not for `kind: riak`: `/ping` and `/stats` are read without logging in"),
    (HEAD + "zone_attribute: rack\n", 4, "zone_attribute", "not for `kind: riak`: its zones are the locations of its members"),
    (HEAD + "raik: {}\n", 4, None, "unknown key `raik`; did you mean `riak`?"),
    (HEAD + "riak:\n", 4, "riak", "has no value"),
    (HEAD + "riak: riak\n", 4, "riak", "must be a mapping of keys (`key: value`), not a text"),
    (HEAD + "riak: {comand: riak}\n", 4, "riak", "unknown key `comand`; did you mean `command`?"),
    (HEAD + "riak: {command: ' '}\n", 4, "riak.command", "must not be empty"),
    (HEAD + "riak: {command: riak; reboot}\n", 4, "riak.command", WORDS),
    (HEAD + "riak: {command: 'riak $(id)'}\n", 4, "riak.command", WORDS),
    (HEAD + "riak: {command: ~/riak}\n", 4, "riak.command", WORDS),
    (HEAD + "riak: {command: A=1 riak}\n", 4, "riak.command", WORDS),
    (HEAD + "riak: {command: -x}\n", 4, "riak.command", WORDS),
    (HEAD + "riak: {command: riak 'a b'}\n", 4, "riak.command", WORDS),
    (HEAD + "riak: {command: 'docker exec {nod} riak'}\n", 4, "riak.command", "`{nod}` is no placeholder: there are `{node}`, `{name}` and `{host}`"),
    (HEAD + "riak: {admin: '/opt/{}/riak admin'}\n", 4, "riak.admin", "`{}` is no placeholder: there are `{node}`, `{name}` and `{host}`"),
    (HEAD + "hosts:\n  service: {stop: '/opt/{name}/bin/riak stop'}\n", 5, "hosts.service.stop", "`{name}` is no placeholder here: there is `{node}` alone (`{name}` and `{host}` are for `riak.command` and `riak.admin`)"),
    (HEAD + "riak: {lease_directory: '/srv/{name}'}\n", 4, "riak.lease_directory", "`{name}` is no placeholder here: there is none, since it is not about one node"),
    (HEAD + "riak: {command: '/opt/{name/riak'}\n", 4, "riak.command", WORDS),
    (HEAD + "hosts:\n  overrides:\n    riak1: {riak: {command: '/opt/{nme}/riak'}}\n", 6, "hosts.overrides.riak1.riak.command", "`{nme}` is no placeholder: there are `{node}`, `{name}` and `{host}`"),
    (HEAD + "hosts:\n  overrides:\n    riak1: {riak: {comand: riak}}\n", 6, "hosts.overrides.riak1.riak", "unknown key `comand`; did you mean `command`?"),
    (HEAD.replace("kind: riak", "kind: elasticsearch") + "hosts:\n  overrides:\n    es1: {riak: {command: riak}}\n", 6, "hosts.overrides.es1.riak", "only for `kind: riak`"),
    (HEAD + 'riak: {command: "riak\\nreboot *"}\n', 4, "riak.command", WORDS),
    (HEAD + "riak: {command: \"riak 'x\"}\n", 4, "riak.command", "a quote is opened here and not closed"),
    (HEAD + "riak: {admin: riak admin | tee}\n", 4, "riak.admin", WORDS),
    (HEAD + "riak: {admin: }\n", 4, "riak.admin", "has no value"),
    (HEAD + "hosts:\n  nodes: [riak1]\n", 5, "hosts.nodes", "must be a mapping of keys (`key: value`), not a list"),
    (HEAD + "hosts:\n  nodes:\n", 5, "hosts.nodes", "has no value"),
    (HEAD + "hosts:\n  nodes: {riak1: root@a}\n", 5, "hosts.nodes.riak1", LISTED),
    (HEAD + "hosts:\n  nodes: {riak1: 10}\n", 5, "hosts.nodes.riak1", "must be text, in quotes"),
    (HEAD + "hosts:\n  nodes:\n    riak 1: a\n", 6, 'hosts.nodes["riak 1"]', "'riak 1' is neither an IP address nor a host name"),
    (HEAD + "hosts:\n  nods: {riak1: a}\n", 5, "hosts", "unknown key `nods`; did you mean `nodes`?"),
    (HEAD + "hosts:\n  service: {unit: riak}\n", 5, "hosts.service", "unit: not for `manager: command`, which holds here; name its manager, too"),
    (HEAD + "hosts:\n  service: {manager: command, unit: riak}\n", 5, "hosts.service", "unit: not for `manager: command`; its command lines name what they run"),
    (HEAD + "hosts:\n  service: {manager: systemd, stop: x}\n", 5, "hosts.service", "stop: only for `manager: command`, and this one is systemd"),
    (HEAD + "hosts:\n  overrides:\n    riak1: {service: {unit: x}}\n", 6, "hosts.overrides.riak1.service", "unit: not for `manager: command`, which holds here; name its manager, too"),
]  # fmt: skip

PLAYBOOKS = [
    (BOOK + "strategy: location\n", 2, "strategy", "must be one of node, zone, shard-safe"),
    (BOOK + "transfer_limit: 0\n", 2, "transfer_limit", "must be at least 1"),
    (BOOK + "transfer_limit: 1001\n", 2, "transfer_limit", "must be at most 1000"),
    (BOOK + "transfer_limit: 99999999999999999999\n", 2, "transfer_limit", "must be at most 1000"),
    (BOOK + "transfer_limit: many\n", 2, "transfer_limit", "must be a whole number"),
    (BOOK + "transfer_limt: 3\n", 2, None, "unknown key `transfer_limt`; did you mean `transfer_limit`?"),
    (BOOK + "deadlines:\n  withheld: 30m\n", 3, "deadlines.withheld", "not for `kind: riak`: it allocates nothing; other nodes stand in while one is down"),
    (BOOK + "deadlines: {stop: 0s}\n", 2, "deadlines.stop", "must be more than nothing and at most 3650d"),
]  # fmt: skip


def test_a_bad_cluster_file_is_refused_by_file_line_and_key(subtests: pytest.Subtests) -> None:
    for text, line, key, message in CLUSTER_FILES:
        with subtests.test(text=text, line=line, key=key, message=message):
            with pytest.raises(ConfigError) as caught:
                _cluster(text, head="")
            where = f"ring.yml{f':{line}' if line else ''}{f': {key}' if key else ''}"
            assert str(caught.value) == f"{where}: {message}"
            assert caught.value.exit_code is ExitCode.USAGE


def test_a_bad_playbook_is_refused_by_file_line_and_key(subtests: pytest.Subtests) -> None:
    for text, line, key, message in PLAYBOOKS:
        with subtests.test(text=text, line=line, key=key, message=message):
            with pytest.raises(ConfigError) as caught:
                check_playbook(parse(text, "b.yml"), path=Path("b.yml"), name="b")
            assert str(caught.value) == f"b.yml:{line}{f': {key}' if key else ''}: {message}"


def test_named_nodes_have_the_files_address_or_their_own() -> None:
    text = (
        "hosts:\n  nodes: {riak1: 10.0.0.1, riak3: 10.0.0.3}\n"
        "  overrides: {'riak@riak1': {}, 'riak@10.0.0.2': {}, 'riak@riak4': {address: 10.1.0.4}, 'riak@10.*': {}}\n"
    )
    assert _cluster(text).named_nodes() == {
        "riak@riak1": "10.0.0.1",
        "riak@10.0.0.2": "10.0.0.2",
        "riak@riak4": "10.1.0.4",
        "riak3": "10.0.0.3",
    }
