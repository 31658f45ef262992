"""The script for people: it does what the program does, and a shell checker has nothing to say."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.hosts.reviewed_script import script_of
from orchestrator.model.cluster import NodeName
from orchestrator.model.tuning import (
    BlockChange,
    FileChange,
    HostTuning,
    Reload,
    ServiceChange,
    ServiceMode,
    TunableState,
    TunedChange,
    ValueChange,
    Verdict,
)
from tests.fakes.changing_host import ChangingHost, shells

THP = "/sys/kernel/mm/transparent_hugepage/enabled"
OURS = "/etc/sysctl.d/90-orchestrate.conf"
NUMAD = ServiceChange(
    service="numad",
    found=ServiceMode(running=True, enabled=True),
    wanted=ServiceMode(running=False, enabled=False, masked=True),
)
STATES = (
    TunableState(
        tunable="transparent_hugepage.enabled",
        wanted="never",
        running="always",
        at_boot="always\n$(reboot)",
        verdict=Verdict.DRIFT,
        detail="`reboot`\nrm -rf /",
        changes=(
            ValueChange(path=THP, found="always", wanted="never"),
            FileChange(path=OURS, found=None, wanted="it's $HOME\n", reload=Reload.SYSTEMD),
        ),
    ),
    TunableState(
        tunable="numad", wanted="off", running="on", at_boot="on", verdict=Verdict.DRIFT, changes=(NUMAD,)
    ),
    TunableState(
        tunable="tuned",
        wanted="orchestrate",
        running="balanced",
        at_boot="balanced",
        verdict=Verdict.DRIFT,
        changes=(
            TunedChange(found="balanced", wanted="orchestrate"),
            BlockChange(path="/etc/rc.local", name="tuned", found=None, wanted="true"),
        ),
    ),
    TunableState(tunable="vm.swappiness", wanted="1", running="1", at_boot="1", verdict=Verdict.OK),
    TunableState(
        tunable="jvm", wanted="1", running="", at_boot="", verdict=Verdict.UNKNOWN, detail="no\nright"
    ),
)


@pytest.fixture
def tree(tmp_path: Path) -> ChangingHost:
    tree = ChangingHost.make(tmp_path)
    tree.systemd()
    tree.choices(THP, "always", "never", now="always")
    tree.unit("numad", "running", "enabled")
    tree.write("/etc/rc.local", "#!/bin/sh\nexit 0\n", mode=0o755)
    (tree.here / "tuned").write_text("balanced\n")
    tree.program("id", "echo 0\n")
    return tree


@pytest.fixture(params=shells(), ids=lambda path: Path(path).name)
def shell(request: pytest.FixtureRequest) -> list[str]:
    path: str = request.param
    return [path, "sh"] if path.endswith("busybox") else [path]


def run(tree: ChangingHost, shell: list[str], text: str, *words: str) -> subprocess.CompletedProcess[str]:
    file = tree.here / "script.sh"
    file.write_text(text)
    return subprocess.run(  # noqa: S603  (our own script)
        [*shell, str(file), *words],
        env={"PATH": tree.path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def script(tree: ChangingHost) -> str:
    states = {"es1": HostTuning(states=STATES), "es1.far": HostTuning(states=STATES[3:])}
    return script_of({NodeName(node): tuning for node, tuning in states.items()}, root=str(tree.root))


def test_it_makes_the_changes_once_and_leaves_them_the_second_time(
    tree: ChangingHost, shell: list[str]
) -> None:
    first = run(tree, shell, script(tree), "es1")
    assert (first.returncode, first.stderr) == (0, "")
    assert [line.split(": ")[1] for line in first.stdout.splitlines()] == ["made"] * 5
    assert tree.at(THP).read_text() == "always [never]\n"
    assert tree.at(OURS).read_text() == "it's $HOME\n"
    assert "orchestrate tuned\ntrue\n" in tree.at("/etc/rc.local").read_text()
    after = tree.snapshot()
    second = run(tree, shell, script(tree), "es1")
    assert (second.returncode, second.stderr) == (0, "")
    assert [line.split(": ")[1] for line in second.stdout.splitlines()] == ["was so"] * 5
    assert tree.snapshot() == after


def test_a_tunable_that_fails_is_named_and_the_others_go_on(tree: ChangingHost, shell: list[str]) -> None:
    tree.write(OURS, "theirs\n")
    done = run(tree, shell, script(tree), "es1")
    assert done.returncode == 1
    assert done.stderr.startswith("transparent_hugepage.enabled: NOT made: ")
    assert "another process has changed it since" in done.stderr
    assert "numad: made" in done.stdout
    assert tree.at(OURS).read_text() == "theirs\n"


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("es1.example.com", 0, "transparent_hugepage.enabled: made"),
        ("es1.far", 0, "nothing to change"),
        ("es2", 2, "no part for es2; name one: es1 es1.far"),
    ],
)
def test_a_host_finds_its_own_part(
    tree: ChangingHost, shell: list[str], name: str, code: int, said: str
) -> None:
    tree.program("uname", f"echo {name}\n")
    done = run(tree, shell, script(tree))
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert ("made" in done.stdout) is (name == "es1.example.com")


def test_it_does_nothing_without_rights(tree: ChangingHost, shell: list[str]) -> None:
    tree.program("id", "echo 1000\n")
    before = tree.snapshot()
    done = run(tree, shell, script(tree), "es1")
    assert (done.returncode, done.stderr) == (2, "to be run as root\n")
    assert tree.snapshot() == before


def test_what_a_host_said_is_a_comment_and_never_a_command() -> None:
    text = script_of({NodeName("es1'; reboot"): HostTuning(states=STATES)})
    lines = text.splitlines()
    assert not [line for line in lines if "reboot`" in line and not line.lstrip().startswith("#")]
    assert [line for line in lines if "rm -rf" in line and not line.lstrip().startswith("#")] == []
    assert any("NOT IN THIS SCRIPT: no right" in line for line in lines)
    assert any("found always (at boot: always $(reboot)), wanted never" in line for line in lines)


def test_a_shell_checker_has_nothing_to_say(tree: ChangingHost) -> None:
    checker = shutil.which("shellcheck")
    if checker is None:
        pytest.skip("needs shellcheck: apt-get install shellcheck")
    file = tree.here / "script.sh"
    file.write_text(script(tree))
    done = subprocess.run(  # noqa: S603  (a checker that is given our own script)
        [checker, "-s", "sh", str(file)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout + done.stderr == ""
