# Each function sets one value, if it is another one, and reads it again.

log() {
    printf '%s\n' "$*"
    # systemd sends what is printed to the journal.
    if [ ! -d "$root/run/systemd/system" ] && command -v logger >/dev/null; then
        logger -t orchestrate-tuning "$*"
    fi
}

# skip SUBJECT WHY: a value that is not set, said once.
skip() {
    if [ "$round" -eq 1 ]; then log "$1: NOT set: $2"; fi
    result=1
}

# want PATH VALUE: unless a later part has set it.
want() {
    case $claimed in *" $1 "*) return ;; esac
    claimed="$claimed$1 "
    put "$1" "$2"
}

write_value() {
    printf %s "$2" 2>/dev/null >"$1"
}

# put PATH VALUE
put() {
    set_value "$1" "$2"
    case $? in
        0) log "$1: $before -> $2"; moved=yes ;;
        10) ;;
        *) skip "$1" "$why" ;;
    esac
}

# choose PATH WORD: the word, or the one with the same meaning ($same), whichever the file offers. A file that holds 0 or 1
# alone is a switch: it offers both.
choose() {
    path=$1 first=$2
    second=${same#*" $2="}; second=${second%% *}
    set -f
    # shellcheck disable=SC2046  # its words
    set -- $(head -c 4096 "$root$path" 2>/dev/null | tr -d '[]')
    set +f
    case $* in 0|1) set -- 0 1 ;; esac
    for word in "$first" ${second:+"$second"}; do
        case " $* " in *" $word "*) want "$path" "$word"; return ;; esac
    done
    skip "$path" "$first is not offered: $*"
}

# huge_pages FILE VALUE: `enabled`, `defrag` or `khugepaged/defrag`. RHEL 6 has a folder of its own.
huge_pages() {
    for top in transparent_hugepage redhat_transparent_hugepage; do
        file=/sys/kernel/mm/$top/$1
        if [ -e "$root$file" ]; then choose "$file" "$2"; fi
    done
    if [ "$1" != enabled ]; then return; fi
    # A page size follows the general file (`inherit`), is off, or has a value of its own, which is wrong here.
    for file in "$root"/sys/kernel/mm/transparent_hugepage/hugepages-*/enabled; do
        if [ ! -e "$file" ] || ! read_value "$file"; then continue; fi
        case $value in "$2"|inherit|never) ;; *) choose "${file#"$root"}" "$2" ;; esac
    done
}

path_of() {
    printf '/proc/sys/%s\n' "$(printf %s "$1" | tr . /)"
}

# parameter NAME VALUE: also in the files of control groups that have a value of their own ($groups).
parameter() {
    want "$(path_of "$1")" "$2"
    for each in $groups; do
        case $each in "$1="*) file=${each#*=} ;; *) continue ;; esac
        case $file in *"{unit}.service"*)
            if [ -z "$unit" ]; then continue; fi
            file=${file%%"{unit}.service"*}$unit${file#*"{unit}.service"} ;;
        esac
        if [ -f "$root$file" ]; then want "$file" "$2"; fi
    done
}

is_number() {
    case $1 in ''|*[!0-9]*) return 1 ;; esac
    [ "${#1}" -lt 19 ]
}

# at_least NAME VALUE [PERCENT]: a parameter that is never lowered; a value in kB, at most PERCENT of the memory.
at_least() {
    least=$2
    if ! is_number "$least" || ! is_number "${3-0}"; then skip "$1" "$* is not understood"; return; fi
    if [ -n "${3-}" ]; then
        memory=$(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' "$root/proc/meminfo")
        if ! is_number "$memory"; then skip "$1" "the size of the memory cannot be read"; return; fi
        if [ "$least" -gt $((memory * $3 / 100)) ]; then least=$((memory * $3 / 100)); fi
    fi
    if ! read_value "$root$(path_of "$1")"; then skip "$1" "$why"; return; fi
    if ! is_number "$value"; then skip "$1" "it reads $value, which is no number"; return; fi
    if [ "$value" -lt "$least" ]; then put "$(path_of "$1")" "$least"; fi
}
