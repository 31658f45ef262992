# shellcheck shell=sh disable=SC2154,SC2209  # $lock, $ticket, $tries, $runner and $fed are set before
# Begins an install step, and ends once its host has recorded it; begins with lock.sh, take.sh and install_record.sh.

make_lock
[ -n "$lock" ] || no_lock
record=$lock.install
require_new
# A shell's variable and a builtin: the password is in no argument list.
if [ -n "$fed" ]; then IFS= read -r password; fi
said=$record.begin.$$
trap 'rm -f "$said"' EXIT
command -v setsid >/dev/null && apart=setsid || apart=nohup
if [ -n "$fed" ]; then
    printf '%s\n' "$password" | $apart /bin/sh -c "$runner" install "$ticket" "$record" >"$said" 2>&1 <&0 9>&- &
else
    $apart /bin/sh -c "$runner" install "$ticket" "$record" >"$said" 2>&1 </dev/null 9>&- &
fi
runner=$!
while [ "$tries" -gt 0 ]; do
    if read_record; then exit 0; fi
    if ! kill -0 "$runner" 2>/dev/null; then
        read_record && exit 0
        cat "$said"; echo 'not begun: see above'; exit 1
    fi
    sleep 0.1 2>/dev/null || sleep 1
    tries=$((tries - 1))
done
echo 'no sign of it yet'; exit 3
