"""How a script asks whether sudo would run a command without a password. It needs no rights."""

from __future__ import annotations

from typing import Final

ONLY_DOAS: Final = "sudo: not found, only doas"
"""What a script prints where the host has doas and no sudo."""
REFUSE_DOAS: Final = (
    f"command -v sudo >/dev/null || ! command -v doas >/dev/null || {{ echo '{ONLY_DOAS}'; return 1; }}"
)
"""A line of a shell function."""
NEVER_ASKS: Final = "sudo -k -n -v"
"""Succeeds when no rule of the account needs a password. With `-k` a password that it remembers is none."""
ASK_SUDO: Final = rf"""
# Prints sudo's answer about a command, with the options of the rule that matches: `!authenticate` = NOPASSWD.
# Where sudo prints the command alone, with its path (1.9.13p3 of Debian 12 does), the rule is found in the
# list of all: the last one that matches counts. The exit code proves no NOPASSWD: any other makes it 0.
ask_sudo() {{
    {REFUSE_DOAS}
    said=$(sudo -n -ll "$@" 2>&1)
    code=$?
    printf '%s\n' "$said"
    case $code/$said in 0/*Matched:*) return 0 ;; 0/*) ;; *) return 1 ;; esac
    command=$(sudo -n -ll "$@" 2>/dev/null)
    sudo -n -ll 2>/dev/null | {{
        found='' options='' of_root=''
        while IFS= read -r line; do
            case $line in
                # Those of LDAP and SSSD are `LDAP Role: NAME`.
                'Sudoers entry:'*|[A-Z]*' Role: '*) options=authenticate of_root=yes ;;
                *RunAsUsers:*' root'*|*RunAsUsers:*' ALL'*) ;;
                *RunAsUsers:*) of_root='' ;;
                *Options:*!authenticate*) options=!authenticate ;;
                '	'?*)
                    rule=${{line#?}}
                    case $rule in ALL) pattern='*' ;; *' '*) pattern="$rule " ;; *) pattern="$rule *" ;; esac
                    # shellcheck disable=SC2254  # a pattern of sudo's
                    case "$command " in $pattern) [ -z "$of_root" ] || found=$options ;; esac ;;
            esac
        done
        [ -z "$found" ] || printf 'Options: %s\nMatched: in the list\n' "$found"
    }}
    return 0
}}
# Whether root's command is known to run without a password.
runs_without_password() {{
    said=$(ask_sudo "$@") || return 1
    case $said in *!authenticate*) return 0 ;; esac
    {NEVER_ASKS} 2>/dev/null
}}
"""
