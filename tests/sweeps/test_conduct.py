"""Tasks side by side: retried, told about, stopped, on processes, submitit's local cluster and a stand-in for Ray."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from kmyriad import UsageError
from kmyriad.sweeps.conduct import State, Task, conduct
from kmyriad.sweeps.executors import Processes, Ray, Submitit
from kmyriad.sweeps.worker import perform_there

HERE = "tests.sweeps.tasks"


def task(name, function, after=None, **arguments):
    return Task(name, f"{HERE}:{function}", arguments, after)


def ignore(tasks):
    pass


def test_tasks_of_all_kinds_on_processes(tmp_path):
    seen = []
    tasks = [
        task("good", "double", number=21),
        task("flaky", "fail_at_first", counter=str(tmp_path / "flaky"), times=1),
        task("broken", "fail_at_first", counter=str(tmp_path / "broken"), times=9),
        task("later", "double", after="good", number=1),
        task("never", "double", after="refused", number=1),
        task("refused", "refuse"),
        task("crashed", "crash"),
        task("killed", "die"),
        task("left", "leave"),
    ]
    executor = Processes(3)
    conduct(tasks, executor, tmp_path / "control", 1, lambda tasks: seen.append([one.state for one in tasks]))
    found = {one.name: (one.state, one.attempts, one.outcome.value, one.outcome.error) for one in tasks}
    assert found["good"] == (State.DONE, 1, 42, None)
    assert found["flaky"] == (State.DONE, 2, 2, None)
    assert found["broken"] == (State.FAILED, 2, None, "call 2 failed")
    assert found["later"] == (State.DONE, 1, 2, None)
    assert found["never"] == (State.FAILED, 0, None, "it starts from refused, which failed")
    assert found["refused"] == (State.FAILED, 1, None, "the goal lies inside a wall")  # no use in asking again
    assert found["crashed"] == (State.FAILED, 2, None, "RuntimeError: first line; its log has the rest")
    assert found["killed"][3] == "its process was killed by SIGKILL; is there enough memory?"
    assert found["left"][3] == "its process ended with exit code 3; its log says why"
    assert "second line" in (tmp_path / "control" / "crashed.log").read_text()
    assert "Fatal" not in (tmp_path / "control" / "good.log").read_text()
    assert max(states.count(State.RUNNING) for states in seen) <= 3
    assert executor.room == 3


def wait_for(condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.05)


def is_alive(process):
    """Whether it runs; a zombie does not."""
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_whatever_ends_the_sweep_ends_its_processes(tmp_path):
    begun = tmp_path / "begun"

    def interrupt(tasks):
        if begun.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conduct([task("long", "sleep", begun=str(begun))], Processes(1), tmp_path / "control", 0, interrupt)
    assert not is_alive(int(begun.read_text()))


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks into /proc")
def test_a_killed_sweep_leaves_no_process_behind(tmp_path):
    begun = tmp_path / "begun"
    script = f"""
from pathlib import Path
from kmyriad.sweeps.executors import Call, Processes
from kmyriad.runs.files import write_json
write_json(Path("task.json"), {{"begun": {str(begun)!r}}})
Processes(1).start("long", Call("{HERE}:sleep", Path("task.json")))
import time; time.sleep(60)
"""
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, env=environment)
    try:
        wait_for(lambda: begun.exists() and begun.read_text())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        wait_for(lambda: not is_alive(int(begun.read_text())))
    finally:
        parent.kill()
        parent.wait()


@pytest.mark.filterwarnings("default")  # submitit's own
def test_submitit_runs_tasks_and_tells_how_they_ended(tmp_path):
    """Its local cluster; SLURM's is the same class with other commands."""
    executor = Submitit(tmp_path / "slurm", {"timeout_min": 1}, most=2, cluster="local")
    tasks = [task("good", "double", number=21), task("refused", "refuse"), task("killed", "die")]
    conduct(tasks, executor, tmp_path / "control", 0, ignore)
    good, refused, killed = tasks
    assert (good.state, good.outcome.value) == (State.DONE, 42)
    assert (refused.state, refused.outcome.error) == (State.FAILED, "the goal lies inside a wall")
    assert killed.state == State.FAILED
    assert "a word to the log" in (tmp_path / "control" / "good.log").read_text()
    assert "ended in state" in killed.outcome.error


def test_where_there_is_no_slurm_one_sentence_says_so(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="submitit cannot use slurm"):
        Submitit(tmp_path, {}, None)
    with pytest.raises(UsageError, match=r"submitit cannot use local: .*nonsense"):
        Submitit(tmp_path, {"nonsense": 3}, None, "local")
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UsageError, match=r"SLURM needs submitit; install it with: pip install 'kmyriad\[slurm\]'"):
        Submitit(tmp_path, {}, None)


class RayStandIn:
    """What `Ray` uses of Ray, in this process: a task runs when it is asked for."""

    def __init__(self):
        self.begun = {}

    def init(self, **options):
        assert options["address"] == "auto"

    def remote(self, function):
        assert function is perform_there

        def start(*arguments):
            return (function, arguments)

        return SimpleNamespace(options=lambda **options: self.begun.update(options) or SimpleNamespace(remote=start))

    def wait(self, references, num_returns, timeout):
        assert (num_returns, timeout) == (len(references), 0)
        return references[:1], references[1:]

    def get(self, reference):
        function, arguments = reference
        if "die" in arguments[1]:
            raise RuntimeError("the worker died\nfor a reason")
        function(*arguments)

    def cancel(self, reference, force):
        assert force

    def shutdown(self):
        self.is_shut = True


def test_ray_runs_tasks_and_tells_how_they_ended(tmp_path, monkeypatch):
    ray = RayStandIn()
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    tasks = [task("good", "double", number=21), task("refused", "refuse"), task("killed", "die")]
    conduct(tasks, Ray(None), tmp_path / "control", 0, ignore)
    assert [one.outcome.value for one in tasks] == [42, None, None]
    assert tasks[1].outcome.error == "the goal lies inside a wall"
    assert tasks[2].outcome.error == "Ray ended it: the worker died"
    assert (ray.begun["num_cpus"], ray.is_shut) == (1, True)


def test_without_ray_or_a_cluster_one_sentence_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"Ray is not installed; install it with: pip install 'kmyriad\[ray\]'"):
        Ray(None)

    def no_cluster(**_):
        raise ConnectionError("Could not find any running Ray instance.\nmore")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=no_cluster))
    with pytest.raises(UsageError, match=r"no Ray cluster to be found: Could not find .*; begin one with: ray start"):
        Ray(None)
