# shellcheck shell=sh disable=SC2034  # $begun is of its caller
# When a process began, in $begun; empty when it is gone, or a zombie. A pid alone does not identify a process: pids are
# used again.
look_at_process() {
    begun=''
    { read -r stat </proc/"$1"/stat; } 2>/dev/null || return 0
    # shellcheck disable=SC2086  # its fields
    set -- ${stat##*") "}
    case $1 in Z|X) return 0 ;; esac
    begun=${20}
}
