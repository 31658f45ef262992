"""The frame around a command: `framed` scripts mean the same to every login shell that sshd may start."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.hosts.connection import KEPT_BYTES, CommandResult, Streams
from orchestrator.hosts.connections.frame import Frame, framed

SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "mksh", "csh", "tcsh", "fish", "rc", "elvish", "xonsh", "posh")
SCRIPTS = (
    "exit 7",
    'read x; echo "out $x"; echo err >&2; exit 3',
    "echo it\\'s \"done\" 'a \\\\ b' `echo c`",
    "sed 's/\\\\server/host/' <<'END'\na\\server\nEND",
    "printf '%s\\n' '!!' '!x' \"$(echo '*')\" '{a,b}' '~' '#' '%27' '^a^b' '[x]' '$HOME' '?' '=ls'",
    "printf 'gr\u00fc\u00dfe \u20ac\\n'; printf '\\377\\n' | od -An -tx1",
    "if true\nthen\n\techo 'two\nlines'\nfi\n\n",
    ": 'one argument'; echo @@orchestrate-n end script 0; exit 4",
    f"# {'x' * 20_000}\necho the end",
    "",
)


def read(streams: Streams, done: subprocess.CompletedProcess[bytes]) -> Frame:
    frame = Frame("n", streams)
    frame.stdout.add(done.stdout)
    frame.stderr.add(done.stderr)
    frame.end()
    return frame


def run(*argv: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(argv, input=b"given\n", capture_output=True, check=False, timeout=60)  # noqa: S603


@pytest.mark.parametrize("shell", SHELLS)
def test_framed_means_the_same_to_every_login_shell(shell: str, subtests: pytest.Subtests) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not on this machine: apt-get install {shell}")
    for script in SCRIPTS:
        with subtests.test(script=script):
            streams = Streams()
            frame = read(streams, run(path, "-c", framed(script, "n")))
            plain = run("/bin/sh", "-c", f"LC_ALL=C; export LC_ALL; {script}")
            assert frame.exit == plain.returncode
            assert streams.result(plain.returncode) == CommandResult(
                exit=plain.returncode, stdout=plain.stdout.decode(), stderr=plain.stderr.decode()
            )


@pytest.mark.parametrize("ends", [1, 127])
def test_a_login_shell_that_runs_no_script_is_not_begun(tmp_path: Path, ends: int) -> None:
    """`nologin`, a restricted shell, a menu: what it prints is the reason."""
    shell = tmp_path / "nologin"
    shell.write_text(f"#!/bin/sh\necho 'This account is not available.'\nexit {ends}\n")
    shell.chmod(0o755)
    streams = Streams()
    done = run(str(shell), "-c", framed("touch it", "n"))
    frame = read(streams, done)
    assert (frame.begun, frame.exit) == (False, None)
    result = frame.not_begun(done.returncode)
    assert (result.exit != 0, result.stdout) == (True, "")
    assert result.stderr.endswith("did not run `/bin/sh`: This account is not available.")


def test_what_a_login_shell_prints_is_none_of_the_script(tmp_path: Path) -> None:
    """Before it, and after it: a startup file, `printexitvalue`, a trap at the end."""
    shell = tmp_path / "shell"
    noise = "echo greeting; echo 'stty: Inappropriate ioctl' >&2"
    shell.write_text(f'#!/bin/sh\n{noise}\n/bin/sh -c "$2"\ncode=$?\n{noise}\nexit $code\n')
    shell.chmod(0o755)
    streams = Streams()
    frame = read(streams, run(str(shell), "-c", framed("echo out; echo err >&2; exit 3", "n")))
    assert (frame.begun, frame.exit) == (True, 3)
    assert streams.result(3) == CommandResult(exit=3, stdout="out\n", stderr="err\n")


def test_what_ssh_itself_says_is_kept() -> None:
    """It comes without a mark."""
    streams = Streams()
    frame = Frame("n", streams)
    frame.stderr.add(b"Connection to es1 closed by ")
    frame.stderr.add(b"remote host.\n")
    frame.end()
    assert frame.before() == streams.stderr.text() == "Connection to es1 closed by remote host.\n"


def test_without_awk_a_script_is_not_begun(tmp_path: Path) -> None:
    streams = Streams()
    done = run("/usr/bin/env", "-i", f"PATH={tmp_path}", "/bin/sh", "-c", framed("touch it", "n"))
    frame = read(streams, done)
    assert (frame.begun, done.returncode) == (False, 126)
    assert "awk" in frame.not_begun(done.returncode).stderr


BEGIN, END = "@@orchestrate-n begin script\n", "@@orchestrate-n end script "
OTHER = "@@orchestrate-x end script 1\n"
WHOLE = f"a greeting\n{BEGIN}text\n{OTHER}\n{END}12\nof a daemon".encode()


def test_frame_finds_marks_however_they_arrive(subtests: pytest.Subtests) -> None:
    """A command that was cut off has no exit code."""
    for text, found in (
        (WHOLE, (f"text\n{OTHER}", 12, True)),
        (b"", ("", None, False)),
        (b"a greeting", ("", None, False)),
        (b"@@orchestrate-other begin script\ntext", ("", None, False)),
        (b"@@orchestrate-n begin script\nhalf", ("half", None, True)),
        (
            b"@@orchestrate-n begin script\nhalf\n@@orchestrate-n end script ",
            ("half\n@@orchestrate-n end script ", None, True),
        ),
        (b"@@orchestrate-n begin script\n\n@@orchestrate-n end script 0\n", ("", 0, True)),
    ):
        for size in (1, 2, 3, 7, 1000):
            with subtests.test(text=text, size=size):
                streams = Streams()
                frame = Frame("n", streams)
                for at in range(0, len(text), size):
                    frame.stdout.add(text[at : at + size])
                frame.end()
                assert (streams.stdout.text(), frame.exit, frame.begun) == found


def test_a_flood_is_bounded() -> None:
    streams = Streams()
    frame = Frame("n", streams)
    for _ in range(100):
        frame.stdout.add(b"x" * 100_000)
    assert len(frame.stdout._held) < 100
    frame.stdout.add(BEGIN.encode())
    for _ in range(100):
        frame.stdout.add(b"x" * 100_000)
    frame.stdout.add(f"\n{END}3\n".encode())
    assert frame.exit == 3
    assert streams.stdout.dropped == 100 * 100_000 - KEPT_BYTES
