# shellcheck shell=sh disable=SC2154  # $mark and $looks are set before, and $known where a mark was read

# Prints `changed` as soon as what $mark prints is no longer $known, and ends; after $looks looks it ends too.
#
# Service managers report changes only to privileged listeners, so this polls, on the host itself: no round trip is needed
# between two looks. Each writes a sign of life. If the reader is gone, the write fails and ends the script.

nl='
'
# As the reading has it, without an empty line at its beginning: Docker's errors have one.
look() {
    now=$(eval "$mark")
    while [ "${now#"$nl"}" != "$now" ]; do now=${now#"$nl"}; done
}
look
known=${known-$now}
n=0
while [ "$n" -lt "$looks" ]; do
    [ "$now" = "$known" ] || { echo changed; exit 0; }
    echo . || exit 0
    n=$((n + 1))
    # A service usually stops or starts within seconds, and every tenth of a second of a restart counts. The polling of a
    # slower one costs a busy host little.
    if [ "$n" -lt 50 ]; then s=0.1; else s=0.5; fi
    sleep $s 2>/dev/null || sleep 1
    look
done
