# The mount that holds a path: its device (M:m), type, source and mount point. The longest mount point counts, and
# of two mounts on one point the later.
mount_of() {
    awk -v path="${1%/}/" '{
        point = $5; gsub(/\\040/, " ", point); shown = point; if (point != "/") point = point "/"
        if (index(path, point) != 1 || length(point) < best) next
        best = length(point); for (i = 7; i < NF && $i != "-"; i++); found = $3 " " $(i + 1) " " $(i + 2) " " shown
    } END { print found }' "$root/proc/self/mountinfo"
}

# disk_at FOLDER: the name of a device in sysfs; of a partition, the name of its disk.
disk_at() {
    at=$(cd -P "$1" 2>/dev/null && pwd -P) || return 1
    if [ -e "$at/partition" ]; then at=${at%/*}; fi
    printf '%s\n' "${at##*/}"
}

# below NAME [ROLE]: the devices under a device (LVM, RAID, multipath), one a line, with their roles: `leaf`,
# `multipath`, or `path` of a multipath device.
below() (
    role=${2:-leaf} some=''
    case $(cat "$root/sys/block/$1/dm/uuid" 2>/dev/null) in mpath-*) echo "multipath $1"; role=path ;; esac
    for slave in "$root/sys/block/$1/slaves"/*; do
        if [ ! -e "$slave" ] && [ ! -L "$slave" ]; then continue; fi
        some=yes
        if name=$(disk_at "$root/sys/class/block/${slave##*/}"); then below "$name" "$role"
        else echo "hidden ${slave##*/}"; fi
    done
    if [ -n "$some" ]; then return; fi
    if [ -d "$root/sys/block/$1/dm" ] || [ -d "$root/sys/block/$1/md" ]; then echo "hidden $1"
    else echo "$role $1"; fi
)

# data PATH POINT [KIND]: a data path, and the mount point of its file system when this part was written. On another
# file system the path is not the data (a disk that was not mounted), and its disks are not touched.
data() {
    where=$1 point=$2 kind=${3--}
    real=$(readlink -f "$root$where")
    if [ ! -e "$real" ]; then skip "$where" "there is no such path"; return; fi
    base=$(cd -P "$root/" && pwd -P)
    if [ -n "$root" ]; then real=${real#"$base"}; fi
    device='' type='' source='' now=''
    read -r device type source now <<END
$(mount_of "$real")
END
    if [ "$now" != "$point" ]; then
        skip "$where" "it is on the file system of ${now:-no known mount}, not on that of $point: is it mounted?"
        return
    fi
    tops=''
    case $device/$type in
        0:*/tmpfs|0:*/ramfs|0:*/nfs*|0:*/cifs|0:*/ceph|0:*/9p|0:*/virtiofs|0:*/lustre) return ;;
        0:*/btrfs)
            member=$(readlink -f "$root$source"); member=${member##*/}
            for at in "$root"/sys/fs/btrfs/*/devices/"$member"; do
                if [ ! -e "$at" ]; then continue; fi
                for each in "${at%/*}"/*; do tops="$tops $(disk_at "$root/sys/class/block/${each##*/}")"; done
            done ;;
        0:*) ;;
        *) tops=$(disk_at "$root/sys/dev/block/$device") ;;
    esac
    names=$(for top in $tops; do echo "top $top"; below "$top"; done)
    case $names in
        '') skip "$where" "$point is $type on $source, which leads to no block device" ;;
        *"hidden "*) skip "$where" "the devices under $tops are not shown" ;;
        *) devices="$devices$(printf '%s\n' "$names" | sed "s/\$/ $kind/")$newline" ;;
    esac
}

# disks FILE SSD ROTATIONAL: a value in queue/ of the data's disks, by the kind of a disk; `-` = not of this kind.
disks() {
    attribute=$1 ssd=$2 rotational=$3 seen=' '
    case $attribute in
        read_ahead_kb) roles='top' ;;             # the device under the file system decides what is read ahead
        scheduler) roles='leaf multipath' ;;      # the kernel keeps the paths of a multipath device at `none`
        *) roles='leaf path' ;;
    esac
    while read -r role disk kind; do
        case " $roles " in *" $role "*) ;; *) continue ;; esac
        case $seen in *" $disk "*) continue ;; esac
        seen="$seen$disk "
        one_disk "$disk" "$kind"
    done <<END
$devices
END
}

one_disk() {
    file=/sys/block/$1/queue/$attribute kind=$2
    if [ ! -e "$root$file" ]; then return; fi
    if [ "$kind" = - ]; then
        case $(cat "$root/sys/block/$1/queue/rotational" 2>/dev/null) in
            0) kind=ssd ;;
            *) kind=rotational ;;
        esac
    fi
    word=$ssd
    if [ "$kind" = rotational ]; then word=$rotational; fi
    if [ "$word" = - ]; then return; fi
    if [ "$attribute" != scheduler ]; then want "$file" "$word"; return; fi
    case $(head -c 4096 "$root$file") in *"["*) ;; *) return ;; esac  # no scheduler to set
    case $word in
        none) choose "$file" none noop ;;
        noop) choose "$file" noop none ;;
        deadline) choose "$file" deadline mq-deadline ;;
        mq-deadline) choose "$file" mq-deadline deadline ;;
        *) choose "$file" "$word" ;;
    esac
}
