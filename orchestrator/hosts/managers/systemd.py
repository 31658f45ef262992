"""systemd. Units are read with `systemctl show`, which needs no rights."""

from __future__ import annotations

import re
from typing import Final

from orchestrator.hosts import sudo
from orchestrator.hosts.managers.manager import (
    BY_SYSTEMD,
    SYSTEMCTL,
    ServiceManager,
    ServiceReading,
    ServiceVerb,
    short,
    unit,
)
from orchestrator.hosts.script import Section
from orchestrator.hosts.settings import HostSettings
from orchestrator.model.observation import ServiceState
from orchestrator.model.reading import Unknown

_PROPERTIES: Final = (
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "MainPID",
    "ExecMainStatus",
    "NRestarts",
    "Job",
)
_IN_DOUBT: Final = re.compile(
    r"timed out|connection reset|did not receive a reply|transport endpoint|no reply", re.IGNORECASE
)
"""The call to systemd itself failed half-way: it is unknown whether systemd accepted the job."""
_JOURNAL_LINES: Final = 60
"""Most may be of a stack trace."""
_POLKIT: Final = "pkcheck --action-id org.freedesktop.systemd1.manage-units --process $$"


class Systemd(ServiceManager):
    """Units of systemd."""

    program = SYSTEMCTL
    reboots = (BY_SYSTEMD,)
    queues = True
    excludes = True
    exact = True
    restarts = "restart"
    runs = "ActiveState=(active|reloading|refreshing|activating|deactivating)|Job=[1-9][0-9]*"

    def verb(self, settings: HostSettings, verb: ServiceVerb) -> str:
        """Without `--` before the unit: deployed sudoers files have the line word for word."""
        return f"{settings.service.program or SYSTEMCTL.path} --no-block {verb.value} {unit(settings)}"

    def status(self, settings: HostSettings) -> str:
        """The few properties that show the state."""
        wanted = " ".join(f"-p {name}" for name in _PROPERTIES)
        return f"{settings.service.program or SYSTEMCTL.path} show {wanted} -- {unit(settings)} 2>&1"

    def read(self, settings: HostSettings, answer: Section) -> ServiceReading | Unknown:
        """Read the properties."""
        values = dict(line.partition("=")[::2] for line in answer.text.splitlines() if "=" in line)
        active, name = values.get("ActiveState", ""), unit(settings)
        if answer.exit != 0 or not active:
            said = short(answer.text) or f"exit {answer.exit}"
            return Unknown(reason=f"systemctl show {name}: {said}")
        load = values.get("LoadState", "")
        if load in ("not-found", "error", "bad-setting"):
            return Unknown(reason=f"systemd has no unit {name} ({load}): correct `hosts.service.unit`")
        masked = f"unit {name} is masked and cannot be started: `systemctl unmask` it"
        if load == "masked" and active in ("inactive", "failed"):
            return Unknown(reason=masked)
        return _state(name, values, barred=masked if load == "masked" else "")

    def may(self, settings: HostSettings, command: str) -> str:
        """Root may, and those whom polkit lets."""
        del settings, command
        return f"{sudo.IS_ROOT} || {_POLKIT}"

    def last_words(self, settings: HostSettings) -> tuple[tuple[str, str], ...]:
        """What everybody may see of the unit, and its journal, which is for members of some groups only."""
        program = settings.service.program or SYSTEMCTL.path
        seen = "grep -E '^ *(Condition|Assert|Process|Main PID|Status|Error):'"
        return (
            ("status", f"{program} status --no-pager --full -n 0 -- {unit(settings)} 2>/dev/null | {seen}"),
            (
                "journal",
                f"journalctl --quiet --no-pager -o cat -n {_JOURNAL_LINES} -u {unit(settings)} 2>/dev/null",
            ),
        )

    def did_nothing(self, line: str, output: str) -> bool:
        """Unless the call to systemd failed half-way."""
        del line
        return not _IN_DOUBT.search(output)


def _state(name: str, values: dict[str, str], *, barred: str) -> ServiceReading | Unknown:
    active, sub = values["ActiveState"], values.get("SubState", "")
    queued = values.get("Job", "") not in ("", "0")
    detail = f"{active} ({sub})"
    if values.get("NRestarts", "0") != "0":
        detail += f", restarted by systemd: {values['NRestarts']}"  # since it was started by hand
    match active:
        case "active" if sub == "exited":
            return Unknown(
                reason=f"unit {name} is active (exited): systemd does not follow its process;"
                " use `manager: sysv` or `command`"
            )
        case "active" | "reloading" | "refreshing":
            return ServiceReading(state=ServiceState.RUNNING, detail=detail, barred=barred)
        case "inactive" | "failed" if queued:
            return ServiceReading(state=ServiceState.STARTING, detail=f"{detail}, a job is queued")
        case "inactive":
            return ServiceReading(state=ServiceState.STOPPED, detail=detail)
        case "failed":
            code = values.get("ExecMainStatus", "0")
            status = f", status {code}" if code != "0" else ""
            why = values.get("Result", "unknown")
            return ServiceReading(state=ServiceState.FAILED, detail=f"failed (Result: {why}{status})")
        case "activating":
            return ServiceReading(state=ServiceState.STARTING, detail=detail, barred=barred)
        case "deactivating":
            return ServiceReading(state=ServiceState.STOPPING, detail=detail, barred=barred)
        case _:
            return Unknown(reason=f"unit {name} is {detail}")
