# shellcheck shell=sh disable=SC2154  # $running, $installed, $step, $record and $ticket are set before
# Runs an install step and records it, under the lock; begins with install_record.sh.

require_new
/bin/sh -c "$running" </dev/null >/dev/null 2>&1
case $? in
    0) echo 'not begun: its service runs'; exit 1 ;;
    124) echo 'not begun: its service does not say whether it runs'; exit 1 ;;
esac
keep() { echo "$ticket $1" >"$record.new" && mv -f "$record.new" "$record"; }
: >"$record.out"
keep running || exit 1
if [ -n "$installed" ] && /bin/sh -c "$installed" </dev/null >"$record.out" 2>&1; then keep found; exit 0; fi
eval "$step" >"$record.out" 2>&1
code=$?
keep "$code"
exit "$code"
