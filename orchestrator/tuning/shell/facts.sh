# What is read of a host, printed as numbered pieces, see tuning/facts.py; find.sh comes before it. $orchestrate_mark begins
# each piece, $file_bytes is the most of one file or output, and a tool has $tool_seconds.

n=0

# h TITLE: the head of a piece.
h() {
    n=$((n + 1))
    printf '\n%s %s %s\n' "$orchestrate_mark" "$n" "$1"
}

# piece TITLE BODY
piece() {
    h "$1"
    printf '%s' "$2"
}

# out NAME COMMAND…: what a command prints, and its exit code.
out() {
    h "out $1"
    shift
    n=$((n + 1))
    { "$@" 2>&1; r=$?; printf '\n%s %s exit\n%s' "$orchestrate_mark" "$n" "$r"; } | head -c "$file_bytes"
    h over
}

# there PATH [BYTES]: a file and its beginning; without BYTES, that it is there.
there() {
    piece file "${1#"$root"}"
    h text
    [ -z "${2-}" ] || head -c "$2" "$1" 2>&1
    r=$?
    piece exit "$r"
}

# bad PATH WHY
bad() {
    piece "bad $2" "${1#"$root"}"
}

# missing PATH: nothing is said of a file that is not there, if it would be seen.
missing() {
    a=$1
    while [ "$a" != "$root" ] && [ -n "$a" ] && ! [ -e "$a" ]; do a=${a%/*}; done
    [ -d "$a" ] || return 0
    [ -x "$a" ] || { bad "$1" "its folder may not be searched"; return 0; }
    case $1 in *[*?[]*) [ -r "$a" ] || bad "$1" "its folder may not be listed" ;; esac
}

# f PATH: a file.
f() {
    # shellcheck disable=SC3013  # for a shell without -ef, the device is no regular file
    if [ -f "$1" ]; then there "$1" $((file_bytes + 1))
    elif [ -d "$1" ]; then bad "$1" "a folder, not a file"
    elif [ -e "$1" ] && [ "$1" -ef /dev/null ]; then there "$1"
    elif [ -e "$1" ]; then bad "$1" "no regular file"
    elif [ -L "$1" ]; then bad "$1" "a link to nothing"
    else missing "$1"; fi
}

# d PATH/: whether a folder is there.
d() {
    if [ -d "$1" ]; then there "$1"; else missing "${1%/}"; fi
}

# asked NUMBER f|d PATH…: the files that a pattern matches, and a piece for the finished pattern.
asked() {
    number=$1 reads=$2
    shift 2
    for each in "$@"; do "$reads" "$each"; done
    h "asked $number"
}

# Paths whose existence is itself a fact, and what is read of every host.
system() {
    h 'note markers'
    for m in /run/systemd/system /run/openrc /etc/init.d /etc/rc.d/init.d; do
        if [ -e "$root$m" ]; then echo "$m"; fi
    done
    f "$root/etc/inittab"
    out memory grep '^MemTotal:' "$root/proc/meminfo"
    out processors grep -c '^processor' "$root/proc/cpuinfo"
}

# links NAME…: the links that start an init script.
links() {
    h 'note links'
    for name in "$@"; do
        for m in "$root"/etc/rc[2345].d/S[0-9][0-9]"$name" "$root"/etc/init.d/rc[2345].d/S[0-9][0-9]"$name"; do
            if [ -e "$m" ] || [ -L "$m" ]; then printf '%s\n' "${m#"$root"}"; fi
        done
    done
}

# units UNIT…: their states, where systemd runs.
units() {
    if [ ! -d "$root/run/systemd/system" ]; then return; fi
    out systemctl limited "$tool_seconds" systemctl show \
        -p Id -p Names -p LoadState -p ActiveState -p UnitFileState -- "$@"
}

# scripts NAME…: the same of init scripts, where it does not.
scripts() {
    if [ -d "$root/run/systemd/system" ]; then return; fi
    for name in "$@"; do
        if [ ! -e "$root/etc/init.d/$name" ]; then continue; fi
        if command -v service >/dev/null; then out "service $name" limited "$tool_seconds" service "$name" status
        else out "service $name" limited "$tool_seconds" "$root/etc/init.d/$name" status; fi
    done
}

# limits NAME UNIT: of a node's own service, as systemd has read them from templates, drop-ins and its own defaults; and of
# its running process.
limits() {
    if [ -d "$root/run/systemd/system" ]; then
        out limits limited "$tool_seconds" systemctl show \
            -p LoadState -p LimitNOFILE -p LimitMEMLOCK -p LimitNOFILESoft -p LimitMEMLOCKSoft -- "$2"
        p=$(limited "$tool_seconds" systemctl show -p MainPID -- "$2" 2>/dev/null | head -c "$file_bytes")
        p=${p#MainPID=}
    else
        p=$(limited "$tool_seconds" service "$1" status 2>/dev/null | head -c "$file_bytes" |
            sed -n 's/.*(pid *\([0-9]*\)).*/\1/p')
    fi
    case $p in
        ''|0|*[!0-9]*) ;;
        *) [ ! -d "$root/proc/$p" ] || out process cat "$root/proc/$p/limits" ;;
    esac
}

tuned() {
    f "$root/etc/tune-profiles/active-profile"
    if command -v tuned-adm >/dev/null; then out tuned limited "$tool_seconds" tuned-adm active; fi
}

# data_path NUMBER PATH FILE…: the devices behind a data path, and these files of their queues. After a path without an
# answer within $data_seconds, the next one gets one second.
data_path() {
    number=$1
    resolve "$2" "${slow:-$data_seconds}"
    r=$?
    [ $r -le 4 ] || slow=1
    shift 2
    piece "out data $number" "$real"
    piece exit "$r"
    found=''
    [ $r -ne 0 ] || found=$(behind "$real")
    piece "note disks $number" "$found"
    h files
    while read -r role name _; do
        case $role in
            top|leaf|path|multipath) for each in "$@"; do f "$root/sys/block/$name/queue/$each"; done ;;
        esac
    done <<END
$found
END
    h "asked disks $number"
}
