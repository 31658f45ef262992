# read_value FILE: the current choice in a file of the kernel, in $value: the word in brackets where there is one. Where
# it cannot be read, $why says so.
read_value() {
    if [ ! -e "$1" ]; then why="there is no $1"; return 1; fi
    value=$(head -c 4096 "$1" 2>&1) || { why="cannot be read: $value"; return 1; }
    case $value in *"["*"]"*) value=${value#*"["}; value=${value%%"]"*} ;; esac
    set -f
    # shellcheck disable=SC2086  # blanks and tabs are the same to the kernel
    set -- $value
    set +f
    value="$*"
}

# set_value PATH VALUE: writes it with `write_value FILE VALUE` unless it is there, and reads it back. The value before is
# in $before. Exit code 0: made and read back, 10: was so before, 1: nothing altered, 2: altered, but not as wanted; $why
# has the reason.
set_value() {
    why=''
    read_value "$root$1" || return 1
    before=$value
    [ "$value" != "$2" ] || return 10
    write_value "$root$1" "$2" || :
    read_value "$root$1" || { why="written, but $why"; return 2; }
    [ "$value" != "$2" ] || return 0
    why="reads $value instead of $2${said:+: $said}"
    [ "$value" != "$before" ] || return 1
    return 2
}
