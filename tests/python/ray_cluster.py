"""A Ray cluster of several node processes on this machine, and helpers that inspect the processes of its workers."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

# No usage reports, and no warning about the accelerator variables of nodes without accelerators.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
# With Ray's default niceness of 15, workers would hardly run on a busy machine.
os.environ["RAY_worker_niceness"] = "0"

OBJECT_STORE_BYTES = 100 << 20


class LocalCluster:
    """A head without CPUs, and nodes that can be added and killed."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.address = self._cluster.address

    def add_node(self):
        return self._cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE_BYTES)

    def kill_node(self, node):
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self):
        self._cluster.shutdown()

    @contextmanager
    def node_with_hidden(self, folder):
        """A node in a mount namespace of its own, in which `folder` is empty. Yields `None` where that is not permitted."""
        script = 'mount -t tmpfs tmpfs "$1" && shift && exec "$@"'
        for unshare in (["unshare", "-m"], ["unshare", "-rm"]):
            inside = [*unshare, "sh", "-c", script, "sh", str(folder)]
            if shutil.which("unshare") and subprocess.run([*inside, "true"], capture_output=True).returncode == 0:
                break
        else:
            yield None
            return
        start = [
            sys.executable, "-m", "ray.scripts.scripts", "start", "--block", f"--address={self.address}",
            "--num-cpus=1", f"--object-store-memory={OBJECT_STORE_BYTES}",
        ]
        before = alive_nodes()
        for attempts_left in reversed(range(4)):
            process = subprocess.Popen(
                [*inside, *start], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
            )
            new = wait_for(lambda: alive_nodes() - before or process.poll() is not None, 120)
            if new is not True:
                break
            # Ray gives a node 30 s to start, which may be too short on a busy machine.
            output = process.stdout.read().decode()
            assert attempts_left and "timed out during startup" in output, output
        try:
            yield new.pop()
        finally:
            processes = [process.pid, *descendants(process.pid)]
            for pid in processes:
                kill(pid)
            process.wait()
            wait_for(lambda: alive_nodes() <= before, 120)


def alive_nodes():
    """Ids of the nodes that are alive. The process must be connected."""
    import ray

    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}


def wait_for(condition, seconds):
    """Polls `condition` until its result is true, and returns the result."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)
    return result


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def parent(pid):
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(status.rpartition(")")[2].split()[1])


def processes():
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdecimal()]


def descendants(pid):
    found, grown = {pid}, True
    while grown:
        more = {process for process in processes() if parent(process) in found} - found
        found |= more
        grown = bool(more)
    return found - {pid}


def commands_of(out):
    """Commands that convert units of `out`, each with the Ray worker that started it."""
    found = {}
    for pid in processes():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "dsconvert.ray.child" in words and "run" in words and str(out) in words:
            found[pid] = int(words[words.index("dsconvert.ray.child") + 1])
    return found


def raylet(node):
    """Process of the raylet of a node, the parent of its workers."""
    [process] = node.all_processes["raylet"]
    return process.process.pid
