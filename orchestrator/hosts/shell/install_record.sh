# shellcheck shell=sh disable=SC2154,SC2034  # $record and $ticket are set before; $code and $of are used after
# The record of the last install step of a node, beside the node's lock.

# What it records last, in $of and $code: a node's name, and so a ticket, may have spaces.
read_record() {
    line=''
    { read -r line <"$record"; } 2>/dev/null
    code=${line##* } of=${line% *}
    [ "$of" = "$ticket" ]
}

# Ends the script unless the ticket is new. Asked again under the lock: a shell that was suspended in between is late.
require_new() {
    if read_record; then echo 'it was begun before'; exit 0; fi
    if [ "${of%/*/*}" = "${ticket%/*/*}" ] && [ "${ticket##*/}" -lt "${of##*/}" ]; then
        echo 'not begun: a later install step was begun'; exit 1
    fi
}
