# shellcheck shell=sh disable=SC2154  # $folder is set before
# Succeeds if files can be created, filled and linked in a folder, and leaves none behind. It really creates a file: a
# folder with write permission may still be full, or not support links.
cd "$folder" || exit 1
made=''
trap '[ -z "$made" ] || rm -f "$made" "$made.link"' EXIT
trap 'exit 1' HUP INT TERM
made=$(mktemp ./.orchestrate-validate.XXXXXX) && echo 1 >"$made" && ln "$made" "$made.link"
