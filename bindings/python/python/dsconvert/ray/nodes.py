"""Nodes of the cluster, and a check that each of them can convert."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..errors import UsageError
from .requirement import import_optional
from .shared_directory import Nonce

# Seconds for a node to start a worker process, install what `ship` provides, and answer.
ANSWER_SECONDS = 180.0
# Upper limit of the default of `num_cpus`.
MAX_DEFAULT_CPUS = 8


class Node(NamedTuple):
    """A node that is alive."""

    id: str
    name: str
    cpus: float


class Answer(NamedTuple):
    """Answer of a node. `problem` is set if the node cannot convert."""

    build: str | None
    problem: str | None


def nodes() -> list[Node]:
    """Returns the nodes that are alive and have CPUs; a head node often has none."""
    listed = [
        Node(
            node["NodeID"],
            f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']}, node {node['NodeID'][:8]})",
            node["Resources"].get("CPU", 0.0),
        )
        for node in import_optional("ray").nodes()
        if node["Alive"]
    ]
    return [node for node in listed if node.cpus > 0]


def default_cpus(found: Sequence[Node]) -> int:
    """Returns the CPUs of a task: those of the smallest node, at most 8."""
    return max(1, min([MAX_DEFAULT_CPUS, *(int(node.cpus) for node in found)]))


def slots(found: Sequence[Node], num_cpus: float) -> int:
    """Returns the number of tasks that these nodes can execute at the same time."""
    return sum(int(node.cpus // num_cpus) for node in found)


def check_nodes(nonce: Nonce, build: str, num_cpus: float) -> None:
    """Makes every node that could get a task read the nonce and report its build of dsconvert.

    Raises a `UsageError` that names the first node that cannot convert.
    """
    ray = import_optional("ray")
    strategies = import_optional("ray.util.scheduling_strategies")
    probe = ray.remote(num_cpus=0, max_retries=1)(_probe())
    node_of = {}
    for node in nodes():
        if node.cpus >= num_cpus:
            here = strategies.NodeAffinitySchedulingStrategy(node.id, soft=False)
            node_of[probe.options(scheduling_strategy=here).remote(nonce.path, nonce.value)] = node
    done, late = ray.wait(list(node_of), num_returns=len(node_of), timeout=ANSWER_SECONDS) if node_of else ([], [])
    alive = {node.id for node in nodes()}
    for answer in late:
        ray.cancel(answer)
        if node_of[answer].id in alive:
            raise _unfit(node_of[answer].name, f"it did not answer within {ANSWER_SECONDS:.0f} s")
    for answer in done:
        try:
            found = Answer(*ray.get(answer))
        except ray.exceptions.RayError as error:
            if node_of[answer].id not in alive:
                # The node has left the cluster in the meantime.
                continue
            raise _unfit(node_of[answer].name, str(error)) from error
        _check(node_of[answer].name, found, build)


def _probe() -> Callable[[str, str], tuple[str | None, str | None]]:
    """Returns a function that even a node without dsconvert can execute: nested functions are pickled by value."""

    def probe(path: str, value: str) -> tuple[str | None, str | None]:
        try:
            from dsconvert.ray.build_id import build_id
            from dsconvert.ray.shared_directory import Nonce
        except ImportError as error:
            return None, f"dsconvert cannot be imported there: {error}"
        return build_id(), Nonce(path, value).problem()

    return probe


def _check(name: str, found: Answer, build: str) -> None:
    if found.build is None:
        raise _unfit(
            name, str(found.problem), "install the same wheel on every node, or ship it with ship='package'"
        )
    if found.build != build:
        raise _unfit(
            name,
            f"its build of dsconvert ({found.build[:12]}) differs from that of the driver ({build[:12]})",
            "install the same wheel on every node, or ship it with ship='package'",
        )
    if found.problem is not None:
        raise _unfit(
            name,
            f"it does not see the output directory of the driver: {found.problem}",
            "mount the same file system under the same path on every node",
        )


def check_this_node(nonce: Nonce, build: str) -> None:
    """Checks the node of the running task in the same way, because it may have joined after `check_nodes`."""
    from .build_id import build_id

    here: Any = import_optional("ray").get_runtime_context()
    name = f"node {here.get_node_id()[:8]}"
    mine = build_id()
    _check(name, Answer(mine, nonce.problem() if mine == build else None), build)


def _unfit(name: str, problem: str, remedy: str | None = None) -> UsageError:
    return UsageError(f"Ray node {name} cannot convert: {problem}", remedy=remedy)
