# shellcheck shell=sh disable=SC2154,SC2034  # $name, $uid and $folders are set before, $since is used after
# The lock of a node; begins with the functions of process.sh.

# Seconds and hundredths since the boot, in $now: no clock that somebody sets.
look_at_clock() { read -r now rest </proc/uptime; now=${now%.*}${now#*.}; }

lives() {
    case $1:$2 in *[!0-9:]*|:*|*:) return 1 ;; esac
    look_at_process "$1"
    [ "$begun" = "$2" ]
}

# Who holds the lock, in $held_by, $since, $until and $pid.
holder() {
    held_by='' since='' until='' pid=''
    { read -r held_by since until pid began worker worker_began <"$lock"; } 2>/dev/null
    case $held_by:$until in *:|:*|*:*[!0-9]*) return 1 ;; esac
    if lives "$pid" "$began"; then return 0; fi
    pid=$worker
    lives "$worker" "$worker_began"
}

# Only a folder of this account that is closed to all others, so that no other account can write there.
is_ours() {
    # shellcheck disable=SC2046  # its fields
    set -- $(ls -ldn "$1" 2>/dev/null)
    case ${1-}:${3-} in drwx------*:"$uid") return 0 ;; esac
    return 1
}

find_lock() {
    for base in $folders; do
        if is_ours "$base/orchestrate-$uid" && [ -w "$base/orchestrate-$uid" ]; then
            lock=$base/orchestrate-$uid/$name
            return 0
        fi
    done
    return 1
}
