# shellcheck shell=sh disable=SC2154,SC2094,SC2209  # $line is set before

# Runs $line in its own session and reports how it ended; nothing interrupts the line.
#
# Without a service manager to take the job, the script that stops a node must not die half-way when the connection is
# lost. So it has no terminal, no pipe to this program that could break, and its output goes to a file that is unlinked at
# once. It keeps its standard input: sudo reads the password there.
exec 3<&0
f=$(mktemp "${TMPDIR:-/tmp}/orchestrate.XXXXXX" 2>/dev/null) || f=/dev/null
exec 4>"$f" 5<"$f"; [ "$f" = /dev/null ] || rm -f "$f"
command -v setsid >/dev/null && apart=setsid || apart=nohup
$apart /bin/sh -c "$line" <&3 >&4 2>&1 3<&- 4>&- 5<&- &
wait $!; code=$?
head -c 131072 <&5
exit "$code"
