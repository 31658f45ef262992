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
