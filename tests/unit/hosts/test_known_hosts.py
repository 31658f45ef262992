"""Known hosts files, as tables."""

from __future__ import annotations

import base64
import hmac
import re

import pytest

from orchestrator.hosts.connections.known_hosts import HostKey, for_host, host_names, judge, parse
from tests.fakes.cases import rows

KEY = b"first key"


def b64(blob: bytes) -> str:
    return base64.b64encode(blob).decode()


def hashed(name: str) -> str:
    salt = b"0123456789abcdefghij"
    return f"|1|{b64(salt)}|{b64(hmac.new(salt, name.encode(), 'sha1').digest())}"


def test_verdicts_on_a_shown_host_key(subtests: pytest.Subtests) -> None:
    shown = HostKey(kind="ssh-ed25519", blob=KEY)
    for verdict, cases in rows("hosts/known_hosts.yml").items():
        for host, port, text in cases:
            with subtests.test(host=host, text=text):
                lines = text.replace("{KEY}", b64(KEY)).replace("{OTHER}", b64(b"other key"))
                lines = re.sub(r"\{HASH (\S+)\}", lambda found: hashed(found[1]), lines)
                name, _, alias = host.partition(" as ")
                known = for_host(parse(lines, "file"), host_names(name, port, alias or None))
                assert judge(known, shown).name.lower() == verdict


def test_certificate_authorities_are_named_and_trust_no_key() -> None:
    text = f"@cert-authority *.example.org ssh-ed25519 {b64(KEY)}"
    lines = for_host(parse(text, "file"), ["es1.example.org"])
    assert [(line.authority, line.trusted, line.where) for line in lines] == [(True, False, "file:1")]
