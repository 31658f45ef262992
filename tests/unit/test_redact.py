"""Secrets leave a text in each form that programs print, and patterns cost no more than reading the text."""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from html import escape
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.redact import REDACTED, SHORTEST_SECRET, Redactor

FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "JSON": lambda secret: json.dumps(secret)[1:-1],
    "JSON in JSON": lambda secret: json.dumps(json.dumps(secret)[1:-1])[1:-1],
    "JSON in UTF-8": lambda secret: json.dumps(secret, ensure_ascii=False)[1:-1],
    "JSON for HTML": lambda secret: re.sub(
        r"[<>&='+!]", lambda m: f"\\u{ord(m[0]):04X}", json.dumps(secret)[1:-1]
    ),
    "JSON of PHP": lambda secret: json.dumps(secret)[1:-1].replace("/", "\\/"),
    "URL": quote,
    "URL, slashes too": lambda secret: quote(secret, safe=""),
    "form": quote_plus,
    "URL in small letters": lambda secret: re.sub(r"%..", lambda m: m[0].lower(), quote(secret, safe="")),
    "base 64": lambda secret: b64encode(secret.encode()).decode(),
    "base 64 without its end": lambda secret: b64encode(secret.encode()).decode().rstrip("="),
    "base 64 for URLs": lambda secret: urlsafe_b64encode(secret.encode()).decode(),
    "base 64 in a URL": lambda secret: quote(b64encode(secret.encode()).decode(), safe=""),
    "HTML": escape,
    "HTML by numbers": lambda secret: re.sub(r"[^A-Za-z0-9]", lambda m: f"&#{ord(m[0])};", secret),
    "HTML of base 64": lambda secret: b64encode(secret.encode()).decode().replace("+", "&#43;"),
    "hexadecimal": lambda secret: secret.encode().hex(),
    "HEXADECIMAL": lambda secret: secret.encode().hex().upper(),
}
SECRETS = st.text(
    alphabet=st.one_of(st.sampled_from("aZ09\\\"'/+=&%!<> \n\t"), st.characters(exclude_categories=["Cs"])),
    min_size=SHORTEST_SECRET,
    max_size=24,
)


@settings(max_examples=150)
@example(form="base 64 for URLs", secret="??>>~~ÿÿ")  # noqa: S106  (a test's own)
@example(form="JSON of PHP", secret="a/b/")  # noqa: S106  (the same)
@example(form="HTML by numbers", secret="000\\")  # noqa: S106  (the same)
@given(form=st.sampled_from(sorted(FORMS)), secret=SECRETS)
def test_a_secret_goes_in_every_form(form: str, secret: str) -> None:
    shown = FORMS[form](secret)
    redact = Redactor([secret])
    assert redact.without_known(f"«{shown}»") == f"«{REDACTED}»"
    assert redact.may_be_in(f"«{shown}»".encode())


@settings(max_examples=50)
@given(secrets=st.lists(SECRETS, min_size=2, max_size=4), around=st.text(max_size=5))
def test_each_of_several_secrets_goes(secrets: list[str], around: str) -> None:
    redact = Redactor(secrets)
    for secret in secrets:
        assert secret not in redact.without_known(f"{around}«{secret}»").replace(REDACTED, "«»")


def test_a_cluster_without_secrets_is_left_alone() -> None:
    redact = Redactor(["s3cret!"])
    assert not redact.may_be_in(b'{"xpack.security.token": "abc"}')
    assert redact.without_known("token=abc") == "token=abc"
    assert not Redactor().may_be_in(b"anything")


_KEYS = r"(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key"
_VALUE = r"""(?P<secret>"[^"\n]*"|'[^'\n]*'|[^\s"',;&]+)"""
_HEADER = r"""authorization["']?\s*[:=]\s*["']?(?:(?:basic|bearer|apikey|digest)\s+)?"""
_OLD = (
    rf"""(?P<keep>(?:proxy-)?{_HEADER})(?P<secret>[^\s"',;]+)""",
    rf"""(?P<keep>[\w.-]*{_KEYS}|access[_-]?key|credentials?)["']?(?:\s*[:=]\s*|\s+(?=["']))){_VALUE}""",
    rf"""(?P<keep>--?[\w-]*{_KEYS})\s+)(?P<secret>[^\s-]\S*)""",
    r"""(?P<keep>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)(?P<secret>[^\s/@]+)(?=@)""",
)
"""The patterns as they were: they read a run of letters again from each of its letters."""
_PIECES = (
    *(
        "password",
        "passwd",
        "token",
        "api_key",
        "api-key",
        "secret",
        "credentials",
        "Authorization",
        "proxy-",
    ),
    *("basic ", "bearer ", "://", "http", "x", "ab1", "_", "-", "--", ".", ":", "=", " ", "\n", "\t"),
    *('"', "'", ",", ";", "&", "@", "/", "é"),
)


@given(st.lists(st.sampled_from(_PIECES), max_size=14).map("".join))
def test_what_was_redacted_before_still_is(text: str) -> None:
    expected = text
    for pattern in _OLD[:3]:
        expected = re.sub(pattern, rf"\g<keep>{REDACTED}", expected, flags=re.IGNORECASE)
    # A scheme needs no boundary before it any more: more passwords of URLs go.
    if "://" not in text:
        assert Redactor()(text) == expected
    else:
        gone = re.sub(_OLD[3], rf"\g<keep>{REDACTED}", expected, flags=re.IGNORECASE)
        assert Redactor()(text).count(REDACTED) >= gone.count(REDACTED)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (
            "rejected header authorization=[Basic b3JjaDp4] of x",
            f"rejected header authorization=[Basic {REDACTED} of x",
        ),
        ("a1http://user:pass@host", f"a1http://user:{REDACTED}@host"),
        ("client --my-token abc", f"client --my-token {REDACTED}"),
        (r"host=db password='it\'s one' user=ann", f"host=db password={REDACTED} user=ann"),
        ("user=ann password = s3cret sslmode=on", f"user=ann password = {REDACTED} sslmode=on"),
        ('password="a\\" is it', f"password={REDACTED} is it"),
        ("mysql+pymysql://ann:p/w:1@db/x", f"mysql+pymysql://ann:{REDACTED}@db/x"),
        (
            "postgresql://db/x?user=a&sslpassword=s3&b=c",
            f"postgresql://db/x?user=a&sslpassword={REDACTED}&b=c",
        ),
    ],
)
def test_what_looks_like_a_secret_goes(text: str, clean: str) -> None:
    assert Redactor()(text) == clean


@pytest.mark.parametrize(
    "piece",
    [*"a.-_\\\"'=: \n", "a-", "-token", "token ", 'password="', "password='x\" ", "a://", "://a:", "Basic "],
)
def test_long_output_is_only_read_once(piece: str) -> None:
    """A pattern that reads a run again from each of its letters would need half an hour."""
    text = (piece * 200_000)[:200_000]
    assert len(Redactor(["s3cret!", '\\\\\\\\"x'])(text)) <= 13 * len(text)
