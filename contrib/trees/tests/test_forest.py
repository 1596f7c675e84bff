"""Trees of a batch: what a fault of the grader takes with it, and advantages by name."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contrib.trees.maths import Forest
from recorded import check_advantage, random_turns


@given(st.lists(st.tuples(st.integers(-1, 30), st.booleans()), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_in_a_tree_the_paths_through_a_fault_are_removed(nodes):
    parents = [min(parent, k - 1) for k, (parent, _) in enumerate(nodes)]
    valid = [graded for _, graded in nodes]
    expected = [False] * len(nodes)
    for leaf in set(range(len(nodes))) - set(parents):
        path = [leaf]
        while parents[path[-1]] >= 0:
            path.append(parents[path[-1]])
        for node in path:
            expected[node] |= all(valid[k] for k in path)
    zeros = torch.zeros(len(nodes), dtype=torch.int64)
    assert Forest(torch.tensor(parents), zeros, zeros, torch.tensor(valid)).whole_B.tolist() == expected


@pytest.mark.parametrize("name", ["treepo", "treepo_loo"])
def test_advantages_by_name_take_turns_that_share_nothing(name):
    check_advantage(name, random_turns())
