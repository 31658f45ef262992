"""The DAGs of the tests, as they stand in the JSON file `$TEST_DAGS`: each one task. Airflow reads this."""

import json
import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG

from orchestrator.airflow import operators

SECONDS = ("retry_delay", "execution_timeout")

for name, (operator, arguments) in json.loads(Path(os.environ["TEST_DAGS"]).read_text()).items():
    durations = {key: timedelta(seconds=arguments[key]) for key in SECONDS if key in arguments}
    with DAG(name, schedule=None, is_paused_upon_creation=False, max_active_runs=1) as dag:
        getattr(operators, operator)(task_id="settle", **{**arguments, **durations})
    globals()[name] = dag
