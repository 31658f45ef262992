# Files of this program and its lines in other files: written, and read back.
#
# `tee` writes a file in place, so that the file keeps its owner and mode, and so that one word-for-word line of a sudoers
# file allows it. Before a write, the file must equal the found text byte for byte. If a write fails half-way (a full disk),
# the text before is restored.

# Whether a file may be compared at all, by somebody without rights.
may_read() {
    folder=${1%/*}
    if [ -d "$folder" ] && [ ! -x "$folder" ]; then
        why="$folder cannot be read: permission denied"; return 1
    fi
    if [ -e "$1" ] && [ ! -r "$1" ]; then
        why="$1 cannot be read: permission denied"; return 1
    fi
}

# holds FILE TEXT: byte for byte; the dot keeps the shell from dropping newlines at the end.
holds() {
    [ "$(wc -c <"$1")" -eq "$(printf %s "$2" | wc -c)" ] && [ "$(cat "$1"; echo .)" = "$2." ]
}

# is FILE SPEC: `-` means no file, `=TEXT` a file with exactly this text.
is() {
    case $2 in
        -) [ ! -e "$1" ] && [ ! -L "$1" ] ;;
        *) [ -f "$1" ] && [ -r "$1" ] && holds "$1" "${2#=}" ;;
    esac
}

# text_of FILE: byte for byte, in $whole.
text_of() {
    whole=$(cat "$1"; echo .); whole=${whole%.}
}

# A kill of `tee` leaves the beginning of a text, and nothing shows where it was cut. So until a write is
# done, the text before and the new one are kept in the home of the account, for the next script.
# find_kept PATH: what is kept of it, in $before and $new; fails without.
find_kept() {
    host=''
    { read -r host </proc/sys/kernel/hostname; } 2>/dev/null
    kept=${HOME:-}/.orchestrate-kept/$host$1
    [ -f "$kept" ] && [ -f "$kept.new" ] || return 1
    text_of "$kept"; before=$whole
    text_of "$kept.new"; new=$whole
}

# keep BEFORE NEW
keep() {
    [ -n "${HOME:-}" ] || return 0
    (
        umask 077
        mkdir -p "${kept%/*}" && printf %s "$1" >"$kept" && printf %s "$2" >"$kept.new"
    ) 2>/dev/null || forget
}

forget() {
    rm -f "$kept" "$kept.new" 2>/dev/null
}

# Whether $path is the beginning of a kept text, and not the whole of one.
is_cut() {
    [ -f "$path" ] && [ -r "$path" ] || return 1
    text_of "$path"
    if [ "$whole" = "$before" ] || [ "$whole" = "$new" ]; then return 1; fi
    case $before in "$whole"*) return 0 ;; esac
    case $new in "$whole"*) return 0 ;; esac
    return 1
}

# What a strict umask of sudo closed is opened: these files are no secret, and are read back without rights.
open_to_all() {
    text=''
    case $(ls -ld "$2" 2>&1) in
        [d-]rw[x-]r-[x-]r-[x-]*) ;;
        *) as_root chmod "$1" "$2" ;;
    esac
}

# make_folder FOLDER: when missing; one that only we fill (`own` is yes).
make_folder() {
    [ ! -d "$1" ] || return 0
    if [ "$own" = no ]; then why="there is no folder $1"; return 1; fi
    text='' made=yes
    as_root mkdir -p "$1" && open_to_all 0755 "$1"
    [ -d "$1" ] || { why="no folder $1${said:+: $said}"; return 1; }
}

# drop_folder FOLDER: the same when it is empty.
drop_folder() {
    if [ ! -d "$1" ] || [ "$own" = no ] || [ -n "$(ls -A "$1" 2>&1)" ]; then return 0; fi
    text=''
    as_root rmdir "$1" || { why="the empty folder $1 is left${said:+: $said}"; return 1; }
}

# Notifies the program that reads the file, where there is one.
reload() {
    text=''
    case $1 in
        systemd) [ ! -d "$root/run/systemd/system" ] || as_root systemctl daemon-reload ;;
        init) links_of "${path##*/}" ;;
        *) : ;;
    esac || { why="as wanted, but $1 did not read it${said:+: $said}"; return 1; }
}

# The links that start an init script at boot: made with it, removed with it.
links_of() {
    if [ -e "$path" ]; then
        as_root chmod 0755 "$path" || return 1
        if command -v chkconfig >/dev/null; then as_root chkconfig --add "$1"
        else as_root update-rc.d "$1" defaults; fi
    elif ! command -v chkconfig >/dev/null; then as_root update-rc.d "$1" remove
    else
        for link in "$root"/etc/rc.d/rc[0-6].d/[SK][0-9][0-9]"$1" "$root"/etc/rc[0-6].d/[SK][0-9][0-9]"$1"; do
            if [ -L "$link" ]; then as_root rm -f "$link" || return 1; fi
        done
    fi
}

write_spec() {
    case $2 in
        -) text=''; as_root rm -f "$1" ;;
        *) text=${2#=}; as_root tee "$1" ;;
    esac
}

# put_file PATH RELOAD OWN FOUND WANTED: OWN is yes if only we fill the file's folder; `-` = no file, `=TEXT`.
put_file() {
    path=$root$1 own=$3 why='' made=''
    folder=${path%/*}
    may_read "$path" || return 1
    if is "$path" "$5"; then
        if find_kept "$1"; then forget; fi
        reload "$2" || return 2
        [ "$5" != - ] || drop_folder "$folder" || :
        return 10
    fi
    # A new file may be cut to nothing, which is then the kept text before too.
    if ! is "$path" "$4" && ! { find_kept "$1" && { is_cut || is "$path" =; }; }; then
        why="another process has changed it since"; return 1
    fi
    find_kept "$1" || :
    if [ "$5" != - ]; then
        make_folder "$folder" || { drop_folder "$folder" || return 2; return 1; }
        keep "${4#[-=]}" "${5#=}"
    fi
    write_spec "$path" "$5" || :
    if [ "$4" = - ] && [ -e "$path" ]; then open_to_all 0644 "$path"; fi
    ! is "$path" "$5" || forget
    if ! is "$path" "$5"; then
        why="not as written${said:+: $said}"
        is "$path" "$4" || write_spec "$path" "$4"
        is "$path" "$4" || { why="$why; the text before it could not be restored${said:+: $said}"; return 2; }
        forget
        [ -z "$made" ] || drop_folder "$folder" || return 2
        return 1
    fi
    reload "$2" || return 2
    [ "$5" != - ] || drop_folder "$folder" || return 0
}

# unless_needed PARTS COMMAND…: what all parts of the boot script share is removed only if no part but these
# is there.
unless_needed() {
    removed=$1 why=''
    shift
    folder=$root/etc/orchestrate-tuning
    if [ -d "$folder" ] && [ ! -r "$folder" ]; then
        why="$folder cannot be read: permission denied"; return 1
    fi
    for part in "$folder"/*.part; do
        if [ ! -e "$part" ] && [ ! -L "$part" ]; then continue; fi
        case " $removed " in
            *" ${part#"$root"} "*) ;;
            *) why="it stays for ${part#"$root"}"; return 1 ;;
        esac
    done
    "$@"
}

# Numbers of the lines of $path that are exactly $1, each on a line.
lines_that_are() {
    grep -n -x -F -e "$1" "$path" | cut -d : -f 1
}

# Where our lines begin and end, in $first and $last; both empty when there are none.
find_block() {
    first=$(lines_that_are "$begin") last=$(lines_that_are "$end")
    case $first:$last in
        :) ;;
        *"$newline"*|:*|*:)
            why="the marks \"$begin\" and \"$end\" are not there once each"; return 1 ;;
        *) [ "$first" -lt "$last" ] || { why="\"$end\" is before \"$begin\""; return 1; } ;;
    esac
}

ends_with_newline() {
    [ -z "$(tail -c 1 "$path")" ]
}

# The lines before $1 and the lines after $2, byte for byte, in $above and $below.
around() {
    above=$(head -n "$(($1 - 1))" "$path"; echo .); above=${above%.}
    below=$(tail -n "+$(($2 + 1))" "$path"; echo .); below=${below%.}
}

# What the file will be, in $text. A file without a newline at its end is left without one: the way back sees
# our last line without one, and restores exactly what was found.
with_block() {
    if [ "$1" = - ]; then block=''; else block="$begin$newline${1#=}$end$newline"; fi
    if [ -n "$first" ]; then
        around "$first" "$last"
        if [ -z "$below" ] && ! ends_with_newline; then
            if [ -n "$block" ]; then block=${block%?}; else above=${above%?}; fi
        fi
        text=$above$block$below
        return
    fi
    if ends_with_newline; then
        text=$all$block
    else
        text=$all$newline${block%?}
    fi
}

restore_cut() {
    find_kept "$1" || return 0
    if is_cut; then
        text=$before
        as_root tee "$path" || :
        if ! holds "$path" "$before"; then
            why="a kill has cut it; the text before is in $kept${said:+: $said}"; return 2
        fi
    fi
    forget
}

# put_block PATH BEGIN END FOUND WANTED: the lines between our marks; `-` = none, `=LINES`.
put_block() {
    path=$root$1 why='' begin=$2 end=$3
    if [ ! -f "$path" ]; then why="there is no file $path"; return 1; fi
    may_read "$path" || return 1
    restore_cut "$1" || return 2
    [ "$(wc -c <"$path")" -le 1048576 ] || { why="$path is larger than 1 MiB"; return 1; }
    if [ "$(tr -d '\0' <"$path" | wc -c)" -ne "$(wc -c <"$path")" ]; then
        why="$path holds bytes that are no text"; return 1
    fi
    all=$(cat "$path"; echo .); all=${all%.}
    find_block || return 1
    now=-
    if [ -n "$first" ]; then
        now="=$(sed -n "$((first + 1)),$((last - 1))p" "$path"; echo .)"; now=${now%.}
        [ "$((last - first))" -gt 1 ] || now='='
    fi
    [ "$now" != "$5" ] || return 10
    if [ "$now" != "$4" ]; then why="another process has changed it since"; return 1; fi
    with_block "$5"
    new=$text
    keep "$all" "$new"
    as_root tee "$path" || :
    ! holds "$path" "$new" || { forget; return 0; }
    why="not as written${said:+: $said}"
    text=$all
    holds "$path" "$all" || as_root tee "$path" || :
    ! holds "$path" "$all" || { forget; return 1; }
    why="$why; the text before it could not be restored${said:+: $said}"
    return 2
}
