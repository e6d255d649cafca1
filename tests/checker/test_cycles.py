"""Strongly connected components and short cycles, compared with a search through all pairs."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.checker.cycles import components, cycles, way

GRAPHS = st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=4), max_size=10)
Graph = Mapping[int, Sequence[int]]


def reach(graph: Graph, start: int) -> set[int]:
    found: set[int] = set()
    todo = [start]
    while todo:
        for each in graph.get(todo.pop(), ()):
            if each not in found:
                found.add(each)
                todo.append(each)
    return found


@given(GRAPHS)
def test_components_are_the_nodes_that_reach_each_other(graph: Graph) -> None:
    nodes = set(graph).union(*graph.values())
    reached = {node: reach(graph, node) for node in nodes}
    expected = {
        frozenset({node, *(each for each in reached[node] if node in reached[each])})
        for node in nodes
        if any(each != node and node in reached[each] for each in reached[node])
    }
    assert {frozenset(component) for component in components(graph)} == expected


@given(GRAPHS, st.integers(0, 9), st.integers(0, 9))
def test_a_way_follows_edges(graph: Graph, start: int, end: int) -> None:
    found = way(graph, start, end)
    assert bool(found) == (start == end or end in reach(graph, start))
    assert all(after in graph[before] for before, after in pairwise(found))


@given(GRAPHS)
def test_a_cycle_follows_edges_and_begins_with_the_wanted_one(graph: Graph) -> None:
    wanted = {node: successors[:1] for node, successors in graph.items()}
    for cycle in cycles(graph, wanted):
        assert all(after in graph[before] for before, after in pairwise([*cycle, cycle[0]]))
        assert cycle[1] in wanted[cycle[0]]
        assert len(cycle) == len(set(cycle))


def test_a_long_chain_needs_no_recursion() -> None:
    count = 100_000
    chain = {node: [node + 1] for node in range(count)}
    assert components(chain) == []
    chain[count] = [0]
    (component,) = components(chain)
    assert len(component) == count + 1
