#!/bin/sh
# `nodestatus NODE`: what `nodectl status NODE` says, word for word and code for code, without starting Python.
# Whoever watches a node boot asks ten times a second, on the very machine on which it boots.
# The lab copies this file into its own folder, beside nodectl. Its parts of a proof are nodectl's; see there.
lab=${0%/*}
node=$1

not_running() {
    echo "$node is not running"
    exit 3
}

case $node in */* | "") exec "$lab/nodectl" status "$node" ;; esac
[ -f "$lab/$node/launch.json" ] || exec "$lab/nodectl" status "$node"

read -r told 2>/dev/null < "$lab/$node/node.pid" || [ -n "$told" ] || not_running
pid=${told#*\"pid\": } pid=${pid%%[,\}]*}
began=${told#*\"start_time\": } began=${began%%[,\}]*}
boot=${told#*\"boot_id\": \"} boot=${boot%%\"*}

read -r this_boot < /proc/sys/kernel/random/boot_id
[ "$boot" = "$this_boot" ] || not_running
{ read -r stat < "/proc/$pid/stat"; } 2>/dev/null || not_running
# The name in brackets may hold spaces and brackets; the state and, 19 fields on, the start time follow it.
set -f
set -- ${stat##*)}
case $1 in Z | X) not_running ;; esac
[ "${20}" = "$began" ] || not_running
# The kernel ends this file with a zero byte and no line feed, so `read` fails with what it has read.
{ IFS= read -r line < "/proc/$pid/cmdline"; } 2>/dev/null
case $line in *"$lab/"*) ;; *) not_running ;; esac
echo "$node runs as $pid"
