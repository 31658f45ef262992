# tuned's unit counts as started, and its profile as changed, before the profile is applied: the log has the end.
tuned_is_at_work() {
    last=$(tail -n 200 "$root/var/log/tuned/tuned.log" 2>/dev/null |
        grep -E 'starting tuning|stopping tuning|terminating|static tuning from profile' | tail -n 1)
    case $last in *"static tuning from profile"*" applied"*) ;; '') return 1 ;; *) return 0 ;; esac
    active=$(cat "$root/etc/tuned/active_profile" 2>/dev/null)
    case $last in *"'$active'"*) return 1 ;; esac
    [ -n "$active" ]
}

# one_part COMMAND…: the values of one node, in a shell of its own.
one_part() {
    (
        devices='' unit='' changed='' failed=''
        "$@"
        case $changed/$failed in yes/yes) exit 11 ;; yes/) exit 10 ;; /yes) exit 1 ;; esac
        exit 0
    )
    case $? in 0) ;; 10) moved=yes ;; 11) moved=yes result=1 ;; *) result=1 ;; esac
}

# Once; while tuned runs, every second until it has ended its work and nothing was changed for two seconds, at most
# 20 times. So values are right at once, and these are the last ones that are written.
round=0 quiet=0 result=0
while :; do
    round=$((round + 1)) quiet=$((quiet + 1)) moved='' result=0
    all_parts
    if [ ! -e "$root/run/tuned/tuned.pid" ] || [ "$round" -ge 20 ]; then break; fi
    if [ -n "$moved" ] || tuned_is_at_work; then quiet=0; fi
    if [ "$quiet" -gt 2 ]; then break; fi
    sleep 1
done
exit "$result"
