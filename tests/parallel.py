"""Option of pytest: run the test files in several processes, which are forked after the collection.

The tests are collected once, and all processes share what their import created. A file stays in one process, and its
tests keep their order. With CUDA, all tests run in one process.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest
import warp as wp

_fork = get_context("fork")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--processes`."""
    help = "number of processes that run tests; 'auto': up to two more than cores, since some tests wait"
    parser.addoption("--processes", type=_number, default=1, metavar="N", help=help)


def _number(text: str) -> int:
    if text != "auto":
        return int(text)
    cores = os.cpu_count() or 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(cores, min(cores + 2, memory // 5_000_000_000))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the collected tests, and pass on what the processes report.

    Raises:
        Failed: pytest was told to stop after a number of failures, or a process has ended within a test.
    """
    files = [list(tests) for _, tests in itertools.groupby(session.items, lambda item: item.path)]
    processes = min(session.config.getoption("processes"), len(files))
    if processes < 2 or session.config.option.collectonly or session.testsfailed:
        return None
    if wp.is_cuda_available():  # initialised by the import of tests, and of no use in forked processes
        return None
    basetemp = session.config._tmp_path_factory.getbasetemp()
    taken = _fork.Value("i", 0)
    workers = {}
    for number in range(processes):
        reading, writing = _fork.Pipe(duplex=False)
        worker = _fork.Process(
            target=_work, args=(session, files, taken, writing, basetemp / f"worker{number}"), name=f"worker {number}"
        )
        worker.start()
        writing.close()
        workers[reading] = worker
    running = dict.fromkeys(workers, "no test")
    hook = session.config.hook
    try:
        while workers:
            for reading in wait(list(workers)):
                try:
                    kind, *values = reading.recv()
                except (EOFError, OSError):
                    worker = workers[reading]
                    worker.join()
                    session.shouldfail = f"{worker.name} ended with exit code {worker.exitcode} in {running[reading]}"
                    raise session.Failed(session.shouldfail) from None
                if kind == "end":
                    workers.pop(reading).join()
                elif kind == "start":
                    running[reading] = values[0]
                elif kind == "report":
                    report = hook.pytest_report_from_serializable(config=session.config, data=values[0])
                    hook.pytest_runtest_logreport(report=report)
                else:
                    hook.pytest_warning_recorded.call_historic(kwargs=values[0])
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
    finally:
        for worker in workers.values():
            worker.terminate()
            worker.join()
    return True


class _Reporter:
    """Plugin of a process: sends what happens to the process that collected the tests."""

    def __init__(self, config: pytest.Config, out: Connection) -> None:
        self._config = config
        self._out = out

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._out.send(("start", nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._out.send(("report", data))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        got = warning_message
        message = warnings.WarningMessage(str(got.message), got.category, got.filename, got.lineno)
        values = {"warning_message": message, "when": when, "nodeid": nodeid, "location": location}
        self._out.send(("warning", values))


def _work(
    session: pytest.Session, files: Sequence[list[pytest.Item]], taken: Any, out: Connection, basetemp: Path
) -> None:
    """Run tests until all files are taken."""
    config = session.config
    plugins = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    plugins.register(_Reporter(config, out))
    capture = plugins.getplugin("capturemanager")
    if capture.is_globally_capturing():  # into a temporary file, whose position the processes would share
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture(in_=True)
    basetemp.mkdir()
    config._tmp_path_factory._basetemp = basetemp
    tests = _tests(files, taken)
    item = next(tests, None)
    while item is not None:
        nextitem = next(tests, None)
        config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        item = nextitem
    out.send(("end",))


def _tests(files: Sequence[list[pytest.Item]], taken: Any) -> Iterator[pytest.Item]:
    """Yield the tests of files that no other process has taken."""
    while True:
        with taken.get_lock():
            index = taken.value
            taken.value += 1
        if index >= len(files):
            return
        yield from files[index]
