# shellcheck shell=sh disable=SC2154,SC2034  # $line, $limit, $look, $unless and $watchdog are set before; $code is used after

# Runs $line, ends it after $limit seconds, and leaves its exit code in $code. `record` is called with its pid.
#
# The shell itself keeps the limit: `timeout` is not everywhere, older ones have no `-k`, and those of older BusyBoxes
# take other arguments. The line runs in a session of its own, $work, so that all of its processes are ended. It gets the
# standard input of the script, but not the lock (9): a node that it starts would keep both open. If a trap interrupts the
# wait, the line continues.
run_bounded() {
    exec 6<&0
    command -v setsid >/dev/null && apart=setsid || apart=
    read -r began rest </proc/uptime
    $apart /bin/sh -c "$line" <&6 6<&- 9>&- &
    work=$!
    $apart /bin/sh -c "$watchdog" watchdog "$limit" "$work" $$ "$look" "$unless" \
        </dev/null >/dev/null 2>&1 6<&- 9>&- &
    watching=$!
    record "$work"
    wait "$work"
    code=$?
    read -r ended rest </proc/uptime
    { kill -KILL "-$watching" || kill -KILL "$watching"; wait "$watching"; } 2>/dev/null
    began=${began%.*}${began#*.} ended=${ended%.*}${ended#*.}
    # As `timeout` ends.
    if [ $((ended - began)) -ge $((limit * 100)) ]; then code=124; fi
}
