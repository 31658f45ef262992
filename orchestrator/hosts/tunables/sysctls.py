"""The files that set kernel parameters at boot, and a file of this program among them.

On systemd hosts `systemd-sysctl` reads the folders `sysctl.d` by file name, last value wins (sysctl.d(5)).
`/etc/sysctl.conf` counts only where a distribution links it there as `99-sysctl.conf` (Red Hat, Debian up to
12); the link shows as a file of the folder. RHEL 6 reads `/etc/sysctl.conf`, and then `/etc/sysctl.d`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Final

from orchestrator.hosts.tunables import tuned_profiles
from orchestrator.hosts.tunables.persisting import first_that_holds, header, in_order, own_block, own_file
from orchestrator.hosts.tunables.standing import AtBoot
from orchestrator.model.host_facts import HostFacts, InitSystem
from orchestrator.model.reading import Unknown
from orchestrator.model.tuning import Change

CONF: Final = "/etc/sysctl.conf"
FILES: Final = (
    CONF,
    *(f"{root}/sysctl.d/*.conf" for root in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")),
    *tuned_profiles.FILES,
)


def path_of(key: str) -> str:
    """The file of a kernel parameter."""
    return f"/proc/sys/{key.replace('.', '/')}"


def at_boot(facts: HostFacts, key: str) -> AtBoot:
    """The value from the files, else from tuned's profile: tuned applies `sysctl.d` after its own values."""
    found = _by_files(facts, key)
    if found.value is not None or found.unsure:
        return found
    return tuned_profiles.at_boot(facts, lambda profile: profile.sysctl(key)) or found


def persisted(
    facts: HostFacts, name: str, key: str, value: str, good: Callable[[str], bool]
) -> tuple[Change, ...]:
    """The change that persists a parameter; none if another file already sets a good value."""
    text = f"{header(name)}{key} = {value}\n"
    if facts.init is InitSystem.SYSTEMD:
        paths = (f"/etc/sysctl.d/90-orchestrate-{name}.conf", f"/etc/sysctl.d/zz-orchestrate-{name}.conf")
        return first_that_holds(
            facts,
            (own_file(facts, path, text) for path in paths),
            lambda later: lasts(at_boot(later, key), good) is True,
        )
    if facts.init is InitSystem.SYSV:
        return first_that_holds(
            facts,
            (own_block(facts, CONF, name, f"{key} = {value}"),),
            lambda later: lasts(at_boot(later, key), good) is True,
        )
    return ()


def lasts(boot: AtBoot, good: Callable[[str], bool]) -> bool | None:
    """Whether the next boot is right; None if that is unknown."""
    if boot.unsure:
        return None
    return boot.value is not None and good(boot.value)


def _by_files(facts: HostFacts, key: str) -> AtBoot:
    found = AtBoot()
    for path, text in _files(facts):
        if isinstance(text, Unknown):
            found = AtBoot(value=found.value, by=found.by, unsure=f"{path} could not be read: {text.reason}")
            continue
        for value in _assigned(text, key):
            found = AtBoot(value=value, by=path)
    return found


def _files(facts: HostFacts) -> Iterator[tuple[str, str | Unknown]]:
    if facts.init is InitSystem.SYSV:
        text = facts.text(CONF)
        if text is not None:
            yield CONF, text
    yield from in_order(facts, "sysctl.d", ".conf")


def _assigned(text: str, key: str) -> Iterator[str]:
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        # `-key` ignores failures, `a/b.c` and `a.b.c` are one key, and a glob sets all that match.
        name = name.strip().removeprefix("-").strip().replace("/", ".")
        if equals and not name.startswith(("#", ";")) and fnmatchcase(key, name):
            yield " ".join(value.split())
