# shellcheck shell=sh disable=SC2154,SC2034  # $tail is set before
# Prints the record of the last install step, and the end of its output; begins with lock.sh and install_record.sh.

find_lock && [ -f "$lock.install" ] || exit 0
record=$lock.install ticket=''
is_lost() { read_record; [ "$code" = running ] && ! { holder && [ "$held_by" = install ]; }; }
# A step keeps its exit code before it gives the lock back, and writes the holder again once it is at work.
if is_lost && { sleep 0.2 2>/dev/null || sleep 1; } && is_lost; then code=lost; fi
echo "$of $code"
tail -c "$tail" "$lock.install.out" 2>/dev/null
