"""Asking a host tree for its facts, by the script that a real host gets."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.hosts.connection import CommandResult
from orchestrator.hosts.facts import read_facts
from orchestrator.hosts.facts_script import ANSWER_BYTES, facts_script
from orchestrator.hosts.settings import HostSettings
from orchestrator.hosts.tunables.tunable import Reads
from orchestrator.model.host_facts import HostFacts
from orchestrator.model.reading import Reading
from tests.fakes.host_tree import HostTree


def answer_of(tree: HostTree, reads: Sequence[Reads] = (), settings: HostSettings | None = None) -> str:
    """What the tree's host prints."""
    line = facts_script(settings or tree.settings(), reads)
    result = tree.connection().run(line, timeout=60, keep=ANSWER_BYTES)
    assert isinstance(result, CommandResult), result
    assert result.truncated == 0
    return result.stdout


def facts_of(
    tree: HostTree, reads: Sequence[Reads] = (), settings: HostSettings | None = None
) -> Reading[HostFacts]:
    """What the program makes of it."""
    used = settings or tree.settings()
    return read_facts(answer_of(tree, reads, used), used, reads)


def known_facts_of(
    tree: HostTree, reads: Sequence[Reads] = (), settings: HostSettings | None = None
) -> HostFacts:
    """The same of a host that tells its general facts."""
    facts = facts_of(tree, reads, settings)
    assert isinstance(facts, HostFacts), facts
    return facts
