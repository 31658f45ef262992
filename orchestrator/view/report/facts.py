"""What a run did, from its public records: one fold, of which the page, the JSON and the CSV are made.

A record is an object of `--output json`: `at` in seconds since the epoch, `event`, and its fields. `said` is
its sentence for people. Fields and events that this version does not have are ignored.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final, TypeAlias

from orchestrator.formats import setting, stamp
from orchestrator.holds import HoldPeriod, Holds
from orchestrator.names import PRODUCTS
from orchestrator.steps import TURN

Record: TypeAlias = Mapping[str, Any]
Facts: TypeAlias = dict[str, Any]

SLOW: Final = 1.5
"""A node is named as slow if it took so many times as long as the median of all, and as predicted."""
_SLOW_SECONDS: Final = 10.0
"""And so much longer: a second more of a fast node is nothing to look at."""
_TIMES: Final = frozenset({"at", "began", "ended"})
REPORTED: Final = frozenset(
    {
        *("second_failure", "rescued", "start_failed", "action_failed", "fell_silent", "answered"),
        *("access_refused", "access_granted", "lease_lost", "lease_regained", "deposed", "requested"),
        *("standing_down", "stood_down", "stood_still", "not_waited_for", "foreseen_not_to_return"),
        *("members_missed", "tuning_missed", "merge_warned", "not_hastened", "owed_again", "upgrade_missed"),
        *("hook_unproven", "red_excused", "run_resumed", "restore_begun", "notified", "not_notified"),
    }
)
"""Events that the page lists with their sentence: no step of an undisturbed run is among them."""


def facts_of(records: Iterable[Record], *, outcome: str | None = None, now: float | None = None) -> Facts:
    """Everything that the report says of a run, to the millisecond. Times are seconds since the epoch.

    Args:
        records: of the journal, in order. The first is the beginning of the run.
        outcome: of the run if its own journal has none: another run has restored its settings.
        now: the current time, of a run that is under way; else it lasts until its last record.
    """
    story = _Story()
    for record in records:
        story.follow(record)
    found: Facts = _rounded(story.ended(outcome, now))
    return found


def _rounded(facts: Any) -> Any:
    """To the millisecond, so that the page and the JSON round the same figures."""
    if isinstance(facts, dict):
        return {name: _rounded(item) for name, item in facts.items()}
    if isinstance(facts, list):
        return [_rounded(item) for item in facts]
    return round(facts, 3) if isinstance(facts, float) else facts


def as_json(facts: Any) -> Any:
    """The same with times in RFC 3339."""
    if isinstance(facts, Mapping):
        return {
            name: stamp(item) if name in _TIMES and isinstance(item, float) else as_json(item)
            for name, item in facts.items()
        }
    return [as_json(item) for item in facts] if isinstance(facts, list) else facts


def rows_of(facts: Facts) -> list[dict[str, object]]:
    """The nodes of a run as rows of a table, in the order of their turns."""
    of_run = {name: facts[name] for name in ("run", "cluster", "version")}
    steps = [seconds_of(step) for step in TURN.values()]
    return [
        {
            **of_run,
            **{name: node[name] for name in ("node", "zone", "wave", "phase")},
            "began": node["turns"][0]["began"] if node["turns"] else None,
            **{name: node[name] for name in ("seconds", "predicted_seconds", *steps, "slow")},
            **{name: node[name] for name in ("bytes_reused", "bytes_copied", "operations_replayed")},
        }
        for node in facts["nodes"]
    ]


def seconds_of(step: str) -> str:
    """The name of the field of a node with the seconds of a step: `start_and_join_seconds`."""
    return f"{step.replace(' ', '_')}_seconds"


class _Story:
    """Follows the records of a run."""

    def __init__(self) -> None:
        self.begun: Record = {"at": 0.0, "policy": {}, "nodes": []}
        self.at = 0.0
        self.attempts: list[Facts] = []
        self.nodes: dict[str, Facts] = {}
        self.waves: list[Facts] = []
        self.holds = Holds[tuple[int, Record]]()
        self.gates: dict[str, Facts] = {}
        self.samples: list[Facts] = []
        self.settings: dict[tuple[str, str], Facts] = {}
        self.tuning: list[Facts] = []
        self.merges: dict[str, Facts] = {}
        self.commands: list[Facts] = []
        self.sent: dict[str, Facts] = {}
        self.happened: list[Facts] = []
        self.left: list[str] = []
        self.measured: set[str] = set()

    def follow(self, record: Record) -> None:
        """Take one more record."""
        name = str(record.get("event"))
        if name in ("run_started", "run_resumed", "restore_begun"):
            self._attempt_over()
        self.at = float(record["at"])
        self.holds.see(record, self.at, (len(self.attempts), record))
        if name in REPORTED and not record.get("passes"):
            self.happened.append({"at": self.at, "event": name, "said": record.get("said") or name})
        step: Callable[[Record], None] | None = getattr(self, f"_on_{name}", None)
        if step is not None:
            step(record)

    # The frame of the run ---------------------------------------------------------------------------------

    def _on_run_started(self, record: Record) -> None:
        self.begun = record
        self._attempt(record, "restore" if record.get("repairs") else "start")
        shares, planned = (record.get("forecast") or {}).get("nodes", {}), record.get("planned") or []
        beside = {name: len(wave) for wave in planned for name in wave}
        for name in record["nodes"]:
            # A forecast shares the seconds of a wave among its nodes, which restart at the same time.
            share = shares.get(name)
            self._node(name)["predicted_seconds"] = None if share is None else share * beside.get(name, 1)

    def _on_run_resumed(self, record: Record) -> None:
        self._attempt(record, "resume")

    def _on_restore_begun(self, record: Record) -> None:
        self._attempt(record, "restore")

    def _attempt(self, record: Record, how: str) -> None:
        self.left, self.measured = [], set()
        self.attempts.append(
            {
                "number": len(self.attempts) + 1,
                "how": how,
                "operator": record.get("operator", ""),
                "host": record.get("host", ""),
                "began": self.at,
                "ended": None,
                "seconds": None,
                "outcome": None,
                "exit_code": None,
                "message": "",
            }
        )

    def _on_run_finished(self, record: Record) -> None:
        ended = {name: record.get(name) for name in ("outcome", "exit_code")}
        self.attempts[-1].update(ended, message=record.get("message") or self.attempts[-1]["message"])
        self._attempt_over()

    def _on_standing_down(self, record: Record) -> None:
        self.attempts[-1]["message"] = record.get("reason", "")

    def _on_stood_down(self, record: Record) -> None:
        self.left = list(record.get("left") or ())

    def _attempt_over(self) -> None:
        """The attempt ends with the last record: what is open cannot be followed further."""
        if self.attempts and self.attempts[-1]["ended"] is None:
            self.attempts[-1].update(ended=self.at, seconds=self.at - self.attempts[-1]["began"])
        for wave in self.waves:
            wave["ended"] = self.at if wave["ended"] is None else wave["ended"]
        for node in self.nodes.values():
            self._step_ends(node)
        self.sent.clear()

    # Waves and nodes --------------------------------------------------------------------------------------

    def _node(self, name: str) -> Facts:
        if name not in self.nodes:
            steps = dict.fromkeys(map(seconds_of, TURN.values()))
            moved = dict.fromkeys(("bytes_reused", "bytes_copied", "operations_replayed"))
            named = {"node": name, "zone": None, "wave": None, "phase": "pending", "why": ""}
            times = {"seconds": None, "predicted_seconds": None, "slow": False}
            self.nodes[name] = {**named, **times, **steps, **moved, "turns": []}
        return self.nodes[name]

    def _on_wave_started(self, record: Record) -> None:
        wave = record["wave"]
        fields = {name: wave.get(name) for name in ("number", "zone", "nodes")}
        more = {"began": self.at, "ended": None, "seconds": None, "attempt": len(self.attempts)}
        self.waves.append({**fields, "why": wave.get("why") or "", **more})
        for name in wave["nodes"]:
            self._node(name).update(wave=wave.get("number"), zone=wave.get("zone"))

    def _on_wave_finished(self, record: Record) -> None:
        for wave in self.waves:
            if wave["number"] == record["number"] and wave["ended"] is None:
                wave.update(ended=self.at, seconds=record["seconds"])

    def _on_phase_entered(self, record: Record) -> None:
        if record.get("node") is None:
            return
        node, phase = self._node(record["node"]), record["to"]
        self._step_ends(node)
        node["phase"] = phase
        node["why"] = record.get("why") or "" if phase in ("failed", "skipped") else ""
        if phase in TURN:
            of_turn = {"attempt": len(self.attempts), "wave": node["wave"]}
            node["turns"].append({"step": TURN[phase], "began": self.at, "ended": None, **of_turn})

    def _step_ends(self, node: Facts) -> None:
        turns = node["turns"]
        if turns and turns[-1]["ended"] is None:
            turns[-1]["ended"] = self.at

    def _on_node_recovered(self, record: Record) -> None:
        node = self._node(record["node"])
        for name in ("bytes_reused", "bytes_copied", "operations_replayed"):
            node[name] = record.get(name)
        if node["node"] not in self.measured and len(self.attempts) > 1:
            return  # a turn over two attempts was seen whole by neither
        node["seconds"] = record["seconds"]
        stops = [at for at, turn in enumerate(node["turns"]) if turn["step"] == "stop"]
        for turn in node["turns"][stops[-1] :] if stops else ():
            name = seconds_of(turn["step"])
            node[name] = (node[name] or 0.0) + (turn["ended"] or self.at) - turn["began"]

    # Holds and gates --------------------------------------------------------------------------------------

    def _held(self, hold: HoldPeriod[tuple[int, Record]]) -> Facts:
        (attempt, _), (_, last) = hold.said[0], hold.said[-1]
        ended = self.at if hold.ended is None else hold.ended
        # Alerts come and fire no longer: all that held it.
        alerts = dict.fromkeys(one for _, record in hold.said for one in record.get("subjects") or ())
        return {
            "predicate": hold.predicate,
            "subject": hold.subject,
            "evidence": last.get("evidence") or "",
            "count": last.get("count") or 1,
            "began": hold.began,
            "subjects": list(alerts),
            "ended": ended,
            "seconds": ended - hold.began,
            "attempt": attempt,
        }

    def _on_gates_passed(self, record: Record) -> None:
        for name, evidence in (record.get("gates") or {}).items():
            gate = self.gates.setdefault(name, {"gate": name, "passed": 0})
            gate.update(passed=gate["passed"] + 1, evidence=evidence, at=self.at)

    # The cluster ------------------------------------------------------------------------------------------

    def _on_cluster_sampled(self, record: Record) -> None:
        fields = {name: record[name] for name in ("health", "unassigned", "recovering")}
        self.samples.append({"at": float(record["read"]), **fields, "attempt": len(self.attempts)})

    def _setting(self, level: str, key: str, found: Any) -> Facts:
        new = {"level": level, "key": key, "before": found, "during": [], "after": None}
        return self.settings.setdefault((level, key), {**new, "restored": False, "times": 0, "note": ""})

    def _changed(self, change: Facts, wanted: Any) -> None:
        change["times"] += 1
        change["restored"] = False
        if wanted not in change["during"]:
            change["during"].append(wanted)

    def _on_setting_changed(self, record: Record) -> None:
        change = self._setting(record["level"], record["key"], record.get("found"))
        if record.get("purpose") in ("raise_limits", "set_allocation"):
            self._changed(change, record.get("wanted"))

    def _on_setting_restored(self, record: Record) -> None:
        change = self._setting(record["level"], record["key"], record.get("value"))
        change.update(after=record.get("value"), restored=True, note=record.get("note") or "")

    def _on_replicas_added(self, record: Record) -> None:
        change = self._setting(record["index_uuid"], f"replicas of {record['index']}", record["found"])
        self._changed(change, record["wanted"])

    def _on_replicas_restored(self, record: Record) -> None:
        for (level, _), change in self.settings.items():
            if level == record["index_uuid"]:
                change.update(after=change["before"], restored=True)

    def _on_voting_excluded(self, record: Record) -> None:
        self._changed(self._setting("cluster", "excluded from voting", None), record["node"])

    def _on_voting_restored(self, _record: Record) -> None:
        if ("cluster", "excluded from voting") in self.settings:
            self.settings["cluster", "excluded from voting"].update(after=None, restored=True)

    def _on_tuning_applied(self, record: Record) -> None:
        self._tuned(record, before=record.get("found"), after=record.get("wanted"))

    def _on_tuning_missed(self, record: Record) -> None:
        self._tuned(record, why=record.get("why") or "")

    def _tuned(self, record: Record, **more: Any) -> None:
        named = {"node": record["node"], "tunable": record["tunable"] or "the whole host"}
        self.tuning.append({**named, "before": None, "after": None, "why": "", **more})

    def _on_merge_begun(self, record: Record) -> None:
        before = {"segments_before": record["segments"], "bytes_before": record["bytes"]}
        now = {"segments": None, "bytes": None, "seconds": None, "why": ""}
        self.merges[record["index_uuid"]] = {"index": record["index"], **before, **now}

    def _on_index_merged(self, record: Record) -> None:
        if record["index_uuid"] in self.merges:
            found = {name: record.get(name) for name in ("segments", "bytes", "seconds")}
            self.merges[record["index_uuid"]].update(found, why=record.get("why") or "")

    # Commands ---------------------------------------------------------------------------------------------

    def _on_action_sent(self, record: Record) -> None:
        action = record["action"]
        if action["verb"] == "stop":
            self.measured.add(action["node"])
        index = f"index {action['index']}" if "index" in action else "cluster"
        command = {"at": self.at, "verb": action["verb"], "target": action.get("node") or index}
        outcome = {"result": "not recorded", "seconds": None, "said": ""}
        self.commands.append({**command, "detail": _detail(action), **outcome})
        self.sent[_key(action)] = self.commands[-1]

    def _on_action_confirmed(self, record: Record) -> None:
        self._answered(record, "done", record.get("output") or "")

    def _on_action_failed(self, record: Record) -> None:
        kind = "not sent" if record.get("unsent") else "in doubt" if record.get("in_doubt") else "refused"
        self._answered(record, kind, record.get("reason") or "")

    def _answered(self, record: Record, result: str, said: str) -> None:
        command = self.sent.pop(_key(record["action"]), None)
        if command is not None:
            command.update(result=result, said=said, seconds=self.at - command["at"])

    # The end ----------------------------------------------------------------------------------------------

    def ended(self, outcome: str | None, now: float | None) -> Facts:
        """All of it."""
        finished = bool(self.attempts) and self.attempts[-1]["ended"] is not None
        if not finished and now is not None:
            self.at = max(self.at, now)
        self._attempt_over()
        policy, begun = self.begun["policy"], self.begun
        last = self.attempts[-1] if self.attempts else {"outcome": None, "exit_code": None, "message": ""}
        node_seconds = {name: node["seconds"] for name, node in self.nodes.items() if node["seconds"]}
        self._name_the_slow(list(node_seconds.values()))
        likely = [node["predicted_seconds"] for node in self.nodes.values() if node["predicted_seconds"]]
        forecast = begun.get("forecast")
        product = PRODUCTS.get(begun.get("distribution") or "") or PRODUCTS.get(policy.get("kind"), "")
        order = {name: at for at, name in enumerate(n for wave in self.waves for n in wave["nodes"])}
        nodes = sorted(self.nodes.values(), key=lambda node: order.get(node["node"], len(order)))
        return {
            "event": "report",
            "run": begun.get("run", ""),
            "cluster": begun.get("cluster", ""),
            "product": product,
            "version": begun.get("version", ""),
            "target_version": (policy.get("upgrade") or {}).get("target"),
            "work": _work(policy, begun),
            "strategy": policy.get("strategy", "node"),
            "playbook": policy.get("playbook", ""),
            "reason": policy.get("reason") or "",
            "repairs": begun.get("repairs"),
            "began": float(begun["at"]),
            "ended": self.at,
            "finished": finished,
            "alive": None,
            "seconds": sum(one["seconds"] for one in self.attempts),
            "outcome": last["outcome"] or outcome,
            "exit_code": last["exit_code"],
            "message": last["message"],
            "next": None,
            "predicted_seconds": None if forecast is None else forecast.get("in_all"),
            "nodes_selected": len(begun["nodes"]),
            "nodes_restarted": sum(node["phase"] == "recovered" for node in nodes),
            "nodes_failed": [node["node"] for node in nodes if node["phase"] == "failed"],
            "nodes_skipped": [node["node"] for node in nodes if node["phase"] == "skipped"],
            "nodes_not_restarted": [n["node"] for n in nodes if n["phase"] in ("pending", *TURN)],
            "seconds_a_node": median(node_seconds.values()) if node_seconds else None,
            "predicted_seconds_a_node": median(likely) if likely else None,
            "node_seconds": node_seconds,
            "seconds_held": self.holds.seconds(self.at),
            "bytes_reused": _sum(nodes, "bytes_reused"),
            "bytes_copied": _sum(nodes, "bytes_copied"),
            "health_seconds": self._health_seconds(),
            "attempts": self.attempts,
            "waves": self.waves,
            "nodes": nodes,
            "samples": self.samples or None,
            "holds": [self._held(hold) for hold in self.holds.all],
            "gates": list(self.gates.values()),
            "settings": list(self.settings.values()),
            "not_restored": self.left,
            "tuning": self.tuning,
            "merges": list(self.merges.values()),
            "commands": self.commands,
            "happened": self.happened,
        }

    def _name_the_slow(self, seconds: Sequence[float]) -> None:
        """Compare each node with the median too: if all are slower than predicted, none stands out."""
        usual = median(seconds) if seconds else 0.0
        for node in self.nodes.values():
            basis = max(usual, node["predicted_seconds"] or 0.0)
            took = node["seconds"] or 0.0
            node["slow"] = took > SLOW * basis and took > basis + _SLOW_SECONDS

    def _health_seconds(self) -> dict[str, float]:
        """How long the cluster had each health, by its samples."""
        found: Counter[str] = Counter()
        for sample in spans(self.samples, self.attempts):
            found[sample["health"]] += sample["ended"] - sample["at"]
        return dict(found)


def spans(samples: Iterable[Facts], attempts: Sequence[Facts]) -> list[Facts]:
    """Each sample with its end: the next one, or the end of its attempt."""
    found = list[Facts]()
    for sample in samples:
        end = attempts[sample["attempt"] - 1]["ended"]
        if found and found[-1]["attempt"] == sample["attempt"]:
            found[-1]["ended"] = sample["at"]
        found.append({**sample, "ended": max(end, sample["at"])})
    return found


def _sum(nodes: Iterable[Facts], name: str) -> int | None:
    known = [node[name] for node in nodes if node[name] is not None]
    return sum(known) if known else None


def _key(action: Record) -> str:
    return json.dumps(action, sort_keys=True)


def _work(policy: Record, begun: Record) -> str:
    if begun.get("repairs"):
        return "restore"
    if policy.get("upgrade"):
        return "upgrade"
    if policy.get("merge") and not begun["nodes"]:
        return "merge"
    return "reboot" if policy.get("reboot") else "restart"


def _detail(action: Record) -> str:
    """What an action is about, beside its verb and target."""
    step = action.get("hook") or action.get("step")
    if step:
        return str(step.get("run", ""))
    if "changes" in action and "tunable" not in action:
        changes = ((one["key"], one.get("wanted")) for one in action["changes"])
        return ", ".join(f"{key} = {setting(value)}" for key, value in changes)
    if isinstance(action.get("wanted"), Mapping):
        return ", ".join(f"{key} = {setting(value)}" for key, value in action["wanted"].items())
    if "found" in action:
        of = f"{action['tunable']}: " if "tunable" in action else ""
        return f"{of}{setting(action['found'])} → {setting(action['wanted'])}"
    return ""
