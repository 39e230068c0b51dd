"""The number of worker threads follows background.threads while the broker runs."""

import threading

from ottla.broker.loop.worker_threads import WorkerThreads
from ottla.config.broker import BrokerConfig


def new_threads(workers: WorkerThreads, jobs: int, end: threading.Event) -> int:
    """How many threads so many jobs are given to, which last until the end."""
    before = set(threading.enumerate())
    for _ in range(jobs):
        workers.submit(end.wait, 60)
    return len(set(threading.enumerate()) - before)


def test_as_many_jobs_run_at_once_as_is_said_last() -> None:
    config = BrokerConfig({"background.threads": "4"})
    workers, end = WorkerThreads(config), threading.Event()
    first = new_threads(workers, 9, end)
    config.update_dynamic({}, {"background.threads": "6"})
    second = new_threads(workers, 9, end)
    config.update_dynamic({}, {"background.threads": "3"})
    third = new_threads(workers, 9, end)
    end.set()
    workers.shutdown()
    assert (first, second, third) == (4, 6, 3)


def test_what_was_given_to_former_threads_is_done_before_the_end() -> None:
    config = BrokerConfig({"background.threads": "2"})
    workers = WorkerThreads(config)
    go_on = threading.Event()
    jobs = [workers.submit(lambda number=number: go_on.wait(60) and number) for number in range(5)]
    config.update_dynamic({}, {"background.threads": "1"})
    go_on.set()
    workers.shutdown()
    assert [job.result(0) for job in jobs] == [0, 1, 2, 3, 4]
