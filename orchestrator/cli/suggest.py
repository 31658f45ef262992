"""What is meant by an option or a command that does not exist: it is misspelled or of another tool."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

_ELSEWHERE: Final[Mapping[str, str]] = {
    "--only": "--node --nodes --host --hosts --limit --target --targets --instance --instances --include -l",
    "--exclude": "--skip --except --ignore --without --omit --not",
    "--skip": "--exclude --except --ignore --without --omit --not",
    "--zone": "--rack --racks --az --availability-zone --location --group --groups",
    "--dry-run": "--check --noop --simulate --what-if --whatif --preview --diff",
    "--yes": "-y -f --force --assume-yes --assumeyes --auto-approve --no-confirm --noconfirm"
    " --non-interactive --noninteractive --confirm --approve --batch",
    "--disable-predicate": "--force --skip-check --skip-checks --ignore-check --ignore-checks --no-check",
    "--begin-anyway": "--keep-going --continue-on-error",
    "--cluster": "-c -i --inventory --env --environment --context --config",
    "--playbook": "-p --policy",
    "--to": "--version --target-version --new-version --release",
    "--output": "-o --format --json --plain",
    "--watch": "-w -f --follow --tail",
    "--max-unavailable": "--parallel --parallelism --forks --serial --batch-size --concurrency --max-parallel"
    " --jobs -j",
    "--timeout": "--max-time --deadline --time-limit",
    "--reason": "-m --message --comment --description",
    "--index": "--indices --pattern",
    "--max-segments": "--max-num-segments --segments",
    "--retry-failed": "--force --retry",
    "--pause-after": "--canary --count",
    "--started-before": "--older-than --uptime --before",
    "--verbose": "-v --debug --log",
    "--steps": "-v --verbose --details",
    "--state": "--db --database --journal",
    "--sample": "--duration --interval",
    "--endpoint": "--url --host --hosts --server --address",
    "--username": "-u --user",
    "--ca": "--cacert --ca-cert --cafile --ca-file",
    "--out": "-o --save --file",
    "--html": "-o --out --file",
    "--listen": "-p --port --bind --address",
    "restart": "rolling-restart reboot run start bounce",
    "upgrade": "update",
    "force-merge": "forcemerge merge optimize",
    "plan": "preview diff dry-run",
    "rehearse": "simulate drill test",
    "validate": "check verify lint doctor preflight test",
    "init": "setup new create add configure config import",
    "status": "show state watch ps info top",
    "history": "list ls runs log logs",
    "report": "html",
    "serve": "web ui dashboard",
    "pause": "hold suspend",
    "stop": "abort cancel kill halt",
    "resume": "continue retry",
    "restore": "rollback undo revert reset cleanup",
    "diagnose": "diag analyze analyse health",
    "explain": "what why man doc docs describe",
    "--help": "help",
    "--version": "version",
}
"""An option or a command of this program, and what people type for it who know other programs."""
_ALIKE = 0.75
"""How much of a word has to be the same, from 0 to 1, for a word that is only misspelled."""


def suggested(word: str, known: Iterable[str]) -> tuple[str, ...]:
    """What was probably meant, among what exists here; empty if nothing is near."""
    typed, names = word.casefold().replace("_", "-"), list(known)
    if typed in names:
        return (typed,)
    elsewhere = tuple(name for name in names if typed in _ELSEWHERE.get(name, "").split())
    if elsewhere:
        return elsewhere
    longer = [name for name in names if name.startswith(typed) or typed == f"{name}s"]
    if len(longer) == 1 and typed.strip("-"):
        return tuple(longer)
    return tuple(difflib.get_close_matches(typed, names, n=1, cutoff=_ALIKE))
