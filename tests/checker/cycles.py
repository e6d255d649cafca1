"""Dependencies between operations, and their cycles."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from tests.checker.facts import Facts
from tests.checker.history import Operation

Node = TypeVar("Node")
Graph = Mapping[Node, Sequence[Node]]


def components(graph: Graph[Node]) -> list[list[Node]]:
    """Return the strongly connected components with more than one node: Tarjan's algorithm, without recursion.

    Args:
        graph: the successors of each node. A node without successors need not be a key.

    Source: R. Tarjan, Depth-first search and linear graph algorithms, SIAM Journal on Computing 1(2), 1972.
    """
    found: list[list[Node]] = []
    number: dict[Node, int] = {}
    lowest: dict[Node, int] = {}
    path: list[Node] = []
    on_path: set[Node] = set()
    for root in graph:
        if root in number:
            continue
        number[root] = lowest[root] = len(number)
        path.append(root)
        on_path.add(root)
        work = [(root, iter(graph[root]))]
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in number:
                    number[successor] = lowest[successor] = len(number)
                    path.append(successor)
                    on_path.add(successor)
                    work.append((successor, iter(graph.get(successor, ()))))
                    break
                if successor in on_path:
                    lowest[node] = min(lowest[node], number[successor])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[node])
                if lowest[node] == number[node]:
                    component: list[Node] = []
                    while not component or component[-1] != node:
                        component.append(path.pop())
                        on_path.discard(component[-1])
                    if len(component) > 1:
                        found.append(component)
    return found


def within(graph: Graph[Node], nodes: Iterable[Node]) -> dict[Node, list[Node]]:
    """Return the graph with these nodes only."""
    kept = set(nodes)
    return {node: [each for each in graph.get(node, ()) if each in kept] for node in kept}


def way(graph: Graph[Node], start: Node, end: Node) -> list[Node]:
    """Return a shortest path, both ends included; empty if there is none."""
    before: dict[Node, Node] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        if node == end:
            path = [node]
            while path[-1] != start:
                path.append(before[path[-1]])
            return path[::-1]
        for successor in graph.get(node, ()):
            if successor not in before and successor != start:
                before[successor] = node
                queue.append(successor)
    return []


def ww(facts: Facts) -> dict[Operation, list[Operation]]:
    """Return the write-write dependencies: A before B if a record of B follows one of A in the log of a key."""
    graph: dict[Operation, list[Operation]] = {}
    for key, log in facts.logs.items():
        last: Operation | None = None
        for offset in log.offsets:
            operation = facts.writer(key, log.values[offset])
            if operation is not None and last is not None and operation is not last:
                graph.setdefault(last, []).append(operation)
            last = operation or last
    return graph


def wr(facts: Facts) -> dict[Operation, list[Operation]]:
    """Return the write-read dependencies: A before B if B received a record of A.

    Operations without sends are left out: nothing depends on them, so that they are in no cycle.
    """
    graph: dict[Operation, list[Operation]] = {}
    for operation in facts.senders:
        writers = {
            writer: None
            for key, records in operation.reads().items()
            for _, value in records
            if (writer := facts.writer(key, value)) is not None and writer is not operation
        }
        for writer in writers:
            graph.setdefault(writer, []).append(operation)
    return graph


def both(first: Graph[Node], second: Graph[Node]) -> dict[Node, list[Node]]:
    """Return the union of two graphs."""
    union = {node: list(successors) for node, successors in first.items()}
    for node, successors in second.items():
        union.setdefault(node, []).extend(successors)
    return union


def cycles(graph: Graph[Node], through: Graph[Node]) -> list[list[Node]]:
    """Return one short cycle for each strongly connected component of `graph` with an edge of `through`.

    Each cycle begins with that edge. An edge from a node to itself is no cycle.
    """
    found: list[list[Node]] = []
    for component in components(graph):
        inside, edges = within(graph, component), within(through, component)
        for node, successors in edges.items():
            others = [each for each in successors if each != node]
            if others:
                found.append([node, *way(inside, others[0], node)[:-1]])
                break
    return found
