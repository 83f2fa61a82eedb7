"""Where the tasks of a sweep run: local processes, SLURM through submitit, or a Ray cluster.

Each has `start`, `ended` (what has ended since it was last asked, and how, in words) and `stop`, and says in `room` how
many more tasks it takes. The outcome itself is in a file, see `worker.py`.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kmyriad.errors import UsageError, first_line
from kmyriad.runs.files import os_errors
from kmyriad.sweeps.worker import log_path, perform_there

SECONDS_TO_END = 10.0
"""After which a process that was asked to end is killed."""

UNLIMITED = 1_000_000


@dataclass(frozen=True)
class Call:
    """A function and its arguments, as `worker.perform` takes them, and the cores it needs."""

    function: str
    """`module:name`."""
    arguments: Path
    """A JSON file; the log is beside it."""
    threads: int = 1


class Executor(Protocol):
    @property
    def room(self) -> int: ...

    def start(self, name: str, call: Call) -> None: ...

    def ended(self) -> dict[str, str]: ...

    def stop(self) -> None: ...


class Processes:
    """So many processes of this machine at a time."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def room(self) -> int:
        return self._count - len(self._running)

    def start(self, name: str, call: Call) -> None:
        command = [sys.executable, "-m", "kmyriad.sweeps.worker", call.function, str(call.arguments)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with (
            os_errors(f"start a process for {name}", "see that there is room on the disk"),
            log_path(call.arguments).open("ab") as log,
        ):
            # Standard input tells the process that the sweep is gone. A session of its own, as Ctrl-C is for the sweep.
            self._running[name] = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def ended(self) -> dict[str, str]:
        codes = {name: process.poll() for name, process in self._running.items()}
        return {name: self._end(name, code) for name, code in codes.items() if code is not None}

    def stop(self) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for name in [*self._running]:
            self._end(name, 0)

    def _end(self, name: str, code: int) -> str:
        process = self._running.pop(name)
        assert process.stdin is not None
        process.stdin.close()
        if code < 0:
            hint = "; is there enough memory?" if -code == signal.SIGKILL else ""
            return f"its process was killed by {signal.Signals(-code).name}{hint}"
        return f"its process ended with exit code {code}; its log says why"


class Submitit:
    """SLURM jobs through submitit, which also has a cluster "local" of plain processes."""

    def __init__(self, folder: Path, parameters: Mapping[str, Any], most: int | None, cluster: str = "slurm") -> None:
        try:
            import submitit
        except ModuleNotFoundError:
            raise UsageError("SLURM needs submitit; install it with: pip install 'kmyriad[slurm]'") from None
        try:
            self._executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
            self._executor.update_parameters(**{"timeout_min": 24 * 60, **parameters})
        except Exception as error:  # no SLURM here, or a parameter that submitit does not know
            raise UsageError(f"submitit cannot use {cluster}: {first_line(error)}") from error
        self._cpus = "cpus_per_task" not in parameters
        self._most = most or UNLIMITED
        self._running: dict[str, Any] = {}

    @property
    def room(self) -> int:
        return self._most - len(self._running)

    def start(self, name: str, call: Call) -> None:
        if self._cpus:
            self._executor.update_parameters(cpus_per_task=call.threads)
        self._executor.update_parameters(name=name[:100])
        try:
            self._running[name] = self._executor.submit(perform_there, os.getcwd(), call.function, str(call.arguments))
        except Exception as error:  # sbatch refuses: a wrong partition, a limit on jobs
            raise UsageError(f"submitit cannot submit {name}: {first_line(error)}") from error

    def ended(self) -> dict[str, str]:
        done = [name for name, job in self._running.items() if job.done()]
        return {name: self._words(self._running.pop(name)) for name in done}

    def stop(self) -> None:
        for job in self._running.values():
            job.cancel()
        self._running.clear()

    @staticmethod
    def _words(job: Any) -> str:
        return f"job {job.job_id} ended in state {job.state}; its log is {job.paths.stderr}"


class Ray:
    """Tasks on the Ray cluster that this machine is part of, or that RAY_ADDRESS names."""

    def __init__(self, most: int | None) -> None:
        try:
            import ray
        except ModuleNotFoundError:
            raise UsageError("Ray is not installed; install it with: pip install 'kmyriad[ray]'") from None
        try:
            ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False, logging_level="error")
        except Exception as error:
            raise UsageError(
                f"there is no Ray cluster to be found: {first_line(error)}; begin one with: ray start --head, or set"
                " RAY_ADDRESS"
            ) from error
        self._ray, self._most = ray, most or UNLIMITED
        self._running: dict[str, Any] = {}

    @property
    def room(self) -> int:
        return self._most - len(self._running)

    def start(self, name: str, call: Call) -> None:
        task = self._ray.remote(perform_there).options(num_cpus=call.threads, name=name, max_retries=0)
        self._running[name] = task.remote(os.getcwd(), call.function, str(call.arguments))

    def ended(self) -> dict[str, str]:
        names = {reference: name for name, reference in self._running.items()}
        if not names:
            return {}
        done, _ = self._ray.wait([*names], num_returns=len(names), timeout=0)
        return {names[reference]: self._words(names[reference]) for reference in done}

    def stop(self) -> None:
        for reference in self._running.values():
            self._ray.cancel(reference, force=True)
        self._running.clear()
        self._ray.shutdown()

    def _words(self, name: str) -> str:
        try:
            self._ray.get(self._running.pop(name))
        except Exception as error:
            return f"Ray ended it: {first_line(error)}"
        return "it ended without a word"
