"""How many sessions go over one connection, and when a further connection is made."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.hosts.connection import Trouble
from orchestrator.hosts.connections.sessions import SESSIONS_PER_CONNECTION, Sessions
from orchestrator.hosts.connections.ssh.link import LinkError


class FakeChannel:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class FakeLink:
    hop = "deploy@riak1:22"

    def __init__(self) -> None:
        self.refuses, self.dropped, self.closed = False, 0, False

    def open_session(self) -> FakeChannel:
        if self.refuses:
            raise LinkError(Trouble.NO_ANSWER, "no answer")
        return FakeChannel()

    def drop(self) -> None:
        self.dropped += 1

    def close(self) -> None:
        self.closed = True


def made() -> tuple[Sessions, list[Any]]:
    links: list[Any] = [FakeLink()]

    def further() -> Any:
        links.append(FakeLink())
        return links[-1]

    return Sessions(links[0], further), links


def test_a_full_connection_is_followed_by_another_and_used_again_when_it_has_room() -> None:
    sessions, links = made()
    first = [sessions.open() for _ in range(SESSIONS_PER_CONNECTION)]
    assert {session.link for session in first} == {links[0]}
    assert sessions.open().link is links[1]
    sessions.end(first[0])
    assert first[0].channel.closed
    assert sessions.open().link is links[0]
    assert len(links) == 2


def test_a_session_that_cannot_be_opened_takes_no_room() -> None:
    sessions, links = made()
    links[0].refuses = True
    for _ in range(SESSIONS_PER_CONNECTION + 1):
        with pytest.raises(LinkError):
            sessions.open()
    assert len(links) == 1


def test_every_connection_is_dropped_and_closed_and_none_is_made_after_that() -> None:
    sessions, links = made()
    for _ in range(SESSIONS_PER_CONNECTION + 1):
        sessions.open()
    sessions.drop()
    sessions.close()
    assert [(link.dropped, link.closed) for link in links] == [(1, True)] * 2
    with pytest.raises(LinkError) as caught:
        sessions.open()
    assert caught.value.unreachable.trouble is Trouble.CLOSED
    assert len(links) == 2
