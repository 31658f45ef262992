# tuned's unit counts as started, and its profile as changed, before the profile is applied: the log has the end.
tuned_is_at_work() {
    last=$(tail -n 200 "$root/var/log/tuned/tuned.log" 2>/dev/null |
        grep -E 'starting tuning|stopping tuning|terminating|static tuning from profile' | tail -n 1)
    case $last in *"static tuning from profile"*" applied"*) ;; '') return 1 ;; *) return 0 ;; esac
    active=$(cat "$root/etc/tuned/active_profile" 2>/dev/null)
    case $last in *"'$active'"*) return 1 ;; esac
    [ -n "$active" ]
}

# One line of a part, in $line: words in quotes, as for a shell, and nothing that a shell would run.
one_line() {
    words=$(printf '%s\n' "$line" | xargs printf '%s\n' 2>/dev/null) || words=''
    set -f; IFS=$newline
    # shellcheck disable=SC2086  # one word a line
    set -- $words
    unset IFS; set +f
    case ${1-}/$# in
        unit=*/1) unit=${1#unit=} ;;
        parameter/3|huge_pages/3|at_least/3|at_least/4|data/3|data/4|disks/4) "$@" ;;
        *) skip "$part" "this line is not understood: $line" ;;
    esac
}

# The parts, the last one first: of two nodes that want different values, the later part's stays.
all_parts() {
    parts='' claimed=' '
    for part in "$root"/etc/orchestrate-tuning/*.part; do parts=$part$newline$parts; done
    while IFS= read -r part <&3; do
        if [ ! -r "$part" ]; then continue; fi
        devices='' unit='' line=''
        while IFS= read -r line <&4; do
            case $line in ''|'#'*) ;; *) one_line ;; esac
        done 4<"$part"
        if [ -n "$line" ]; then skip "$part" "its last line is cut off: $line"; fi
    done 3<<END
$parts
END
}

# Until nothing was changed; while tuned runs, every second until it has ended its work and nothing was changed for two
# seconds: at most 20 times, and five times after tuned's work. So values are right at once, and written last.
round=0 quiet=0 calm=0
while :; do
    round=$((round + 1)) quiet=$((quiet + 1)) calm=$((calm + 1)) moved='' result=0
    all_parts
    if [ -n "$moved" ]; then quiet=0; fi
    if [ -e "$root/run/tuned/tuned.pid" ]; then
        if tuned_is_at_work; then quiet=0 calm=0; fi
        if [ "$quiet" -gt 2 ] || [ "$calm" -ge 5 ] || [ "$round" -ge 20 ]; then break; fi
        sleep 1
    elif [ "$quiet" -gt 0 ] || [ "$round" -ge 3 ]; then break
    fi
done
if [ -n "$moved" ]; then log "another program changes these values again and again"; result=1; fi
exit "$result"
