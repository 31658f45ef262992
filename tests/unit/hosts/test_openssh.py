"""The operator's own `ssh`: the frame around a command, and what its messages mean."""

from __future__ import annotations

import subprocess

import pytest

from orchestrator.hosts.connection import KEPT_BYTES, Captured, Trouble
from orchestrator.hosts.connections.frame import Frame, framed
from orchestrator.hosts.connections.openssh.master import jump_words
from orchestrator.hosts.connections.openssh.messages import diagnosed, was_not_sent, was_refused
from orchestrator.hosts.script import untranslated
from orchestrator.untrusted import one_line
from tests.fakes.cases import cases


def run(line: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(["/bin/sh", "-c", line], input=stdin, capture_output=True, text=True, check=False)  # noqa: S603  (the lines of these tests)


def read(pieces: list[bytes], nonce: str = "n") -> tuple[str, int | None, bool]:
    inner = Captured()
    frame = Frame(nonce, inner)
    for piece in pieces:
        frame.add(piece)
    frame.add(b"")
    return inner.text(), frame.exit, frame.begun


@pytest.mark.parametrize(
    "command", ["read x; echo out $x; exit 7", untranslated("read x; echo 'out' $x; exit 7")]
)
def test_a_framed_command_prints_its_code_and_keeps_its_input(command: str) -> None:
    done = run(framed(command, "n"), "given\n")
    assert done.returncode == 7
    assert read([done.stdout.encode()]) == ("out given\n", 7, True)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_marks_are_found_however_they_arrive(size: int) -> None:
    whole = b"a greeting\norchestrate-begin-n\ntext\norchestrate-end-x 1\n\norchestrate-end-n 12\nof a daemon"
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    assert read(pieces) == ("text\norchestrate-end-x 1\n", 12, True)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"", ("", None, False)),
        (b"a greeting", ("", None, False)),
        (b"orchestrate-begin-other\ntext", ("", None, False)),
        (b"orchestrate-begin-n\nhalf", ("half", None, True)),
        (b"orchestrate-begin-n\nhalf\norchestrate-end-n ", ("half\norchestrate-end-n ", None, True)),
        (b"orchestrate-begin-n\n\norchestrate-end-n 0\n", ("", 0, True)),
    ],
)
def test_a_command_that_was_cut_off_has_no_exit_code(
    text: bytes, found: tuple[str, int | None, bool]
) -> None:
    assert read([text]) == found


def test_a_flood_is_bounded() -> None:
    inner = Captured()
    frame = Frame("n", inner)
    for _ in range(100):
        frame.add(b"x" * 100_000)
    assert len(frame._held) < 100
    frame.add(b"orchestrate-begin-n\n")
    for _ in range(100):
        frame.add(b"x" * 100_000)
    frame.add(b"\norchestrate-end-n 3\n")
    assert frame.exit == 3
    assert inner.dropped == 100 * 100_000 - KEPT_BYTES


def test_what_ssh_says_has_a_cause(subtests: pytest.Subtests) -> None:
    for text, (trouble,) in cases("hosts/ssh_messages.txt"):
        with subtests.test(text=text):
            found, reason = diagnosed("es1", text.replace("\n", "\r\n"))
            assert found is Trouble[trouble]
            assert reason.startswith("ssh cannot connect to es1 (")


CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\r
Someone could be eavesdropping on you right now (man-in-the-middle attack)!\r
It is also possible that a host key has just been changed.\r
The fingerprint for the RSA key sent by the remote host is
SHA256:OilxD5EsJY7hfZraD+UQNq09Z6Ah6m9Gfl1m7ZD3bq8.\r
Please contact your system administrator.\r
Add correct host key in /home/ann/.ssh/known_hosts to get rid of this message.\r
Offending RSA key in /home/ann/.ssh/known_hosts:1\r
Host key for 10.213.77.13 has changed and you have requested strict checking.\r
Host key verification failed.\r
"""
"""As OpenSSH prints it."""


def test_a_changed_key_names_the_recorded_one_and_what_to_do() -> None:
    trouble, reason = diagnosed("es3", CHANGED)
    assert trouble is Trouble.CHANGED_KEY
    shown = one_line(f"host of es3: {reason}")
    assert "(SHA256:OilxD5EsJY7hfZraD+UQNq09Z6Ah6m9Gfl1m7ZD3bq8.; Offending" in shown
    assert "Offending RSA key in /home/ann/.ssh/known_hosts:1" in shown
    assert shown.endswith("compare with its console")


def test_only_a_session_that_sent_nothing_is_tried_again() -> None:
    gone = "orchestrate: the shared connection is gone\nConnection closed by UNKNOWN port 65535"
    half = "mux_client_request_session: read from master failed: Broken pipe"
    refused = "mux_client_request_session: session request failed: Session open refused by peer"
    assert was_not_sent(gone)
    assert not was_not_sent(f"{half}\n{gone}"), "it may have been sent"
    assert not was_not_sent("")
    assert not was_not_sent("Connection to es1 closed by remote host.")
    assert was_refused(f"{refused}\n{gone}")
    assert not was_refused(half)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("gate", ("gate",)),
        ("ops@gate:2222", ("-l", "ops", "-p", "2222", "gate")),
        ("[::1]:2200", ("-p", "2200", "::1")),
        ("ssh://ops@gate", ("-l", "ops", "gate")),
        ("fe80::1", ("fe80::1",)),
    ],
)
def test_a_jump_host_as_arguments(spec: str, words: tuple[str, ...]) -> None:
    assert jump_words(spec) == words
