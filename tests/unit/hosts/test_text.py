"""Redaction, bounded output, and the sections of a script's answer."""

from __future__ import annotations

import time

import pytest

from orchestrator.hosts import script
from orchestrator.hosts.connection import KEPT_BYTES, Captured, CommandResult, Lost
from orchestrator.hosts.connections.local import LocalConnection
from orchestrator.hosts.script import Section
from orchestrator.redact import Redactor, beginning_of, end_of


def test_secrets_go_and_words_stay(subtests: pytest.Subtests) -> None:
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\n"
    redact = Redactor(["s3cr3t-value", "s3cr3t", "ab"])
    for text, clean in {
        "the s3cr3t-value is here": "the [redacted] is here",
        "password=abc next": "password=[redacted] next",
        "PGPASSWORD='a b' psql": "PGPASSWORD=[redacted] psql",
        '{"api_key": "abc", "x": 1}': '{"api_key": [redacted], "x": 1}',
        "curl --token abc https://x": "curl --token [redacted] https://x",
        "Authorization: Basic dXNlcjpwYXNz": "Authorization: Basic [redacted]",
        "authorization=ApiKey abc==": "authorization=ApiKey [redacted]",
        "GET https://user:pass@host/x": "GET https://user:[redacted]@host/x",
        "sudo: a password is required": "sudo: a password is required",
        "a token ring of 3": "a token ring of 3",
        f"{key}x": "[redacted]\nx",
    }.items():
        with subtests.test(text):
            assert redact(text) == clean


def test_output_keeps_its_head_and_its_tail() -> None:
    captured = Captured()
    captured.add(b"begin ")
    for _ in range(20):
        captured.add(b"x" * 10_000)
    captured.add(b" the end")
    text = captured.text()
    assert text.startswith("begin ")
    assert text.endswith(" the end")
    assert captured.dropped == 200_014 - KEPT_BYTES
    assert f"{captured.dropped} bytes left out" in text


def test_a_script_answers_by_section_whatever_else_the_host_says() -> None:
    parts = [("a", "echo 1; echo 2 >&2; false"), ("b", "printf x"), ("c", "exit 9")]
    end = LocalConnection().run(f"echo Welcome; {script.untranslated(script.sections(parts))}", timeout=10.0)
    assert isinstance(end, CommandResult)
    answers = script.read_sections(end.stdout)
    assert answers["a"] == Section(exit=1, text="1\n2")
    assert answers["b"] == Section(exit=0, text="x")
    assert "c" not in answers  # cut off: no answer is not an empty one


def test_no_half_of_a_secret_remains_where_a_text_is_cut() -> None:
    secret = "s3cr3t-value"  # noqa: S105  (an example)
    redact = Redactor([secret])
    for most in range(3, 60):
        text = f"curl said {secret} and then {'x' * 20} more"
        for cut in (end_of(text, most), beginning_of(text, most)):
            assert len(cut) <= max(most, 1)
            assert not any(part in redact(cut) for part in ("s3cr", "value", "cr3t"))
    # At the gap of a long output too.
    for before in range(20):
        kept = Captured(keep=40)
        kept.add(("a " * 8 + " " * before + secret + " " + "b " * 400 + secret + " " * before + "c").encode())
        shown = redact(kept.text())
        assert "bytes left out" in shown
        assert not any(part in shown for part in ("s3cr", "value", "cr3t"))


def test_a_command_that_reads_no_input_has_its_limit(subtests: pytest.Subtests) -> None:
    """More input than a pipe holds: given while the output is read, and never beyond the limit."""
    much = "x " * 150_000
    for line, exit_code, output in [
        ("sleep 20", None, ""),
        ("echo begun; sleep 20 <&0", None, "begun"),
        ("sleep 0.5; echo over", 0, "over"),
        ("head -c 1", 0, "x"),
        ("wc -c", 0, "300000"),
        ("cat | wc -c", 0, "300000"),
        ("cat; exit 3", 3, much[:1000].strip()),
    ]:
        with subtests.test(line):
            began = time.monotonic()
            found = LocalConnection().run(line, timeout=1.5 if exit_code is None else 30.0, stdin=much)
            assert time.monotonic() - began < 10.0
            if exit_code is None:
                assert isinstance(found, Lost)
                assert (found.timed_out, found.output) == (True, output)
            else:
                assert isinstance(found, CommandResult)
                assert (found.exit, found.stdout.strip()[: len(output)]) == (exit_code, output)
