set -u
umask 022
LC_ALL=C; export LC_ALL
PATH=${PATH:-/usr/bin:/bin}:/usr/sbin:/sbin; export PATH
unset IFS
newline='
'
