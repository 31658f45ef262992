# shellcheck shell=sh disable=SC2154,SC2034  # variables of lock.sh, and $patience
# How the lock of a node is taken; begins with lock.sh.

# The first folder that can be had, in $lock the file; empty where there is none, or no flock.
make_lock() {
    command -v flock >/dev/null || return 0
    for base in $folders; do
        [ -e "$base/orchestrate-$uid" ] || (umask 077; mkdir "$base/orchestrate-$uid") 2>/dev/null
        if is_ours "$base/orchestrate-$uid"; then
            lock=$base/orchestrate-$uid/$name
            if (: >>"$lock") 2>/dev/null; then return 0; fi
        fi
    done
    lock=''
}

no_lock() {
    echo "not done: no lock can be taken on this host: it needs flock (util-linux) and a folder in one of $folders"
    exit 1
}

held() {
    echo "not done: the lock of this node on its host is held by" \
        "its ${held_by:-unknown command} since ${since:-unknown} (pid ${pid:-0})${1:-}"
    exit 1
}

# Waits for the lock. Once the lock is held, a record of a process that still lives is of a holder that was killed while
# its command still runs: that is waited for too.
take() {
    tries=0
    look_at_clock
    first=$now
    while :; do
        flock -n 9 9>&9 2>/dev/null
        case $? in
            0) holder || return 0 ;;
            1) holder || : ;;
            # A file system without locks.
            *) lock=''; return 0 ;;
        esac
        look_at_clock
        tries=$((tries + 1))
        waited=$(((now - first) / 100))
        [ "$held_by" != install ] || held
        if [ -n "$until" ] && [ "$now" -gt "$((until + overdue * 100))" ]; then
            held "; it should have ended long ago: end that process, and see why it hangs"
        fi
        if [ -z "$until" ] && [ "$waited" -ge "$no_record" ]; then held; fi
        if [ "$tries" -gt 4 ] && [ "$waited" -ge "$patience" ]; then held; fi
        sleep 0.2 2>/dev/null || sleep 1
    done
}
