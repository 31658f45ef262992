# shellcheck shell=sh disable=SC2154  # $names, $marks, $in_container, $locks and $by_lock are set before

# Prints the processes that may be at work on a service, as PID NAME LINE, and who has locked the packages. A process may
# end at any moment.
for one in $(grep -lxE "$names" /proc/[0-9]*/comm 2>/dev/null
    grep -laE "$marks" /proc/[0-9]*/cmdline 2>/dev/null); do
    pid=${one#/proc/}; pid=${pid%%/*}
    { IFS= read -r name <"/proc/$pid/comm"; } 2>/dev/null || continue
    grep -qE "$in_container" "/proc/$pid/status" 2>/dev/null && continue
    line=$( { tr '\000\n' '  ' <"/proc/$pid/cmdline"; } 2>/dev/null | cut -c 1-200)
    echo "$pid $name $line"
done
# `/proc/locks` has the device of a file system: that of `stat`, or on btrfs and overlays only that of the mount.
for file in $locks; do
    at=$(stat -c '%i %d %m' "$file" 2>/dev/null) || continue
    awk -v at="$at" -v file="$file" -v by="$by_lock" '
        BEGIN {
            split(at, its, " ")
            of[sprintf("%02x:%02x", int(its[2] / 256) % 4096, its[2] % 256 + int(its[2] / 1048576) * 256)] = 1
        }
        FILENAME == "/proc/self/mountinfo" {
            if ($5 == its[3]) { split($3, device, ":"); of[sprintf("%02x:%02x", device[1], device[2])] = 1 }
            next
        }
        $2 == "POSIX" && $5 > 0 {
            split($6, part, ":")
            if (part[3] == its[1] && (part[1] ":" part[2]) in of) print $5, by, file
        }
    ' /proc/self/mountinfo /proc/locks 2>/dev/null
done
exit 0
