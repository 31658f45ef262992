"""Known hosts files, as tables."""

from __future__ import annotations

import base64
import hmac

import pytest

from orchestrator.hosts.connections.ssh.known_hosts import (
    HostKey,
    Verdict,
    for_host,
    host_names,
    judge,
    parse,
)

KEY, OTHER = b"first key", b"other key"


def b64(blob: bytes) -> str:
    return base64.b64encode(blob).decode()


def hashed(name: str) -> str:
    salt = b"0123456789abcdefghij"
    return f"|1|{b64(salt)}|{b64(hmac.new(salt, name.encode(), 'sha1').digest())}"


LINE = f"ssh-ed25519 {b64(KEY)}"


@pytest.mark.parametrize(
    ("line", "host", "port", "verdict"),
    [
        (f"es1 {LINE}", "es1", 22, Verdict.TRUSTED),
        (f"es1,10.0.0.1 {LINE} a comment", "10.0.0.1", 22, Verdict.TRUSTED),
        (f"ES1 {LINE}", "es1", 22, Verdict.TRUSTED),
        (f"es1 {LINE}", "es1", 2222, Verdict.TRUSTED),
        (f"[es1]:2222 ssh-rsa {b64(OTHER)}\nes1 {LINE}", "es1", 2222, Verdict.CHANGED),
        (f"@revoked * ssh-rsa {b64(OTHER)}\nes1 {LINE}", "es1", 2222, Verdict.TRUSTED),
        (f"es1 {LINE}\n@revoked es1 {LINE}", "es1", 2222, Verdict.REVOKED),
        (f"[es1]:2222 {LINE}", "es1", 2222, Verdict.TRUSTED),
        (f"[es1]:2222 {LINE}", "es1", 22, Verdict.UNKNOWN),
        (f"{hashed('es1')} {LINE}", "es1", 22, Verdict.TRUSTED),
        (f"{hashed('[es1]:2222')} {LINE}", "es1", 2222, Verdict.TRUSTED),
        (f"{hashed('es2')} {LINE}", "es1", 22, Verdict.UNKNOWN),
        (f"*.example.org {LINE}", "es1.example.org", 22, Verdict.TRUSTED),
        (f"*.example.org,!es1.example.org {LINE}", "es1.example.org", 22, Verdict.UNKNOWN),
        (f"es1 ssh-ed25519 {b64(OTHER)}", "es1", 22, Verdict.CHANGED),
        (f"es1 ssh-rsa {b64(OTHER)}", "es1", 22, Verdict.CHANGED),
        (f"es1 ssh-ed25519 {b64(OTHER)}\nes1 {LINE}", "es1", 22, Verdict.TRUSTED),
        (f"es1 {LINE}\n@revoked * {LINE}", "es1", 22, Verdict.REVOKED),
        (f"@revoked es1 ssh-ed25519 {b64(OTHER)}", "es1", 22, Verdict.UNKNOWN),
        (f"@cert-authority * {LINE}", "es1", 22, Verdict.UNKNOWN),
        (f"# es1 {LINE}", "es1", 22, Verdict.UNKNOWN),
        ("es1 ssh-ed25519 !not-base64!", "es1", 22, Verdict.UNKNOWN),
        ("es1 ssh-ed25519 AAA\u00e9", "es1", 22, Verdict.UNKNOWN),
        (f"es1 ssh-ed25519 AAA\u00e9\n*,!es2 ssh-rsa \u00e9\nes1 {LINE}", "es1", 22, Verdict.TRUSTED),
        (f"|1|\u00e9|\u00e9 {LINE}\n|1|AAA=|\u00e9 {LINE}\nes1 {LINE}", "es1", 22, Verdict.TRUSTED),
        (f"|1|\u00e9|\u00e9 {LINE}", "es1", 22, Verdict.UNKNOWN),
        ("es1", "es1", 22, Verdict.UNKNOWN),
        ("", "es1", 22, Verdict.UNKNOWN),
    ],
)
def test_verdicts(line: str, host: str, port: int, verdict: Verdict) -> None:
    shown = HostKey(kind="ssh-ed25519", blob=KEY)
    assert judge(for_host(parse(line, "file"), host_names(host, port, None)), shown) is verdict


def test_a_host_key_alias_is_the_whole_name() -> None:
    """As in `ssh`, which adds no port to it and looks for no other name."""
    shown = HostKey(kind="ssh-ed25519", blob=KEY)

    def verdict(line: str) -> Verdict:
        return judge(for_host(parse(line, "file"), host_names("es1", 2222, "es-one")), shown)

    assert verdict(f"es-one {LINE}") is Verdict.TRUSTED
    assert verdict(f"[es-one]:2222 {LINE}\n[es1]:2222 {LINE}\nes1 {LINE}") is Verdict.UNKNOWN


def test_certificate_authorities_are_named_and_trust_no_key() -> None:
    lines = for_host(parse(f"@cert-authority *.example.org {LINE}", "file"), ["es1.example.org"])
    assert [(line.authority, line.trusted, line.where) for line in lines] == [(True, False, "file:1")]
