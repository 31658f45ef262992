# The changes of one tunable on a host, each read back. Any POSIX shell runs them. The found and wanted values are
# arguments; nothing is assumed about a host. The functions for files are in files.sh.

said='' text='' why='' value='' failed=''

# as_root COMMAND…: runs a command with $text as its standard input; what it complained of is left in $said, and the first
# that failed in $failed. How it becomes root is in $sudo: `off`, `passwordless` or `password`. A password comes on standard
# input, never as an argument or in the environment: every shell accepted here has `printf` built in.
as_root() {
    case $sudo in
        off) said=$(printf %s "$text" 2>/dev/null | "$@" 2>&1 >/dev/null 9<&-) ;;
        passwordless) said=$(printf %s "$text" 2>/dev/null | sudo -n "$@" 2>&1 >/dev/null 9<&-) ;;
        *) with_password "$@" ;;
    esac && return 0
    failed=${failed:-$*}
    return 1
}

# Under a rule with NOPASSWD, sudo reads no password, and `tee` would write the password into the file: so each command is
# tried without it first. `-v` finds a wrong password with one attempt. Further attempts could lock the account, and sudo
# would read the lines of the file as passwords.
checked=''
# shellcheck disable=SC2154  # $password and $barred are read before
with_password() {
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

# Of two programs that change one host, one would read files that the other has half written. The lock
# goes with this process, however that ends, and nothing that is started here is left with it.
alone() {
    waited=0
    if ! command -v flock >/dev/null || [ ! -r "$root/etc" ]; then return 0; fi
    exec 9<"$root/etc"
    while :; do
        flock -n 9 9<&9 2>/dev/null
        # Anything but "held by another" is a file system without locks.
        [ $? -eq 1 ] || return 0
        if [ "$waited" -ge "$turn" ]; then return 1; fi
        sleep 1
        waited=$((waited + 1))
    done
}
busy() {
    why="another program is tuning this host"
    return 1
}

# Each change returns 0: made and read back, 10: was so before, 1: not made and nothing altered,
# 2: altered, but not as wanted. $why has the reason.

write_value() {
    text=$2
    as_root tee "$1"
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

# change NUMBER COMMAND…: makes a change and reports its result; after the first that fails, nothing is done.
change() {
    number=$1 said='' why='' failed=''
    shift
    "$@"
    code=$?
    printf '%s begin change-%d\n%.1500s\n' "$orchestrate_mark" "$number" "$why"
    printf '%.300s\n%s end change-%d %d\n' "${failed:+as root: $failed}" "$orchestrate_mark" "$number" $code
    case $code in 0|10) ;; *) exit 0 ;; esac
}

# A connection that goes away is no reason to leave a tunable half made. Text that a login printed before, without an end of
# its line, is no part of the answer.
begin_changes() {
    trap '' HUP PIPE
    printf '\n%s begin tuning\n\n%s end tuning 0\n' "$orchestrate_mark" "$orchestrate_mark"
    alone || change 1 busy
}
