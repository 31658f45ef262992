"""A folder that stands for a host's `/`, with programs that behave as the real ones do where a script looks.

Nothing of this machine's own kernel or services is touched: `tee` alone writes, below the folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_TOOLS = "export PATH=/usr/sbin:/usr/bin:/sbin:/bin; here={here}; root={root}\n"
_TEE = r"""
calls=$(($(cat "$here/calls") + 1)); echo $calls >"$here/calls"
[ ! -e "$here/kill_before_$calls" ] || kill -9 0
if [ -e "$here/choices$1" ]; then
    wanted=$(cat)
    case " $(cat "$here/choices$1") " in
        *" $wanted "*) ;;
        *) echo "tee: $1: Invalid argument" >&2; exit 1 ;;
    esac
    line=; for word in $(cat "$here/choices$1"); do
        if [ "$word" = "$wanted" ]; then word="[$word]"; fi; line="$line${line:+ }$word"
    done
    echo "$line" >"$1"
elif [ -e "$here/deaf$1" ]; then
    cat >/dev/null
elif [ -e "$here/full$1" ]; then
    head -c 10 >"$1"; echo "tee: $1: No space left on device" >&2; rm "$here/full$1"; exit 1
else
    tee "$@" || exit 1
fi
[ ! -e "$here/kill_after_$calls" ] || kill -9 0
"""
_SYSTEMCTL = r"""
echo "systemctl $*" >>"$here/log"
unit=$here/units/${2-}
if [ "$1" = is-active ]; then [ -e "$unit.running" ] && echo active || { echo inactive; exit 3; }; exit 0; fi
if [ "$1" = is-enabled ]; then
    if [ -e "$unit.masked" ]; then echo masked; exit 1; fi
    [ -e "$unit.enabled" ] && echo enabled || { echo disabled; exit 1; }; exit 0
fi
if [ "$1" = show ]; then
    shift
    for word in "$@"; do
        case $word in -*) continue ;; LoadState|ActiveState|UnitFileState|Id|Names|Limit*) continue ;; esac
        case $word in *.path) unit=$word ;; *) unit=${word%.service} ;; esac
        load=not-found state=
        for file in "$root/etc/systemd/system/$word" "$here/units/$unit".*; do
            if [ -e "$file" ]; then load=loaded state=disabled; fi
        done
        [ ! -e "$here/units/$unit.enabled" ] || state=enabled
        [ -e "$here/units/$unit.running" ] && active=active || active=inactive
        printf 'Id=%s\nNames=%s\nLoadState=%s\nActiveState=%s\nUnitFileState=%s\n\n' "$word" "$word" \
            "$load" "$active" "$state"
    done
    exit 0
fi
[ ! -e "$here/broken_$1" ] || { echo "Failed to $1 ${2-}: Connection timed out" >&2; exit 1; }
case $1 in
    start) [ ! -e "$unit.masked" ] || { echo "Unit ${2-} is masked." >&2; exit 1; }; touch "$unit.running" ;;
    stop) rm -f "$unit.running" ;;
    enable) [ ! -e "$unit.masked" ] || { echo "Unit ${2-} is masked." >&2; exit 1; }; touch "$unit.enabled" ;;
    disable) rm -f "$unit.enabled" ;;
    mask) touch "$unit.masked" ;;
    unmask) rm -f "$unit.masked" ;;
    daemon-reload) ;;
    *) exit 9 ;;
esac
"""
_SERVICE = r"""
unit=$here/units/$1
[ "$2" = status ] || echo "service $*" >>"$here/log"
case $2 in
    status) [ -e "$unit.running" ] || exit 3 ;;
    start) touch "$unit.running"; echo "Starting $1: [  OK  ]" ;;
    stop) rm -f "$unit.running"; echo "Stopping $1: [  OK  ]" ;;
esac
"""
_CHKCONFIG = r"""
echo "chkconfig $*" >>"$here/log"
if [ "$1" = --add ]; then set -- "$2" on; fi
for level in 2 3 4 5; do
    rm -f "$root/etc/rc$level.d/"[SK][0-9][0-9]"$1"
    case $2 in on) sign=S20 ;; *) sign=K80 ;; esac
    ln -s "../init.d/$1" "$root/etc/rc$level.d/$sign$1"
done
"""
_UPDATE_RC = r"""
echo "update-rc.d $*" >>"$here/log"
for level in 2 3 4 5; do
    rm -f "$root/etc/rc$level.d/"[SK][0-9][0-9]"$1"
    [ "$2" != remove ] || continue
    case $2 in enable|defaults) sign=S20 ;; *) sign=K80 ;; esac
    ln -s "../init.d/$1" "$root/etc/rc$level.d/$sign$1"
done
"""
_TUNED = r"""
case $1 in
    active) [ -s "$here/tuned" ] || { echo "No current active profile."; exit 1; }
        echo "Current active profile: $(cat "$here/tuned")"; exit 0 ;;
esac
echo "tuned-adm $*" >>"$here/log"
if [ -e "$here/flood" ]; then head -c 20971520 /dev/zero | tr '\0' x >&2; exit 1; fi
case $1 in
    profile) shift
        [ ! -e "$here/no_such_profile" ] || { echo "Requested profile '$*' doesn't exist." >&2; exit 1; }
        echo "$*" >"$here/tuned" ;;
    off) : >"$here/tuned" ;;
esac
"""
_UDEVADM = r"""
echo "udevadm $*" >>"$here/log"
"""
_SUDO = r"""
mode=ask; PATH=$here/bin:$PATH
while :; do
    case $1 in
        -n) mode=never ;; -S) mode=stdin ;; -k) ;; -p) shift ;; -v) check=yes ;; *) break ;;
    esac; shift
done
[ ! -e "$here/password" ] ||
    grep -l -a -F -f "$here/password" /proc/[0-9]*/cmdline /proc/[0-9]*/environ >>"$here/leaks" 2>/dev/null
if [ -z "${check-}" ]; then
    echo "$*" >>"$here/asked"
    if grep -qxF "$*" "$here/denied" 2>/dev/null; then
        echo "Sorry, user deploy is not allowed to execute '$*' as root on es1." >&2; exit 1
    fi
    if [ ! -e "$here/password" ] || grep -qxF "$*" "$here/free" 2>/dev/null; then exec "$@"; fi
fi
if [ $mode = never ]; then echo "sudo: a password is required" >&2; exit 1; fi
IFS= read -r given
echo attempt >>"$here/attempts"
if [ "$given" != "$(cat "$here/password")" ]; then
    echo "sudo: 1 incorrect password attempt" >&2; exit 1
fi
[ -n "${check-}" ] || exec "$@"
"""
_PROGRAMS = {
    "tee": _TEE,
    "systemctl": _SYSTEMCTL,
    "service": _SERVICE,
    "chkconfig": _CHKCONFIG,
    "update-rc.d": _UPDATE_RC,
    "tuned-adm": _TUNED,
    "udevadm": _UDEVADM,
    "sudo": _SUDO,
}


@dataclass(kw_only=True)
class ChangingHost:
    """A host of files.

    Attributes:
        root: stands for `/`.
        here: where the programs keep what they know.
    """

    root: Path
    here: Path

    @classmethod
    def make(cls, folder: Path) -> ChangingHost:
        tree = cls(root=folder / "root", here=folder / "fake")
        (tree.here / "bin").mkdir(parents=True)
        (tree.here / "units").mkdir()
        (tree.here / "calls").write_text("0\n")
        (tree.here / "tuned").touch()
        for path in (
            "etc/sysctl.d",
            "etc/systemd/system",
            "etc/tuned",
            "proc/sys/vm",
            "run",
            "sys/kernel/mm",
        ):
            (tree.root / path).mkdir(parents=True)
        for level in range(2, 6):
            (tree.root / f"etc/rc{level}.d").mkdir()
        for name, text in _PROGRAMS.items():
            tree.program(name, _TOOLS.format(here=tree.here, root=tree.root) + text)
        return tree

    @property
    def path(self) -> str:
        """The search path that finds our programs first."""
        return f"{self.here / 'bin'}:/usr/bin:/bin"

    def program(self, name: str, text: str) -> None:
        file = self.here / "bin" / name
        file.write_text(f"#!/bin/sh\n{text}")
        file.chmod(0o755)

    def without(self, name: str) -> None:
        (self.here / "bin" / name).unlink()

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def write(self, path: str, text: str | bytes, mode: int = 0o644) -> Path:
        file = self.at(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        file.chmod(mode)
        return file

    def choices(self, path: str, *words: str, now: str) -> None:
        """A file of the kernel that offers words, and takes no other."""
        self.write(path, " ".join(f"[{word}]" if word == now else word for word in words) + "\n")
        self._note("choices", path, " ".join(words))

    def deaf(self, path: str) -> None:
        """A file of the kernel that takes whatever is written, and does not mind it."""
        self._note("deaf", path, "")

    def full(self, path: str) -> None:
        """The next write there finds the disk full half-way."""
        self._note("full", path, "")

    def _note(self, kind: str, path: str, text: str) -> None:
        note = self.here / f"{kind}{self.at(path)}"
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(text)

    def systemd(self) -> None:
        self.at("run/systemd/system").mkdir(parents=True)

    def udev(self) -> None:
        self.write("run/udev/control", "")

    def unit(self, name: str, *marks: str) -> None:
        """A service that is `running`, `enabled`, `masked`."""
        for mark in marks:
            (self.here / "units" / f"{name}.{mark}").touch()

    def says(self, what: str) -> list[str]:
        """What the programs wrote down."""
        file = self.here / what
        return file.read_text().splitlines() if file.exists() else []

    def snapshot(self) -> dict[str, object]:
        """Every file, folder and link with its bytes and mode, and what the services do."""
        found: dict[str, object] = {}
        for path in sorted((*self.root.rglob("*"), *(self.here / "units").iterdir(), self.here / "tuned")):
            if path.is_symlink():
                found[str(path)] = path.readlink()
            elif path.is_dir():
                found[str(path)] = path.stat().st_mode
            else:
                found[str(path)] = (path.stat().st_mode, path.stat().st_uid, path.read_bytes())
        return found
