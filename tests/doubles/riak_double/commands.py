"""From the words of a command, asked of a running node, to what is printed and what is changed.

Every command here was recorded, or prints what the product's published source says (`published.py`), and
is asked by the program or by a test. Anything else raises `UnrecordedError`, which becomes exit code 99: a
test must not come to rest on what nobody has seen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from . import published, tables, texts
from .report import View
from .texts import Said

SERVICES = ("riak_kv", "riak_pipe", "riak_repl")
"""As the node watcher lists them; asked for a node by name, it lists them the other way round."""


OF_ITSELF = frozenset({"ping", "pid"})
"""What a node answers without asking its peers."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a command changes, to be done by the node's process."""

    verb: str  # `limit`, `timer` or `force` (hand off now)
    node: str = ""  # whose
    value: int = 0  # a limit or a time


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command prints and changes."""

    said: Said
    effects: tuple[Effect, ...] = ()


class UnrecordedError(Exception):
    """The recordings say nothing of this command."""


def answer(words: Sequence[str], view: View) -> Answer:
    """What a running node answers to `riak WORDS`.

    Raises:
        UnrecordedError: the double does not have this command.
    """
    match words:
        case ["ping"]:
            return Answer(Said("pong\n", None))
        case ["pid"]:
            return Answer(Said(f"{view.pid}\n", None))
        case ["rpc", "application" | "rpc" | "sys", *_]:
            return _paced(words[1:], view)
        case ["rpc", "riak_core_node_watcher", "nodes", service]:
            up = [f"'{each.name}'" for each in view.reports if service.strip("[]") in each.services]
            return Answer(Said(f"[{','.join(up)}]\n", None))
        case ["admin", "cluster", *rest]:
            return _cluster(rest, view)
        case ["admin", "transfer-limit", *rest]:
            return _transfer_limit(rest, view)
        case ["admin", "show", "transfer_limit"]:
            return Answer(tables.show_limit(view))
        case ["admin", *rest]:
            return _admin(rest, view)
        case _:
            raise UnrecordedError(" ".join(words))


def _admin(words: Sequence[str], view: View) -> Answer:
    plain = {
        "ringready": texts.ringready,
        "transfers": texts.transfers,
    }
    match words:
        case ["bucket-type", "list"]:
            return Answer(published.bucket_type_list())
        case ["bucket-type", "status", "default"]:
            return Answer(published.bucket_type_status())
        case [word] if word in plain:
            return Answer(plain[word](view))
        case _:
            raise UnrecordedError(f"admin {' '.join(words)}")


def _cluster(words: Sequence[str], view: View) -> Answer:
    match words:
        case ["status"]:
            return Answer(tables.cluster_status(view))
        case ["partitions", "-n", name] if name in view.ring.members:
            return Answer(published.partitions(view, name))
        case _:
            raise UnrecordedError(f"admin cluster {' '.join(words)}")


def _transfer_limit(words: Sequence[str], view: View) -> Answer:
    match words:
        case []:
            return Answer(texts.transfer_limit(view))
        case [name, limit] if limit.isdecimal() and view.report(name) is None:
            return Answer(Said(f"Failed to set transfer limit for '{name}'\n"))
        case [name, limit] if limit.isdecimal():
            # Not recorded for a node that is up; the text is the one in the product's source.
            said = Said(f"Set transfer limit for '{name}' to {limit}\n")
            return Answer(said, (Effect("limit", name, int(limit)),))
        case _:
            raise UnrecordedError(f"admin transfer-limit {' '.join(words)}")


def _paced(words: Sequence[str], view: View) -> Answer:
    """What paces handoff, as the source has it; see `published`."""
    timer = r"\[riak_core,vnode_management_timer(?:,(\d+))?\]"
    match words:
        case ["application", "get_env", asked] if re.fullmatch(timer, asked):
            return Answer(Said(f"{{ok,{view.me.timer}}}\n", None))
        case ["application", "set_env", asked] if (found := re.fullmatch(timer, asked)) and found[1]:
            return Answer(Said("ok\n", None), (Effect("timer", view.me.name, int(found[1])),))
        case ["rpc", "multicall", "[riak_core_vnode_manager,force_handoffs,[]]"]:
            effects = tuple(Effect("force", report.name) for report in view.reports)
            return Answer(Said(f"{{[{','.join(['ok'] * len(effects))}],[]}}\n", None), effects)
        case ["sys", "get_state", "[riak_core_vnode_manager]"]:
            return Answer(published.vnode_manager(view))
        case _:
            raise UnrecordedError(f"rpc {' '.join(words)}")


def services_of(view: View, name: str) -> tuple[str, ...]:
    """A node's services as its peers' node watchers list them; none while it is down."""
    report = view.report(name)
    return tuple(reversed(report.services)) if report else ()
