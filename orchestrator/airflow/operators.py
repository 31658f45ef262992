"""Tasks that run `orchestrate`: the step after a bulk load, and the rolling restart."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferralTimeout
from airflow.sdk.log import mask_secret

from orchestrator.airflow import command
from orchestrator.airflow.attempt import Attempt, Condition, Mark
from orchestrator.airflow.attempts import AttemptError, Start, attempts, find_or_start, token
from orchestrator.airflow.output import Fate, verdict
from orchestrator.airflow.triggers import RunTrigger
from orchestrator.next_command import passwords_in

Texts: TypeAlias = str | Sequence[str] | None


class OrchestrateOperator(BaseOperator):
    """Base of the operators: one run of the program, even if the task is tried several times.

    The program runs in its own session. The task defers to `RunTrigger` and resumes at the program's end. If
    an earlier try's program still runs, a new try waits for it.

    Returns (as XCom) the summary of the run, with its id in `run`.

    Args:
        cluster: name or path of the cluster file.
        state: where journals are stored, as an SQLAlchemy URL; the program gets its password by
            `ORCHESTRATE_STATE`.
        playbook: name or path.
        only: globs of nodes to restart; `exclude`: globs of nodes to leave out.
        strategy: `node` or `zone`.
        max_unavailable: nodes that may be away at once, `2` or `10%`.
        zone: only nodes of this zone.
        started_before: only nodes whose process is older than this time or duration.
        due: only nodes that are due for one of these: `version:V`, `reboot-required`, `config`.
        timeout: the program stands down after this duration; has to be shorter than `execution_timeout`.
        reason: for `orchestrate history`; the task and its run by default.
        arguments: further arguments for the command.
        program: how to call `orchestrate`; a list may begin with a prefix such as `sudo -n`.
        environment: variables of the program, added to the worker's.
        directory: its working directory.
        folder: where starts and their output are stored; on this machine, not shared.
        deferrable: wait in the triggerer; otherwise in the worker.
        poll_interval: seconds between two reads of its output; its end is noticed at once.
    """

    template_fields: Sequence[str] = (
        "cluster",
        "state",
        "playbook",
        "only",
        "exclude",
        "strategy",
        "max_unavailable",
        "zone",
        "started_before",
        "due",
        "timeout",
        "reason",
        "arguments",
        "environment",
        "directory",
        "folder",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"environment": "json"}
    ui_color = "#dcecd9"

    def __init__(
        self,
        *,
        cluster: str,
        state: str | None = None,
        playbook: str | None = None,
        only: Texts = None,
        exclude: Texts = None,
        strategy: str | None = None,
        max_unavailable: int | str | None = None,
        zone: str | None = None,
        started_before: str | None = None,
        due: Texts = None,
        timeout: str | None = None,
        reason: str = "airflow: {{ ti.dag_id }}.{{ ti.task_id }} {{ run_id }}",
        arguments: Sequence[str] = (),
        program: str | Sequence[str] = "orchestrate",
        environment: Mapping[str, str] | None = None,
        directory: str | None = None,
        folder: str | None = None,
        deferrable: bool = True,
        poll_interval: float = 5.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster
        self.state = state
        self.playbook = playbook
        self.only = only
        self.exclude = exclude
        self.strategy = strategy
        self.max_unavailable = max_unavailable
        self.zone = zone
        self.started_before = started_before
        self.due = due
        self.timeout = timeout
        self.reason = reason
        self.arguments = arguments
        self.program = program
        self.environment = environment
        self.directory = directory
        self.folder = folder
        self.deferrable = deferrable
        self.poll_interval = poll_interval
        self._attempt: Attempt | None = None
        self._killed = False
        self._mask_passwords()  # of a mapped task Airflow renders the templates itself

    def words(self) -> list[str]:
        """The command line after the program's name."""
        raise AirflowFailException(f"{type(self).__name__} has no command of its own; take one that has")

    def render_template_fields(self, context: Mapping[str, Any], jinja_env: Any = None) -> None:
        """Render the templates. Airflow hides the passwords in them, too, wherever it shows or logs them."""
        super().render_template_fields(context, jinja_env)
        self._mask_passwords()

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Find the run of an earlier try or start one, then wait for its end."""
        try:
            start = Start(
                program=_texts(self.program),
                words=self.words(),
                state=self.state,
                environment=self.environment,
                directory=self.directory,
            )
            self._attempt, new = find_or_start(self._folder(context), start)
        except ValueError as error:
            raise AirflowFailException(str(error)) from error
        except AttemptError as error:
            raise AirflowException(str(error)) from error
        if new:
            self.log.info("Started, in %s: %s", self._attempt.folder, [*start.program, *start.words])
        else:
            self.log.info("An earlier try has started it, in %s", self._attempt.folder)
        if self.deferrable and not self._killed:
            self._defer(self._attempt)
        return self._wait(self._attempt, context)

    def execute_complete(self, context: Mapping[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
        """Continue after the trigger has seen the end, or could not see the process."""
        self._attempt = Attempt(Path(event["folder"]))
        return self._wait(self._attempt, context)

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Mapping[str, Any]
    ) -> Any:
        """Resume like any deferred task. After `execution_timeout`, stop the run."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            self._attempt = next(reversed(attempts(self._folder(context))), None)
            self.on_kill()
            raise

    def on_kill(self) -> None:
        """Make the run stand down, and wait for its end.

        Airflow calls this in a signal handler and then continues the task, or kills it after a while. The run
        stands down in either case.
        """
        self._killed = True
        attempt = self._attempt
        if attempt is None:
            return
        self.log.info("The task was killed: %s", attempt.ask_to_stop(self.environment))
        self._watch(attempt)

    def _mask_passwords(self) -> None:
        for url in (self.state or "", *(self.environment or {}).values()):
            for password in passwords_in(url):
                mask_secret(password)

    def _defer(self, attempt: Attempt) -> None:
        trigger = RunTrigger(folder=str(attempt.folder), poll_interval=self.poll_interval)
        self.defer(trigger=trigger, method_name="execute_complete", timeout=self.execution_timeout)

    def _folder(self, context: Mapping[str, Any]) -> Path:
        state_home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
        base = Path(self.folder) if self.folder else Path(state_home) / "orchestrate/airflow"
        task = context["ti"]
        return base / token(task.dag_id, task.task_id, task.run_id, task.map_index)

    def _wait(self, attempt: Attempt, context: Mapping[str, Any]) -> dict[str, Any]:
        """Wait in this process; return the summary, or raise the exception for the run's end."""
        if self._watch(attempt) is Condition.ELSEWHERE:
            raise AirflowException(
                f"{attempt.folder} cannot be seen from here: the worker and the triggerer of this task must "
                "be on one machine (give it a queue), or say deferrable=False"
            )
        if self._killed:
            raise AirflowException(f"the task was killed; {verdict(attempt.ending(), self.state).message}")
        if attempt.marked(Mark.STOP_ASKED):
            self.log.info("The run was stopped by an earlier try that was killed; this one starts a new run")
            return self.execute(context)
        ending = attempt.ending()
        attempt.mark(Mark.REPORTED)
        found = verdict(ending, self.state)
        match found.fate:
            case Fate.SUCCESS:
                self.log.info("%s", found.message)
                return {**(ending.summary or {}), "run": ending.run}
            case Fate.RETRY:
                raise AirflowException(found.message)
            case Fate.FAIL:
                raise AirflowFailException(found.message)

    def _watch(self, attempt: Attempt) -> Condition:
        offset = 0
        while True:
            condition = attempt.condition()
            lines, offset = attempt.new_lines(offset)
            for line in lines if not self.deferrable else []:
                self.log.info("%s", line)
            if condition is not Condition.RUNNING:
                return condition
            attempt.wait(self.poll_interval)

    def _selection(self) -> command.Selection:
        return command.Selection(
            cluster=self.cluster,
            state=self.state,
            playbook=self.playbook,
            only=_texts(self.only),
            exclude=_texts(self.exclude),
            strategy=self.strategy,
            max_unavailable=None if self.max_unavailable is None else str(self.max_unavailable),
            zone=self.zone,
            started_before=self.started_before,
            due=_texts(self.due),
            timeout=self.timeout,
            reason=self.reason,
            arguments=self.arguments,
        )


class PostBulkIndexOperator(OrchestrateOperator):
    """`orchestrate post-bulk-index`: merge indices after a bulk load, wait for their copies, restart.

    Args:
        index: names or patterns of indices.
        max_segments: maximum segments per copy; by default the playbook's.
        restarts: whether nodes are restarted afterwards; None = the program's default.
        allow_writes: also merge indices that are still being written.
        kwargs: arguments of `OrchestrateOperator` and of every task.
    """

    template_fields: Sequence[str] = (*OrchestrateOperator.template_fields, "index", "max_segments")

    def __init__(
        self,
        *,
        index: str | Sequence[str],
        max_segments: int | str | None = None,
        restarts: bool | None = None,
        allow_writes: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.index = index
        self.max_segments = max_segments
        self.restarts = restarts
        self.allow_writes = allow_writes

    def words(self) -> list[str]:
        """`post-bulk-index …`."""
        return command.post_bulk_index(
            self._selection(),
            index=_texts(self.index),
            max_segments=None if self.max_segments is None else int(self.max_segments),
            restarts=self.restarts,
            allow_writes=self.allow_writes,
        )


class RestartOperator(OrchestrateOperator):
    """`orchestrate restart` of the nodes that are due for a restart.

    `started_before` is required: with it, a retry leaves out the nodes that an earlier try restarted. `{{
    dag_run.run_after.isoformat() }}` restarts every node once per DAG run; `30d` restarts nodes that have run
    for 30 days.

    Args:
        kwargs: arguments of `OrchestrateOperator` and of every task.
    """

    def __init__(self, *, started_before: str, **kwargs: Any) -> None:
        super().__init__(started_before=started_before, **kwargs)

    def words(self) -> list[str]:
        """`restart …`."""
        return command.restart(self._selection())


def _texts(value: Texts) -> tuple[str, ...]:
    """One or several texts, as a tuple."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
