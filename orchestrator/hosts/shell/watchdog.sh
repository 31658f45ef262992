# shellcheck shell=sh
# Ends a line at its limit; begins with the functions of process.sh. Arguments: the seconds that are left, the pid of the
# line, that of the script, the seconds between two looks, and a shell line that succeeds where the service runs, or ''.
# With that, the script gets SIGUSR1 once it has succeeded twice.

left=$1 work=$2 script=$3 look=$4 unless=$5 question='' runs=0
look_at_process "$script"; script_began=$begun
look_at_process "$work"; work_began=$begun
# If the script was killed, no process ends this watchdog: it ends with the line.
is_at_work() { look_at_process "$work"; [ -n "$begun" ] && [ "$begun" = "$work_began" ]; }
end() { is_at_work || exit 0; kill "$1" "-$work" || kill "$1" "$work"; }
while [ "$left" -gt 0 ]; do
    step=$look; [ "$left" -gt "$step" ] || step=$left
    sleep "$step"; left=$((left - step))
    is_at_work || exit 0
    [ -n "$unless" ] || continue
    # Each question has until the next look: one that hangs must not keep the watchdog from its limit.
    if [ -n "$question" ] && kill -KILL "$question"; then runs=0
    elif [ -n "$question" ] && wait "$question"; then runs=$((runs + 1)); else runs=0; fi
    eval "$unless" & question=$!
    if [ "$runs" -ge 2 ]; then
        look_at_process "$script"
        [ "$begun" != "$script_began" ] || kill -USR1 "$script"
        exit 0
    fi
done
end -TERM
sleep 5
end -KILL
