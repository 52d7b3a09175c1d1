"""A worker: takes jobs from a table of SQLite, runs them, and writes how they ended.

    PYTHONPATH=clients/python python3 examples/worker.py jobs.db

Each job's key is its row, so a worker that starts again after a crash gets the results of the
first execs, and no job runs twice. SECBOX_SERVER and SECBOX_TOKEN name core-api; --once ends the
worker when no job is open.
"""

import os
import sqlite3
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait

import secbox

AT_ONCE = 8
TABLE = """CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, script TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'open', exit_code INTEGER, stdout TEXT, detail TEXT, exec_id TEXT)"""
TAKE = """UPDATE jobs SET status = 'taken' WHERE id IN (SELECT id FROM jobs WHERE status = 'open' ORDER BY id LIMIT ?)
    RETURNING id, script"""


def run(client: secbox.Client, job_id: int, script: str) -> dict:
    """Runs a job and returns the new values of its row."""
    job = secbox.Job(script=script, project_id=f"job-{job_id}", task_id=f"job-{job_id}", policy={"timeout_ms": 60_000})
    try:
        result = client.run(job, key=f"jobs/{job_id}")
    except (secbox.Busy, secbox.ConnectionFailed) as later:
        return {"status": "open", "detail": str(later)}
    except secbox.ApiError as refused:
        return {"status": "refused", "detail": refused.detail, "exec_id": refused.exec_id}
    return {"status": result.status, "exit_code": result.exit_code, "stdout": result.stdout, "detail": result.detail, "exec_id": result.exec_id}


def main(database: str, once: bool) -> None:
    client = secbox.Client(os.environ.get("SECBOX_SERVER", "http://127.0.0.1:8003"), os.environ.get("SECBOX_TOKEN", ""))
    db = sqlite3.connect(database, isolation_level=None)
    db.execute(TABLE)
    db.execute("UPDATE jobs SET status = 'open' WHERE status = 'taken'")  # of a worker that died
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running: dict = {}
        while True:
            for job_id, script in db.execute(TAKE, (AT_ONCE - len(running),)).fetchall():
                running[pool.submit(run, client, job_id, script)] = job_id
            if not running:
                if once:
                    return
                time.sleep(1)
                continue
            for done in wait(running, timeout=1, return_when="FIRST_COMPLETED").done:
                row = done.result()
                columns = ", ".join(f"{name} = ?" for name in row)
                db.execute(f"UPDATE jobs SET {columns} WHERE id = ?", (*row.values(), running.pop(done)))


if __name__ == "__main__":
    main(sys.argv[1], "--once" in sys.argv[2:])
