# shellcheck shell=sh disable=SC2154,SC2013  # $in_container is set before

# Asks each keystore whether it has a password: of the packages, and of every server that runs there, wherever it was
# unpacked, by its own command line. What runs in a container has a keystore of its own there.
{
    echo /usr/share/elasticsearch=
    echo /usr/share/opensearch=
    for one in $(grep -laE 'path[.]home=' /proc/[0-9]*/cmdline 2>/dev/null); do
        grep -qE "$in_container" "${one%/cmdline}/status" 2>/dev/null && continue
        { tr '\000' '\n' <"$one"; } 2>/dev/null | awk -F = '
            /^-D[a-z]+[.]path[.]home=/ { home = $2 }
            /^-D[a-z]+[.]path[.]conf=/ { conf = $2 }
            END { if (home != "") print home "=" conf }'
    done
} | sort -u | while IFS='=' read -r home conf; do
    for tool in "$home"/bin/elasticsearch-keystore "$home"/bin/opensearch-keystore; do
        [ -x "$tool" ] || continue
        where=${conf:-$home/config}
        if [ -d "$where" ]; then
            ES_PATH_CONF=$where OPENSEARCH_PATH_CONF=$where timeout 60 "$tool" has-passwd </dev/null 2>&1
        else
            timeout 60 "$tool" has-passwd </dev/null 2>&1
        fi
    done
done
exit 0
