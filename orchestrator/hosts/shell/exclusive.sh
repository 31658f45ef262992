# shellcheck shell=sh disable=SC2154,SC2119,SC2120  # $what, $limit, $needs_lock and the variables of lock.sh and bounded.sh
# Runs $line under the lock and ends with its exit code; begins with take.sh and bounded.sh.

record() {
    [ -n "$lock" ] || return 0
    look_at_process $$; holder_began=$begun worker_began=''
    if [ -n "${1:-}" ]; then look_at_process "$1"; worker_began=$begun; fi
    echo "$what $(date -u +%Y-%m-%dT%H:%M:%SZ) $until $$ $holder_began ${1:-} $worker_began" >"$lock"
}

# What the watchdog could not end is root's, and still at work.
is_at_work() {
    for process in /proc/[0-9]*; do
        { read -r stat <"$process/stat"; } 2>/dev/null || continue
        # shellcheck disable=SC2086  # its fields
        set -- ${stat##*") "}
        case $1:$4 in Z:*|X:*) ;; *:"$work") return 0 ;; esac
    done
    return 1
}

make_lock
if [ -n "$lock" ]; then exec 9>>"$lock"; take; fi
[ -n "$lock" ] || [ -z "$needs_lock" ] || no_lock
look_at_clock
until=$((now + limit * 100)) over=''
trap 'over=yes' USR1
record
run_bounded
case $over/$code in
    /124) while is_at_work; do sleep 1; done ;;
esac
case $over/$code in
    yes/*) echo 'the command has not ended, but the service runs: the command is left running'; code=0 ;;
    /124) echo "the command was ended at its limit of $limit s" ;;
esac
[ -z "$lock" ] || : >"$lock"
exit "$code"
