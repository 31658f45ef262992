# The disks behind a data path. `tune check` and the boot script find them by these functions. They read mountinfo and
# sysfs only: of mounts over mounts findmnt names a hidden one, and lsblk, which reads sysfs too, names no multipath roles.

T=''
if timeout -s KILL 5 true 2>/dev/null; then T=1; fi
apart=$(command -v setsid)

# limited SECONDS COMMAND…: a path on a dead server never answers. Without `timeout`, a watchdog ends the command, with
# the processes that it has started where there is `setsid`.
limited() {
    seconds=$1
    shift
    if [ -n "$T" ]; then timeout -s KILL "$seconds" "$@"; return; fi
    $apart "$@" </dev/null &
    work=$!
    (while [ "$seconds" -gt 0 ] && kill -0 "$work"; do sleep 1; seconds=$((seconds - 1)); done
        [ "$seconds" -gt 0 ] || kill -9 "-$work" || kill -9 "$work") >/dev/null 2>&1 &
    watch=$!
    wait "$work" 2>/dev/null
    code=$?
    kill "$watch" 2>/dev/null
    return "$code"
}

# resolve PATH SECONDS: the path without links, in $real. Exit code 3: there is no such path; 4: it leads out of $root.
resolve() {
    real=''
    # shellcheck disable=SC2016  # of the shell that is begun
    limited "$2" /bin/sh -c '[ -e "$1" ] || exit 3' sh "$root$1" || return
    real=$(limited "$2" readlink -f "$root$1" 2>/dev/null)
    code=$?
    if [ "$code" -eq 137 ]; then return "$code"; fi
    if [ "$code" -ne 0 ]; then
        # shellcheck disable=SC2016
        real=$(limited "$2" realpath "$root$1" 2>/dev/null) ||
            real=$(limited "$2" /bin/sh -c 'cd -P "$1" && pwd -P' sh "$root$1" 2>&1) || return
    fi
    if [ -z "$root" ]; then return; fi
    base=$(cd -P "$root/" && pwd -P)
    case $real/ in "$base"/*) real=${real#"$base"}; real=${real:-/} ;; *) return 4 ;; esac
}

# mount_of PATH: device (M:m), type, source and mount point, as in mountinfo, of the mount that holds a path. It goes as
# the kernel does: from each mount to the first mount made on it along the path. A later mount hides an earlier one, and
# the mounts in it. A second line has the writable folder of an overlay.
mount_of() {
    wanted=$1 awk '
        function plain(text) {
            gsub(/\\040/, " ", text); gsub(/\\011/, "\t", text); gsub(/\\012/, "\n", text)
            gsub(/\\054/, ",", text); gsub(/\\134/, "\\", text)
            return text
        }
        {
            for (i = 7; i < NF && $i != "-"; i++);
            if ($1 !~ /^[0-9]+$/ || $2 !~ /^[0-9]+$/ || i + 2 > NF) next
            number[++mounts] = $1; parent[mounts] = $2; if ($1 != $2) seen[$1] = 1
            point[mounts] = plain($5); if (point[mounts] != "/") point[mounts] = point[mounts] "/"
            found[mounts] = $3 " " $(i + 1) " " $(i + 2) " " $5; options[mounts] = $(i + 3)
        }
        END {
            for (steps = 0; steps < mounts; steps++) {
                next_one = 0
                for (n = 1; n <= mounts; n++) {
                    if (holder && (parent[n] != number[holder] || n == holder)) continue
                    if (!holder && parent[n] in seen && parent[n] != number[n]) continue
                    if (index(ENVIRON["wanted"] "/", point[n]) != 1) continue
                    if (!next_one || length(point[n]) <= length(point[next_one])) next_one = n
                }
                if (!next_one) break
                holder = next_one
            }
            if (!holder) exit
            print found[holder]
            many = split(options[holder], each, ",")
            for (n = 1; n <= many; n++) if (sub(/^upperdir=/, "", each[n])) {
                upper = plain(each[n]); gsub(/\\/, "", upper); print upper
            }
        }' "$root/proc/self/mountinfo" 2>/dev/null
}

# disk_at FOLDER: the name of a device in sysfs; of a partition, the name of its disk.
disk_at() {
    at=$(cd -P "$1" 2>/dev/null && pwd -P) || return 1
    if [ -e "$at/partition" ]; then at=${at%/*}; fi
    printf '%s\n' "${at##*/}"
}

# below NAME [ROLE [DEPTH]]: the devices under a device (LVM, RAID, multipath), one a line, with their roles: `leaf`,
# `multipath`, or `path` of a multipath device.
below() (
    role=${2:-leaf} depth=$((${3:-0} + 1)) some=''
    if [ "$depth" -gt 16 ]; then echo "hidden $1"; return; fi
    case $(cat "$root/sys/block/$1/dm/uuid" 2>/dev/null) in mpath-*) echo "multipath $1"; role=path ;; esac
    for slave in "$root/sys/block/$1/slaves"/*; do
        if [ ! -e "$slave" ] && [ ! -L "$slave" ]; then continue; fi
        some=yes
        if name=$(disk_at "$root/sys/class/block/${slave##*/}"); then below "$name" "$role" "$depth"
        else echo "hidden ${slave##*/}"; fi
    done
    if [ -n "$some" ]; then return; fi
    if [ -d "$root/sys/block/$1/dm" ] || [ -d "$root/sys/block/$1/md" ]; then echo "hidden $1"
    else echo "$role $1"; fi
)

# rotational DISK…: 1 if the kernel calls one of these disks rotational, 0 if none, - if it does not say.
rotational() {
    all=0
    for disk in "$@"; do
        case $(cat "$root/sys/block/$disk/queue/rotational" 2>/dev/null) in
            0) ;;
            1) if [ "$all" = 0 ]; then all=1; fi ;;
            *) all=- ;;
        esac
    done
    echo "$all"
}

# under DEVICE TYPE SOURCE POINT UPPER: the devices of a mount, see `behind`.
under() {
    tops=''
    case $1/$2 in
        0:*/tmpfs|0:*/ramfs|0:*/devtmpfs|0:*/rootfs|0:*/hugetlbfs) return ;;
        0:*/nfs|0:*/nfs4|0:*/cifs|0:*/smb3|0:*/smbfs|0:*/ceph|0:*/9p|0:*/virtiofs|0:*/lustre|0:*/gpfs) return ;;
        0:*/beegfs|0:*/afs|0:*/fuse.glusterfs|0:*/fuse.sshfs|0:*/fuse.ceph|0:*/fuse.ceph-fuse) return ;;
        0:*/btrfs)
            member=$(readlink -f "$root$3" 2>/dev/null)
            member=${member##*/}
            for at in "$root"/sys/fs/btrfs/*/devices/"$member"; do
                if [ ! -e "$at" ]; then continue; fi
                for each in "${at%/*}"/*; do tops="$tops $(disk_at "$root/sys/class/block/${each##*/}")"; done
            done
            if [ -z "$tops" ]; then tops=$(disk_at "$root/sys/class/block/${member:-none}"); fi
            if [ -z "$tops" ]; then echo "unknown $4 is btrfs on $3, which leads to no known device"; return; fi ;;
        0:*/overlay)
            # In a container this is the host's path, and may be another place.
            inner=''
            case $5 in /*) if [ -d "$root$5" ]; then inner=$(mount_of "$5" | head -n 1); fi ;; esac
            case $inner in
                ''|*" overlay "*) echo "unknown $4 is an overlay that writes to ${5:-no folder}, which cannot be seen" ;;
                *)
                    # shellcheck disable=SC2086  # its four words
                    under $inner '' ;;
            esac
            return ;;
        0:*/zfs) echo "unknown $4 is the ZFS dataset $3: its pool's disks are unknown"; return ;;
        0:*) echo "unknown $4 is $2, which shows no block device ($3)"; return ;;
        *)
            if ! tops=$(disk_at "$root/sys/dev/block/$1"); then
                echo "unknown $4 is on device $1, which /sys/dev/block does not show"
                return
            fi ;;
    esac
    for top in $tops; do
        lower=$(below "$top")
        case $lower in *"hidden "*) echo "unknown the devices below $top are not shown"; continue ;; esac
        # shellcheck disable=SC2046  # names have no blanks
        kind=$(rotational $(printf '%s\n' "$lower" | sed -n 's/^leaf //p; s/^path //p'))
        echo "top $top $kind"
        while read -r role name; do
            case $role in
                multipath) echo "$role $name $kind" ;;
                *) echo "$role $name $(rotational "$name")" ;;
            esac
        done <<END
$lower
END
    done
}

# behind PATH: what is behind a path without links, in lines: `on POINT`, the mount point; then the devices from the file
# system to the disks, as ROLE NAME ROTATIONAL: `top` (under the file system, of a partition its disk), `leaf`,
# `multipath` or `path`. `unknown WHY`: they cannot be found. No device: the disks are those of another machine.
behind() {
    device='' type='' source='' point='' upper=''
    { read -r device type source point; IFS= read -r upper; } <<END
$(mount_of "$1")
END
    if [ -z "$device" ]; then echo "unknown no mount that it lies on is shown"; return; fi
    echo "on $point"
    under "$device" "$type" "$source" "$point" "$upper"
}
