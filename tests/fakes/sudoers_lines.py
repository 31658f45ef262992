"""The commands that a sudoers file has to allow for a change and its inverse."""

from __future__ import annotations

import shlex
from typing import assert_never

from orchestrator.model.tuning import (
    BlockChange,
    Change,
    FileChange,
    Reload,
    ServiceChange,
    TunedChange,
    ValueChange,
)
from orchestrator.tuning.tuning_script import is_own_folder


def plain_commands(change: Change, *, systemd: bool = True) -> tuple[str, ...]:
    """The commands as root, without sudo."""
    match change:
        case ValueChange(path=path) | BlockChange(path=path):
            return (f"tee {shlex.quote(path)}",)
        case FileChange(path=path, reload=reload):
            reloads = {
                Reload.SYSTEMD: ("systemctl daemon-reload",),
                Reload.INIT: _links(path),
            }
            folder, quoted = shlex.quote(path.rpartition("/")[0]), shlex.quote(path)
            kept = (f"mkdir -p {folder}", f"rmdir {folder}") if is_own_folder(path.rpartition("/")[0]) else ()
            return (*kept, f"tee {quoted}", f"rm -f {quoted}", *reloads.get(reload, ()))
        case ServiceChange(service=service, found=found_mode, wanted=mode):
            name = shlex.quote(service)
            if systemd:
                masks = ("mask", "unmask") if mode.masked or found_mode.masked else ()
                verbs = ("stop", "disable", *masks, "enable", "start")
                return tuple(f"systemctl {verb} {name}" for verb in verbs)
            turned = () if mode.running == found_mode.running else ("stop", "start")
            services = (f"service {name} {verb}" for verb in turned)
            tools = (f"chkconfig {name} off", f"chkconfig {name} on")
            return (*services, *tools, f"update-rc.d {name} disable", f"update-rc.d {name} enable")
        case TunedChange(found=found, wanted=wanted):
            names = dict.fromkeys((wanted, found))
            return tuple(f"tuned-adm profile {name}" if name else "tuned-adm off" for name in names)
        case _:
            assert_never(change)


def _links(path: str) -> tuple[str, ...]:
    """For an init script: the rights that make it a program, and its links."""
    name = shlex.quote(path.rpartition("/")[2])
    chmod = f"chmod 0755 {shlex.quote(path)}"
    return (chmod, f"chkconfig --add {name}", f"update-rc.d {name} defaults", f"update-rc.d {name} remove")
