# shellcheck shell=sh disable=SC2154  # $folders and $listed are set before
# Succeeds where a lock can be taken, and otherwise prints what is missing. It changes nothing.
uid=$(id -u)
command -v flock >/dev/null || { echo 'there is no flock'; exit 1; }
for base in $folders; do
    if [ -d "$base/orchestrate-$uid" ] || [ -w "$base" ]; then exit 0; fi
done
echo "no folder for it can be made in $listed"
exit 1
