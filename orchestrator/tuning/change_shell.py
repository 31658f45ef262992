"""The shell functions that make one change on a host and read it back. Any POSIX shell runs them.

The found and wanted values are arguments; nothing is assumed about a host. The functions for files are in
`file_shell`.
"""

from __future__ import annotations

from typing import Final

from orchestrator.hosts.settings import Sudo
from orchestrator.hosts.sudo import READ_FIRST
from orchestrator.tuning.boot_files import shell_text

MADE: Final = 0
"""The change was made and read back."""
NOTHING: Final = 1
"""The change was not made, and everything is unchanged."""
HALF: Final = 2
"""Something was altered, but it does not read as wanted."""
ALREADY: Final = 10
"""The value was already as wanted."""

_PLAIN: Final = r"""
# Runs a command with $text as its standard input; what it complained of is left in $said, and the first that
# failed in $failed.
as_root() {
    said=$(printf %s "$text" 2>/dev/null | @SUDO@"$@" 2>&1 >/dev/null 9<&-) && return 0
    failed=${failed:-$*}
    return 1
}
"""
AS_ROOT: Final = {
    Sudo.OFF: _PLAIN.replace("@SUDO@", ""),
    Sudo.PASSWORDLESS: _PLAIN.replace("@SUDO@", "sudo -n "),
    # Under a rule with NOPASSWD, sudo reads no password, and `tee` would write the password into the file: so
    # each command is tried without it first. `-v` finds a wrong password with one attempt. Further attempts
    # could lock the account, and sudo would read the lines of the file as passwords.
    Sudo.PASSWORD: f"\n{READ_FIRST}\n"
    r"""checked=
# Runs a command with $text as its standard input; what it complained of is left in $said, and the first that
# failed in $failed.
as_root() {
    root_runs "$@" && return 0
    failed=${failed:-$*}
    return 1
}
root_runs() {
    said=$(printf %s "$text" 2>/dev/null | sudo -k -n "$@" 2>&1 >/dev/null 9<&-) && return 0
    case $said in
        *"password is required"*|*"authentication is required"*) ;;
        *) return 1 ;;
    esac
    if [ -z "$checked$barred" ]; then
        said=$(printf '%s\n' "$password" | sudo -k -S -p '' -v 2>&1 >/dev/null 9<&-) ||
            barred=${said:-sudo refused}
        checked=yes
    fi
    said=$barred
    [ -z "$barred" ] || return 1
    said=$({ printf '%s\n' "$password"; printf %s "$text"; } 2>/dev/null |
        sudo -k -S -p '' "$@" 2>&1 >/dev/null 9<&-)
}
""",
}
"""How a command becomes root. A password comes on standard input, never as an argument or in the environment:
every shell accepted here has `printf` built in."""

HEAD: Final = r"""
set -u
umask 022
LC_ALL=C; export LC_ALL
PATH=${PATH:-/usr/bin:/bin}:/usr/sbin:/sbin; export PATH
unset IFS
newline='
'
said='' text='' why='' value='' failed=''
"""

TURN_SECONDS: Final = 60
"""How long to wait for another program's changes of the same tunable."""
ALONE: Final = rf"""
# Of two programs that change one host, one would read files that the other has half written. The lock
# goes with this process, however that ends, and nothing that is started here is left with it.
alone() {{
    waited=0
    if ! command -v flock >/dev/null || [ ! -r "$root/etc" ]; then return 0; fi
    exec 9<"$root/etc"
    while :; do
        flock -n 9 9<&9 2>/dev/null
        # Anything but "held by another" is a file system without locks.
        [ $? -eq 1 ] || return 0
        if [ "$waited" -ge {TURN_SECONDS} ]; then return 1; fi
        sleep 1
        waited=$((waited + 1))
    done
}}
busy() {{
    why="another program is tuning this host"
    return {NOTHING}
}}
"""
"""A lock for one change at a time on the host; without `flock` (in util-linux and busybox) nothing waits."""

_FUNCTIONS: Final = r"""
# Each change returns 0: made and read back, 10: was so before, 1: not made and nothing altered,
# 2: altered, but not as wanted. $why has the reason.

# set_value PATH WANTED
set_value() {
    path=$root$1 why=''
    read_value "$path" || return 1
    before=$value
    [ "$value" != "$2" ] || return 10
    text=$2
    as_root tee "$path" || :
    read_value "$path" || { why="written, but $why"; return 2; }
    [ "$value" != "$2" ] || return 0
    why="reads $value instead of $2${said:+: $said}"
    [ "$value" != "$before" ] || return 1
    return 2
}

has_systemd() {
    [ -d "$root/run/systemd/system" ]
}

# The state of a service: yes or no in $running, $enabled and $masked.
look_at() {
    running=no enabled=no masked=no
    if has_systemd; then
        case $(systemctl is-active "$1" 2>/dev/null) in
            active|reloading|refreshing|activating|deactivating) running=yes ;;
        esac
        case $(systemctl is-enabled "$1" 2>/dev/null) in
            enabled|alias|linked) enabled=yes ;;
            masked|masked-runtime) masked=yes ;;
        esac
        return
    fi
    if service "$1" status >/dev/null 2>&1; then running=yes; fi
    level=$(sed -n 's/^[^#:]*:\([2-5]\):initdefault:.*/\1/p' "$root/etc/inittab" 2>/dev/null)
    level=${level:-2-5}
    # shellcheck disable=SC2231  # a range of run levels
    for link in "$root"/etc/rc[$level].d/S[0-9][0-9]"$1" "$root"/etc/init.d/rc[$level].d/S[0-9][0-9]"$1"; do
        if [ -L "$link" ] || [ -e "$link" ]; then enabled=yes; fi
    done
}

# Each step only where it is needed; the words are those of the sudoers file.
steps_of_systemd() {
    if [ "$masked/$4" = yes/no ]; then as_root systemctl unmask "$1" && look_at "$1" || return 1; fi
    if [ "$running/$2" = yes/no ]; then as_root systemctl stop "$1" || return 1; fi
    case $masked/$enabled/$3 in
        no/yes/no) as_root systemctl disable "$1" || return 1 ;;
        no/no/yes) as_root systemctl enable "$1" || return 1 ;;
    esac
    if [ "$running/$2" = no/yes ]; then as_root systemctl start "$1" || return 1; fi
    if [ "$masked/$4" = no/yes ]; then as_root systemctl mask "$1" || return 1; fi
}

steps_of_sysv() {
    if [ "$running/$2" = yes/no ]; then as_root service "$1" stop || return 1; fi
    if [ "$enabled" != "$3" ]; then
        if command -v chkconfig >/dev/null; then tool=chkconfig; else tool=update-rc.d; fi
        case $tool/$3 in
            chkconfig/yes) as_root chkconfig "$1" on ;;
            chkconfig/no) as_root chkconfig "$1" off ;;
            */yes) as_root update-rc.d "$1" enable ;;
            *) as_root update-rc.d "$1" disable ;;
        esac || return 1
    fi
    if [ "$running/$2" = no/yes ]; then as_root service "$1" start || return 1; fi
}

# set_service NAME RUNNING ENABLED MASKED, each yes or no
set_service() {
    why='' text=''
    if ! has_systemd && ! command -v service >/dev/null; then
        why="there is neither systemd nor a command named service"; return 1
    fi
    look_at "$1"
    before=$running/$enabled/$masked
    [ "$before" != "$2/$3/$4" ] || return 10
    if has_systemd; then steps_of_systemd "$@"; else steps_of_sysv "$@"; fi || why=${said:-a command failed}
    look_at "$1"
    [ "$running/$enabled/$masked" != "$2/$3/$4" ] || return 0
    why="running $running, enabled $enabled, masked $masked instead of $2, $3, $4${why:+: $why}"
    [ "$before" != "$running/$enabled/$masked" ] || return 1
    return 2
}

read_tuned() {
    tuned=$(tuned-adm active 2>/dev/null | sed -n 's/^Current active profile: *//p')
    [ "$tuned" != off ] || tuned=''
}

# set_tuned [PROFILE…]: none = off
set_tuned() {
    why='' text=''
    if ! command -v tuned-adm >/dev/null; then why="there is no tuned-adm"; return 1; fi
    read_tuned
    before=$tuned
    [ "$tuned" != "$*" ] || return 10
    if [ "$#" -gt 0 ]; then as_root tuned-adm profile "$@"; else as_root tuned-adm off; fi || :
    read_tuned
    [ "$tuned" != "$*" ] || return 0
    why="the profile is ${tuned:-off} instead of ${*:-off}${said:+: $said}"
    [ "$tuned" != "$before" ] || return 1
    return 2
}
"""

FUNCTIONS: Final = f"{shell_text('value.sh')}{_FUNCTIONS}"
