# data PATH POINT [KIND]: a data path, and the mount point of its file system when this part was written. On another
# file system the path is not the data (a disk that was not mounted), and its disks are not touched.
data() {
    where=$1 recorded=$2 kind=${3-}
    case $kind in ''|ssd|rotational) ;; *) skip "$where" "$kind is no kind of a disk"; return ;; esac
    resolve "$where" 5
    case $? in
        0) ;;
        3) skip "$where" "there is no such path"; return ;;
        *) skip "$where" "it cannot be resolved"; return ;;
    esac
    found=$(behind "$real")
    now=$(printf '%s\n' "$found" | sed -n 's/^on //p')
    if [ "$now" != "$recorded" ]; then
        skip "$where" "it is on the file system of ${now:-no known mount}, not on that of $recorded: is it mounted?"
        return
    fi
    case $found in *"${newline}unknown "*) skip "$where" "${found#*"${newline}unknown "}"; return ;; esac
    names=$(printf '%s\n' "$found" | sed -n "2,\$p" | sed "s/ [01-]\$/ ${kind:-&}/")
    devices="$devices$names$newline"
}

# disks FILE SSD ROTATIONAL: a value in queue/ of the data's disks, by the kind of a disk; `-` = not of this kind. Which of
# the devices between file system and disk have the value is in $roles.
disks() {
    attribute=$1 ssd=$2 turning=$3 seen=' '
    while read -r role name kind; do
        case $roles in *" $attribute=$role "*) ;; *) continue ;; esac
        case $seen in *" $name "*) continue ;; esac
        seen="$seen$name "
        one_disk "$name" "$kind"
    done <<END
$devices
END
}

one_disk() {
    file=/sys/block/$1/queue/$attribute
    if [ ! -e "$root$file" ]; then return; fi
    case $2 in
        ssd|0) word=$ssd ;;
        rotational|1) word=$turning ;;
        *)
            word=$ssd
            if [ "$ssd" != "$turning" ]; then skip "$1" "the kernel does not say whether it is an SSD"; return; fi ;;
    esac
    if [ "$word" = - ]; then return; fi
    if [ "$attribute" != scheduler ]; then want "$file" "$word"; return; fi
    case $(head -c 4096 "$root$file") in *"["*) ;; *) return ;; esac  # no scheduler to set
    choose "$file" "$word"
}
