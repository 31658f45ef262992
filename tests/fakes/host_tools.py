"""Programs of a host as shell scripts over a file tree: they keep their state in it and note their calls.

`@ROOT@` is the tree. Their words and exit codes are those of the real programs, as far as anyone reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BASE_TOOLS: Final = """
awk base64 basename cat chmod chown cksum cmp cp cut date dd diff dirname env expr false find flock grep
head id kill ln ls mkdir mktemp mv nohup od printf pwd readlink realpath rm rmdir sed seq setsid sh
sha256sum sleep sort stat sync tail test timeout touch tr true uniq wc xargs
"""
"""Of the real machine, as far as it has them; everything that knows the machine itself is a script below."""

_NOTED: Final = """#!/bin/sh
root='@ROOT@'; services=$root/.state/services
printf '%s\\n' "${0##*/} $*" >>"$root/.log"
"""

SUDO: Final = """state=$root/.state mode=ask check=
while :; do
  case $1 in -n) mode=never ;; -S) mode=stdin ;; -k|--) ;; -p) shift ;; -v) check=1 ;; *) break ;; esac
  shift
done
while IFS= read -r refused; do
  case "$*" in *"$refused"*) echo 'sudo: a password is required' >&2; exit 1 ;; esac
done <"$state/sudo-refuses"
if [ ! -e "$state/password" ]; then [ -n "$check" ] || exec "$@"; exit 0; fi
grep -laF -f "$state/password" /proc/[0-9]*/cmdline /proc/[0-9]*/environ >>"$state/leaks" 2>/dev/null
if [ -z "$check" ] && grep -qxF -- "$*" "$state/sudo-without-password"; then exec "$@"; fi
if [ $mode = never ]; then echo 'sudo: a password is required' >&2; exit 1; fi
IFS= read -r given
echo attempt >>"$state/attempts"
if [ "$given" != "$(cat "$state/password")" ]; then echo 'sudo: 1 incorrect password attempt' >&2; exit 1; fi
[ -n "$check" ] || exec "$@"
"""

TEE: Final = """[ "$1" = -a ] && { shift; exec cat >>"$1"; }
path=$1
if [ -s "$root/.state/read-only" ] && grep -qxF -- "$path" "$root/.state/read-only"; then
  echo "tee: $path: Read-only file system" >&2; exit 1
fi
case $path in "$root"/sys/*|"$root"/proc/*) ;; *) exec cat >"$path" ;; esac
[ -e "$path" ] || { echo "tee: $path: No such file or directory" >&2; exit 1; }
IFS= read -r word
[ -s "$root/.state/stuck" ] && grep -qxF -- "$path" "$root/.state/stuck" && exit 0
IFS= read -r now <"$path"
case $now in
*\\[*\\]*)
  offered=
  for each in $now; do each=${each#\\[}; offered="$offered ${each%\\]}"; done
  [ "$word" = deadline ] && case "$offered " in *" mq-deadline "*) word=mq-deadline ;; esac
  case "$offered " in *" $word "*) ;; *) echo "tee: $path: Invalid argument" >&2; exit 1 ;; esac
  line=
  for each in $offered; do
    [ "$each" = "$word" ] && each="[$each]"
    line="$line${line:+ }$each"
  done ;;
*) line=$word ;;
esac
printf '%s\\n' "$line" >"$path"
# A new scheduler begins with a queue of its own depth.
case $path in */queue/scheduler) [ "$now" = "$line" ] || echo 128 >"${path%/*}/nr_requests" ;; esac
exit 0
"""

SYSTEMCTL: Final = """asked=; now=; verb=; units=
while [ $# -gt 0 ]; do
  case $1 in
  -p) asked="$asked $2"; shift ;;
  --property=*) asked="$asked ${1#*=}" ;;
  --now) now=1 ;;
  -*) ;;
  *) if [ -z "$verb" ]; then verb=$1; else units="$units $1"; fi ;;
  esac
  shift
done
limit() {
  units=systemd/system/$name.service
  for file in "$root/usr/lib/$units" "$root/etc/$units" "$root/etc/$units.d/"*.conf; do
    [ -e "$file" ] && sed -n "s/^Limit$1=//p" "$file"
  done | tail -n 1 | grep . || echo 1024
}
say() { case " $asked " in *" ${1%%=*} "*) echo "$1" ;; esac; }
gap=
for unit in $units; do
  name=${unit%.service}; at=$services/$name
  # Of a unit whose file the program wrote there is no mark beside the tree.
  written=
  for file in "$unit" "$unit.service"; do [ -e "$root/etc/systemd/system/$file" ] && written=1; done
  [ -n "$written" ] && mkdir -p "$at"
  # Without its file there is no such unit.
  case $name/$written in orchestrate-*/) [ -d "$at" ] && rm -rf "$at" ;; esac
  case $verb in
  show)
    [ -n "$gap" ] && echo; gap=1
    case $name in *.path) full=$name ;; *) full=$name.service ;; esac
    say "Id=$full"; say "Names=$full"
    case $asked in *Limit*) say "LimitNOFILE=$(limit NOFILE)"; say "LimitMEMLOCK=$(limit MEMLOCK)" ;; esac
    if [ -e "$at/masked" ]; then say LoadState=masked
    elif [ -d "$at" ]; then say LoadState=loaded; else say LoadState=not-found; fi
    if [ -e "$at/running" ]; then say ActiveState=active; say SubState=running
    else say ActiveState=inactive; say SubState=dead; fi
    if [ -e "$at/masked" ]; then say UnitFileState=masked
    elif [ -e "$at/enabled" ]; then say UnitFileState=enabled
    elif [ -d "$at" ]; then say UnitFileState=disabled; else say UnitFileState=; fi ;;
  is-active) if [ -e "$at/running" ]; then echo active; else echo inactive; exit 3; fi ;;
  is-enabled) if [ -e "$at/masked" ]; then echo masked; exit 1
    elif [ -e "$at/enabled" ]; then echo enabled; else echo disabled; exit 1; fi ;;
  *)
    [ -d "$at" ] || { echo "Failed to $verb unit: Unit file $name.service does not exist." >&2; exit 5; }
    case $verb in
    start|restart)
      [ -e "$at/masked" ] && { echo "Failed to start $name.service: Unit is masked." >&2; exit 1; }
      : >"$at/running" ;;
    stop) rm -f "$at/running" ;;
    enable) : >"$at/enabled"; [ -n "$now" ] && : >"$at/running" ;;
    disable) rm -f "$at/enabled"; [ -n "$now" ] && rm -f "$at/running" ;;
    mask) : >"$at/masked"; [ -n "$now" ] && rm -f "$at/running" ;;
    unmask) rm -f "$at/masked" ;;
    esac ;;
  esac
done
exit 0
"""

SERVICE: Final = """name=$1; at=$services/$name
[ -e "$root/etc/init.d/$name" ] || { echo "$name: unrecognized service" >&2; exit 1; }
case $2 in
status)
  if [ -e "$at/running" ]; then echo "$name (pid 4711) is running..."
  else echo "$name is stopped"; exit 3; fi ;;
start|restart) : >"$at/running" ;;
stop) rm -f "$at/running" ;;
esac
"""

CHKCONFIG: Final = """[ "$1" = --list ] && shift
if [ "$1" = --add ]; then
  shift
  for at in "$root/etc/rc3.d/"[SK][0-9][0-9]"$1"; do [ -L "$at" ] && exit 0; done
  set -- "$1" on
fi
name=$1
if [ ! -e "$root/etc/init.d/$name" ]; then
  echo "error reading information on service $name: No such file or directory" >&2; exit 1
fi
link() { rm -f "$root/etc/rc$1.d/"[SK][0-9][0-9]"$name"; ln -s "../init.d/$name" "$root/etc/rc$1.d/$2$name"; }
case $2 in
on) for level in 2 3 4 5; do link $level S85; done ;;
off) for level in 2 3 4 5; do link $level K15; done ;;
*)
  line=$name
  for level in 0 1 2 3 4 5 6; do
    word=off; for at in "$root/etc/rc$level.d/S"[0-9][0-9]"$name"; do [ -L "$at" ] && word=on; done
    line="$line\t$level:$word"
  done
  printf '%b\\n' "$line" ;;
esac
"""

UPDATE_RC: Final = """name=$1
for level in 2 3 4 5; do
  rm -f "$root/etc/rc$level.d/"[SK][0-9][0-9]"$name"
  case $2 in
  enable|defaults) ln -s "../init.d/$name" "$root/etc/rc$level.d/S85$name" ;;
  disable) ln -s "../init.d/$name" "$root/etc/rc$level.d/K15$name" ;;
  esac
done
"""

TUNED_ADM: Final = """active=$(cat "$root/etc/tuned/active_profile" 2>/dev/null)
case $1 in
active)
  if [ ! -e "$services/tuned/running" ]; then
    echo 'It seems that tuned daemon is not running, preset profile is not activated.'
    echo "Preset profile: $active"; exit 1
  elif [ -n "$active" ]; then echo "Current active profile: $active"
  else echo 'No current active profile.'; exit 1; fi ;;
profile)
  shift
  for profile in "$@"; do
    own=$root/etc/tuned/$profile/tuned.conf base=$profile
    [ -e "$own" ] && base=$(sed -n 's/^include=//p' "$own")
    [ -f "$root/.state/tuned/$base" ] || { echo "Requested profile '$profile' doesn't exist." >&2; exit 1; }
    { cat "$root/.state/tuned/$base"; [ -e "$own" ] && sed -n 's|^\\(/[^=]*\\)=|\\1 |p' "$own"; } |
    while read -r path value; do
      printf '%s\\n' "$value" | "$root/bin/tee" "$root$path" >/dev/null
    done
  done
  printf '%s\\n' "$*" >"$root/etc/tuned/active_profile"
  : >"$services/tuned/running" ;;
off) : >"$root/etc/tuned/active_profile" ;;
esac
"""

TUNED_ADM_RHEL6: Final = """at=$root/etc/tune-profiles/active-profile; profile=$(cat "$at" 2>/dev/null)
state() {
  if [ -e "$services/$1/running" ]; then echo "Service $1: enabled, running"
  else echo "Service $1: disabled, stopped"; fi
}
case $1 in
active) echo "Current active profile: $profile"; state tuned; state ktune ;;
profile)
  [ -e "$root/.state/tuned/$2" ] || { echo "No such profile: $2" >&2; exit 1; }
  printf '%s\\n' "$2" >"$at"; : >"$services/ktune/running"
  while read -r path value; do
    printf '%s\\n' "$value" | "$root/bin/tee" "$root$path" >/dev/null
  done <"$root/.state/tuned/$2" ;;
off) printf 'off\\n' >"$at"; rm -f "$services/ktune/running" ;;
esac
"""


TOOLS: Final[Mapping[str, str]] = {"sudo": SUDO, "tee": TEE}
"""On every host."""
SYSTEMD_TOOLS: Final[Mapping[str, str]] = {"systemctl": SYSTEMCTL}
SYSV_TOOLS: Final[Mapping[str, str]] = {
    "service": SERVICE,
    "chkconfig": CHKCONFIG,
    "update-rc.d": UPDATE_RC,
}


def executable(body: str, root: str) -> str:
    """The text of a program that notes its calls in the tree's `.log`."""
    return (_NOTED + body).replace("@ROOT@", root)
