"""The shipped sudoers files for tuning: all that the shipped profiles need, and nothing by a wildcard.

The first file gives no way to root. The second one does, and says so.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from orchestrator.config.tuning import load_profile
from orchestrator.model.host import HostFacts, InitSystem, ServiceFacts
from orchestrator.tuning import boot, registry, tuner
from orchestrator.tuning.boot import BootPlace
from tests.fakes.sudoers_lines import plain_commands
from tests.fakes.tuned_hosts import KINDS, rhel6
from tests.tools import needs

ROOT = Path(__file__).parents[3]
WITHOUT_ROOT = ROOT / "docs" / "reference" / "sudoers-tuning"
WITH_ROOT = ROOT / "docs" / "reference" / "sudoers-tuning-root"
FILES = (WITHOUT_ROOT, WITH_ROOT)
PLACE = BootPlace(part="prod+es1")
PROFILES = sorted((ROOT / "configs" / "tuning").glob("*.yml"))
OTHER_NAMES = (
    # What earlier versions wrote, and what brings the found profile of tuned back.
    re.compile(r"rm -f /etc/(?:sysctl|tmpfiles|udev/rules)\.d/(?:90-|zz-|00-)?orchestrate-"),
    re.compile(r"tee /etc/(?:sysctl\.conf|rc\.d/rc\.local)$|udevadm control --reload$"),
    re.compile(r"(?:rm -f|rmdir) /etc/tuned/(?:profiles/)?orchestrate"),
    re.compile(r"tuned-adm profile [a-z-]+$"),
    # The name that is used where another file would take precedence.
    re.compile(r"(?:tee|rm -f) /etc/security/limits\.d/zz-orchestrate-"),
    re.compile(
        r"tee /sys/block/(?:sd|vd|xvd|nvme|loop|dm-|md)[a-z0-9\[\]-]+/queue/(?:scheduler|read_ahead_kb)$"
    ),
)


def lines(*files: Path) -> list[str]:
    """Every command that the files allow in an alias, by the program's name without its folder."""
    texts = (re.sub(r"^#.*$", "", file.read_text(), flags=re.MULTILINE) for file in files or FILES)
    text = "".join(texts).replace("\\\n", " ")
    aliases = re.findall(r"^Cmnd_Alias \w+ = (.*)$", text, re.MULTILINE)
    found = [" ".join(command.split()) for alias in aliases for command in alias.split(",")]
    assert all(re.match(r"/usr/s?bin/[a-z.-]+ ", command) for command in found)
    return [re.sub(r"^/usr/s?bin/", "", command) for command in found]


def needed() -> dict[str, str]:
    """Every command of every shipped profile on every kind of host, there and back, with its origin."""
    commands: dict[str, str] = {}
    for kind, facts in [*((kind, make()) for kind, make in KINDS.items()), ("switched off", switched_off())]:
        for path in PROFILES:
            profile = load_profile(path, rules=registry.RULES)
            for state in tuner.compare(facts, profile, PLACE).states:
                for change in state.changes:
                    for command in plain_commands(change, systemd=facts.init is InitSystem.SYSTEMD):
                        commands[command] = f"{kind}, {path.stem}, {state.tunable}"
    return commands


def switched_off() -> HostFacts:
    """A RHEL 6 host on which somebody has switched our init script off."""
    host = rhel6()
    off = {**host.services, boot.NAME: ServiceFacts(present=True)}
    return replace(host, files={**host.files, boot.INIT: boot.INIT_TEXT}, services=off)


def allowed(command: str, *files: Path) -> bool:
    # As sudo compares arguments: fnmatch(3) over all of them at once, blanks and slashes like any character.
    return any(fnmatchcase(command, line) for line in lines(*files))


def test_it_allows_all_that_the_shipped_profiles_do_and_undo() -> None:
    commands = needed()
    assert len(PROFILES) == 4
    assert len(commands) > 45
    assert {command: why for command, why in commands.items() if not allowed(command)} == {}
    # Each line is there for something, once.
    assert len(set(lines())) == len(lines())
    used = [line for line in lines() if any(fnmatchcase(command, line) for command in commands)]
    others = [line for line in lines() if any(name.match(line) for name in OTHER_NAMES)]
    assert set(lines()) - set(used) - set(others) == set()


def test_no_wildcard_stands_for_a_slash_or_a_blank() -> None:
    for line in lines():
        assert "*" not in line
        assert "?" not in line
        assert set(re.findall(r"\[[^\]]*\]", line)) <= {"[a-z]", "[0-9]"}, line


def test_nothing_else_fits(subtests: pytest.Subtests) -> None:
    for command in [
        "tee /sys/block/sda /etc/shadow /sys/block/sda/queue/scheduler",
        "tee /sys/block/sda/../../../etc/shadow/queue/scheduler",
        "tee -a /proc/sys/vm/swappiness",
        "tee /proc/sys/kernel/core_pattern",
        "tee /etc/sudoers.d/x",
        "rm -f /etc/sysctl.d/90-orchestrate-vm.swappiness.conf /etc/shadow",
        "rm -rf /",
        "systemctl stop sshd",
        "systemctl stop numad sshd",
        "tuned-adm profile ../../tmp/mine",
        "mkdir -p /etc/sudoers.d/x",
        "tee /proc/sys/kernel/modprobe",
        "tee /sys/kernel/uevent_helper",
    ]:
        with subtests.test(command):
            assert not allowed(command)


WAYS_TO_ROOT = (
    "tee /etc/systemd/system/elasticsearch.service.d/zz-orchestrate-limits.nofile.conf",
    "tee /etc/orchestrate-tuning/prod+es1.part",
    "tee /etc/orchestrate-tuning/boot.sh",
    "tee /etc/systemd/system/orchestrate-tuning.service",
    "tee /etc/init.d/orchestrate-tuning",
    "tee /etc/rc.d/rc.local",
)
"""Files whose readers run as root and take commands or paths from them."""
NO_WAY_TO_ROOT = re.compile(
    r"tee /proc/sys/(?:vm|net/ipv4)/[a-z0-9_]+"
    r"|tee /sys/kernel/mm/(?:redhat_)?transparent_hugepage/(?:khugepaged/)?[a-z]+"
    r"|tee /sys/block/[a-z0-9\[\]-]+/queue/(?:scheduler|read_ahead_kb)"
    r"|systemctl (?:stop|start|enable|disable|mask|unmask) numad"
    r"|service numad (?:stop|start)|chkconfig numad (?:on|off)|update-rc\.d numad (?:enable|disable)"
)


def test_the_first_file_gives_no_way_to_root() -> None:
    assert [line for line in lines(WITHOUT_ROOT) if not NO_WAY_TO_ROOT.fullmatch(line)] == []
    assert [command for command in WAYS_TO_ROOT if allowed(command, WITHOUT_ROOT)] == []


def test_each_way_to_root_is_in_the_second_file_which_says_so() -> None:
    assert [command for command in WAYS_TO_ROOT if not allowed(command, WITH_ROOT)] == []
    assert WITH_ROOT.read_text().startswith("# WHO HAS THESE RIGHTS CAN BECOME ROOT.")
    assert [line for line in lines(WITH_ROOT) if NO_WAY_TO_ROOT.fullmatch(line)] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_visudo_takes_it(file: Path) -> None:
    done = subprocess.run(  # noqa: S603  (a checker that is given our own file)
        [needs("visudo"), "-c", "-f", str(file)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
