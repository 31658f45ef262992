"""`configuration_management: disable`: hooks that disable configuration management for the turn of a node.

They are hooks like any other: a stand-down, `resume` and `restore` enable again what a killed run disabled.
What somebody else has disabled stays so. A unit counts as ours by a mark in the home of the account, which is
made before it is stopped; Puppet's lock by its message. Homes may be shared, so the marks are kept by host.

A node whose turn is under way has a mark too. With several nodes on a host, the end of the last turn enables:
while one wave recovers, the next is down.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final

from pydantic import AfterValidator

from orchestrator.model.policy import Hook, Hooks
from orchestrator.sudo_question import ASK_SUDO

USUAL_UNITS: Final = (
    *("apt-daily.timer", "apt-daily-upgrade.timer"),
    *("dnf-automatic.timer", "dnf-automatic-install.timer", "dnf5-automatic.timer"),
    *("chef-client.timer", "chef-client.service", "cinc-client.timer", "cinc-client.service"),
    "salt-minion.service",
)
"""Units that start runs by themselves. Those that a host does not have are passed over."""
CONFIGURATION_MANAGEMENT: Final = (
    "While Puppet, Chef, Salt, Ansible, a package manager or an unattended upgrade is at work on a host,"
    " `hold` does not stop its node: it may start the service again. `ignore` stops it nevertheless."
    " `disable` waits like `hold`, and disables Puppet's agent and `management_units` from before the stop"
    " until the copies are back; what was disabled before stays so (`orchestrate explain write-hooks`)."
)
MANAGEMENT_UNITS: Final = (
    "Systemd units that `configuration_management: disable` stops. Those that were active are started again."
)
_UNIT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9@._:-]*\.(service|timer|path|socket)")


def _is_whole(name: str) -> str:
    if _UNIT.fullmatch(name) is None:
        raise ValueError("is not the whole name of a unit, such as chef-client.timer")
    return name


ManagementUnit = Annotated[str, AfterValidator(_is_whole)]

_MESSAGE: Final = "orchestrate: a node of this host is being restarted"
_BEGIN: Final = (
    'node=$ORCHESTRATE_NODE; root=; [ "$(id -u)" = 0 ] || root="sudo -n"; '
    'marks=$HOME/.orchestrate-disabled/$(uname -n); mkdir -p "$marks/turns" "$marks/units" || exit 1; '
    'turn=$marks/turns/of-$(printf %s "$node" | tr -c A-Za-z0-9._- _); '
    "puppet=$(PATH=$PATH:/opt/puppetlabs/bin; command -v puppet)"
)
_MAY: Final = (
    f"{ASK_SUDO}"
    'may() { [ -z "$root" ] || runs_without_password "$@" || '
    '{ echo "sudo does not allow without a password, or does not show that it does: $*"; exit 1; }; }'
)
"""Asked before anything is disabled: a missing right would leave it disabled at the end of the turn."""
_MARK: Final = '"$marks/units/$unit"'
_STOP: Final = f': >{_MARK} && $root systemctl stop "$unit" || exit 1'
_WITH_PUPPET: Final = 'if [ "$puppet" ]; then'
_OTHER_TURNS: Final = 'for other in "$marks"/turns/*; do [ ! -e "$other" ] || exit 0; done'
_START: Final = (
    'code=0; for mark in "$marks"/units/*; do if [ -e "$mark" ]; then '
    '$root systemctl start "${mark##*/}" && rm -f "$mark" || code=1; fi; done'
)
"""By the marks: the playbook of a `restore` may name other units. A unit that fails delays no other."""
_PRINT: Final = '"$puppet" config print --section agent agent_disabled_lockfile'
_LOCK: Final = f"lock=$($root {_PRINT}) || exit 1"
_ENABLE: Final = (
    f"ours=$($root grep -cs '{_MESSAGE}' \"$lock\"); case $?:$ours in "
    '0:*) $root "$puppet" agent --enable || exit 1 ;; 1:0 | 2:*) ;; *) exit 1 ;; esac'
)
"""By grep's exit code and what it printed. 1 without a count is the refusal of sudo; 2: no lock."""


def with_disabling(hooks: Hooks, units: Sequence[str]) -> Hooks:
    """These hooks, and those that disable the units and Puppet's agent last before a stop.

    After the recovery they are enabled first.
    """
    each = f"for unit in {' '.join(map(shlex.quote, units))}; do"
    if_active = f'{each} if systemctl -q is-active "$unit" 2>/dev/null; then'
    stop = (
        f'{_BEGIN}\n{_MAY}; {if_active} may systemctl start "$unit"; fi; done; '
        f'{_WITH_PUPPET} may "$puppet" agent --enable; may {_PRINT}; fi; '
        f': >"$turn" || exit 1; {if_active} {_STOP}; fi; done; '
        f"{_WITH_PUPPET} $root \"$puppet\" agent --disable '{_MESSAGE}'; fi"
    )
    start = (
        f'{_BEGIN}; rm -f "$turn" || exit 1; {_OTHER_TURNS}; {_START}; '
        f"{_WITH_PUPPET} {_LOCK}; {_ENABLE}; fi; exit $code"
    )
    return replace(
        hooks,
        before_stop=(*hooks.before_stop, Hook(run=stop)),
        after_recovery=(Hook(run=start), *hooks.after_recovery),
    )
