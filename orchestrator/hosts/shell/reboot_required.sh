# shellcheck shell=sh disable=SC2016  # a command in a message
# Says why a reboot is required, if it is.
for flag in /run/reboot-required /var/run/reboot-required /run/reboot-needed; do
    [ -e "$flag" ] && { echo "$flag exists"; exit 0; }
done
PATH=$PATH:/usr/sbin:/sbin
command -v needs-restarting >/dev/null || exit 0
needs-restarting -r 2>/dev/null | grep -qi '^reboot is \(required\|suggested\)' &&
    echo '`needs-restarting -r` asks for a reboot'
exit 0
