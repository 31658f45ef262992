"""An address is an address, wherever it comes from: it becomes a word of a ProxyCommand and of `ssh`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import create_engine, insert

from orchestrator import lease_record
from orchestrator.config.hosts import OverrideSpec
from orchestrator.config.riak import RiakHostsSpec, address_of
from orchestrator.elasticsearch.access import published_places
from orchestrator.elasticsearch.fields import Malformed
from orchestrator.elasticsearch.old_versions import host_of, name_of
from orchestrator.errors import ConfigError, JournalError
from orchestrator.hosts.connections.ssh_route import split_jump
from orchestrator.model import encoding
from orchestrator.model.cluster import Incarnation, Node, NodeName
from orchestrator.model.event import RunStarted
from orchestrator.model.host_settings import HostSettings
from orchestrator.model.lease import LeaseRecord, NodeInHand
from orchestrator.model.policy import Policy
from orchestrator.model.reading import Unknown
from orchestrator.riak.output import RiakUnreadable
from orchestrator.riak.terms import node_name, node_names, printed_node
from orchestrator.runtime import codec, tables
from orchestrator.runtime.ledger import Ledger
from orchestrator.untrusted import UntrustedValue, account, address

ES1 = NodeName("es1")
ATTACK = "a:1 -oProxyCommand=touch${IFS}PWNED b"
"""With `ProxyCommand ssh -W %h:%p bastion`, these are three words, and the second one runs a command."""

HOSTILE = [
    ATTACK, "-oProxyCommand=touch${IFS}PWNED", "-es1", "es1.-example", "%h", "es1%h.example", "es${IFS}1",
    "`id`", "$(id)", "es1;id", "es1|id", "es1&", "es1>x", "'es1'", '"es1', "es1\\", "es1#", "~root", "es*",
    "es[12]", "es1,es2", "es 1", "es1\t", "es1\n", "es1\nHost *", "es1\0", "es1\x7f", "es1\u200b",
    "\u202ees1",
    "\u0435s1",  # Cyrillic
    "es1\uff0eexample",  # a full stop of double width
    "1.2.3\u30024",  # an ideographic full stop
    "\uff11.2.3.4",  # a digit of double width
    "1.2.3.\u0664",  # an Arabic digit
    "b\u00fccher.example", "1.2.3.4:22", "es1:22", "[::1]", "[::1", "::1]", "1::2::3", "fe80::1%",
    "fe80::1%eth 0", "fe80::1%-o", "fe80::1%eth0%p", "fe80::1%eth0;id", "10.0.0.1%eth0", "root@es1", "es1@",
    "es1/..", "/etc/passwd", "ssh://es1", ".", "..", "es1..example", ".es1", "es1-.example", "_es1",
    "x" * 64, ".".join(["x" * 60] * 5), "1.2.3", "1.2.3.4.5", "1.2.3.4.", "256.1.1.1", "010.0.0.1",
]  # fmt: skip
SOUND = [
    "10.1.0.1", "::1", "2001:DB8::1", "::ffff:10.1.0.1", "fe80::1%eth0", "fe80::1%br-a1.100", "es1", "ES-1",
    "es_1", "prod_es01_1", "es1.example.org", "es1.example.org.", "xn--bcher-kva.example",
    "1password.example", "7",
    "123456789012",  # the host name of a container, by chance
    "a" * 63, ".".join(["x" * 60] * 4),
]  # fmt: skip


def _node(text: str) -> Node:
    return Node(
        name=ES1, node_id="a", incarnation=Incarnation(), roles=frozenset(), version="9.1.0", address=text
    )


def _started(text: str) -> RunStarted:
    return RunStarted(
        cluster="c",
        cluster_uuid="u",
        version="9.1.0",
        policy=Policy(kind="elasticsearch", cluster="c"),
        nodes=(ES1,),
        operator="o",
        host="h",
        addresses={ES1: text},
    )


def _event(text: str) -> str:
    """The first event of a journal in which this address was written."""
    written: Any = encoding.encode_event(_started("10.0.0.1"))
    found = codec.decode_event({**written, "addresses": {ES1: text}})
    assert isinstance(found, RunStarted)
    return found.addresses[ES1]


RECORD = LeaseRecord(
    epoch=1,
    run="r",
    owner="o",
    process="p",
    started="s",
    in_hand=(NodeInHand(node=ES1, incarnation=Incarnation(), address="10.0.0.1"),),
)


def _lease(text: str) -> str:
    """The record of a lease in a state."""
    written: Any = codec.encode_lease(RECORD)
    written["in_hand"][0]["address"] = text
    return codec.decode_lease(written).in_hand[0].address


def _lease_in_cluster(text: str) -> str:
    written: Any = lease_record.encode(RECORD)
    written["in_hand"][0]["address"] = text
    found = lease_record.decode(written)
    if isinstance(found, Unknown):
        raise JournalError(found.reason)
    return found.in_hand[0].address


def _ledger(text: str) -> str:
    engine = create_engine("sqlite://")
    tables.tunings.create(engine)
    row = {"cluster": "c", "node": ES1, "address": text, "tunable": "t", "subject": "s", "act": "change"}
    with engine.begin() as connection:
        connection.execute(insert(tables.tunings).values(**row, change="{}", operator="o", at=0.0))
    try:
        return Ledger(engine, "c").addresses()[ES1]
    finally:
        engine.dispose()


def _published(text: str) -> str:
    found = published_places(f"{text}/10.0.0.1:9200")
    if not found:
        raise Malformed("no place")
    return found[0][0]


def _riak(read: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: read(f"riak@{text}").partition("@")[2]


ENTRIES: dict[str, tuple[Callable[[str], str], type[Exception]]] = {
    "a node": (lambda text: _node(text).address, UntrustedValue),
    "a journal": (_event, JournalError),
    "a lease in a state": (_lease, JournalError),
    "a lease in a cluster": (_lease_in_cluster, JournalError),
    "a ledger of tuning": (_ledger, JournalError),
    "the hosts": (lambda text: HostSettings(node=ES1, address=text).address, ConfigError),
    "a cluster file": (lambda text: OverrideSpec(address=text).address or "", ValueError),
    "a Riak cluster file": (lambda text: RiakHostsSpec(nodes={"riak1": text}).nodes["riak1"], ValueError),
    "a key of a Riak cluster file": (
        lambda text: next(iter(RiakHostsSpec(nodes={f"riak@{text}": "a"}).nodes)).rpartition("@")[2],
        ValueError,
    ),
    "a Riak node without an entry": (lambda text: address_of(f"riak@{text}", {}), UntrustedValue),
    "a Riak node": (_riak(node_name), RiakUnreadable),
    "a Riak node in quotes": (_riak(lambda text: printed_node(f"'{text}'")), RiakUnreadable),
    "a list of Riak nodes": (_riak(lambda text: node_names(f"['{text}']")[0]), RiakUnreadable),
    "a transport address before 2.0": (lambda text: host_of(f"inet[{text}/10.0.0.1:9300]", "x"), Malformed),
    "a transport address with a name": (lambda text: host_of(f"{text}/10.0.0.1:9300", "x"), Malformed),
    "an HTTP address": (_published, Malformed),
    "a jump host": (lambda text: split_jump(f"[{text}]:22")[1], UntrustedValue),
}
EMPTY_IS_UNKNOWN = {
    "a node", "a journal", "a lease in a state", "a lease in a cluster", "a ledger of tuning", "the hosts"
}  # fmt: skip


@pytest.mark.parametrize("entry", ENTRIES)
def test_each_entry_takes_addresses_and_refuses_all_else(entry: str) -> None:
    read, error = ENTRIES[entry]
    for text in (*HOSTILE, *([] if entry in EMPTY_IS_UNKNOWN else [""])):
        try:
            found = read(text)
        except error:
            continue
        assert address(found) != text, "an entry may read a part that is an address, as of `es1/..`"
    for text in SOUND:
        assert read(text).lower() == text.lower()


def test_address_refuses_what_is_none_in_one_line(subtests: pytest.Subtests) -> None:
    for text in ("", *HOSTILE):
        with subtests.test(text=text):
            with pytest.raises(UntrustedValue, match="is neither an IP address nor a host name") as caught:
                address(text)
            assert str(caught.value).isprintable()


def test_a_published_address_that_is_none_names_its_node(subtests: pytest.Subtests) -> None:
    """Before 5.0 the address may be the name of the node, too."""
    for published in (
        *(f"{ATTACK}:9300", f"inet[/{ATTACK}:9300]", "local[1]", "10.0.0.1", ":9300", "[::1:9300", "/:9300"),
        "inet[]",
    ):
        with subtests.test(published=published):
            with pytest.raises(Malformed, match=r"^transport_address of node es1: "):
                host_of(published, "transport_address of node es1")
            with pytest.raises(Malformed, match=r"^nodes\.a\.transport_address: "):
                name_of({"name": "Thor", "transport_address": published}, {}, "nodes.a")


def test_host_of_reads_the_forms_of_every_generation() -> None:
    for published, host in [
        ("inet[/0:0:0:0:0:0:0:1:9300]", "0:0:0:0:0:0:0:1"),
        ("inet[/fe80:0:0:0:0:0:0:1%eth0:9300]", "fe80:0:0:0:0:0:0:1%eth0"),
        ("[fe80::1%eth0]:9300", "fe80::1%eth0"),
        ("es1.example.org/10.1.0.1:9300", "es1.example.org"),
    ]:
        assert host_of(published, "x") == host


def test_a_node_name_of_riak_leads_to_no_other_folder() -> None:
    """`{name}` may be part of the path of `riak.command`."""
    for name in ("..@10.0.0.1", ".@10.0.0.1", "-f@10.0.0.1", "a/b@10.0.0.1", "@10.0.0.1", "riak", "a@b@c"):
        with pytest.raises(RiakUnreadable, match="is no node name"):
            node_name(name)


def test_a_message_names_the_node_and_shows_the_address() -> None:
    with pytest.raises(JournalError) as caught:
        _event(ATTACK)
    assert str(caught.value) == (
        f"the journal is damaged: event run_started: the address of node 'es1': {ATTACK!r} is neither an IP"
        " address nor a host name"
    )


def test_an_address_in_a_part_of_an_event_is_refused_too() -> None:
    with pytest.raises(UntrustedValue):
        replace(_node("10.0.0.1"), address=ATTACK)
    with pytest.raises(UntrustedValue):
        replace(_started("10.0.0.1"), addresses={ES1: "10.0.0.1", NodeName("es2"): ATTACK})


def test_account_takes_names_of_accounts() -> None:
    names = (
        "root",
        "deploy-1",
        "_es",
        "svc.es",
        "EXAMPLE\\deploy",
        "EXAMPLE.ORG\\a.b",
        "a@example.org",
        "a+b",
    )
    for text in names:
        assert account(text) == text
        assert HostSettings(node=ES1, address="es1", user=text).user == text
        assert split_jump(f"{text}@gate:22") == (text, "gate", "22")


def test_account_refuses_what_is_none(subtests: pytest.Subtests) -> None:
    for text in (
        "", "-l", "-oProxyCommand=x", "a b", "a\n", "a\0", "$USER", "${IFS}", "a$", "`id`", "a;id", "a|b",
        "a&b", "'a'", '"a"', "a\\", "\\a", "a\\b\\c", "a\\-oX", "%r", "a%h", "a/b", "~a", "a@", "@a", "a@-o",
        "a@b@c", "a:b", "m\u00fcller", "a\u202e", "*", "a" * 300,
    ):  # fmt: skip
        with subtests.test(text=text):
            with pytest.raises(UntrustedValue, match="cannot be the name of an account"):
                account(text)
            with pytest.raises(ConfigError):
                HostSettings(node=ES1, address="es1", user=text)
