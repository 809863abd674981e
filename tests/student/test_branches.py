"""Branches, and the padded lengths of rows."""

import re

import pytest

from prism_jax.student.branches import Branch, bucket


@pytest.mark.parametrize("smallest", [8, 128])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 63, 64, 65, 127, 500, 513, 1025, 4097])
def test_buckets_are_large_enough_and_little_larger(count, smallest):
    assert count <= bucket(count, smallest) < max(count + smallest, 1.25 * count + 1)
    assert bucket(bucket(count, smallest), smallest) == bucket(count, smallest)


def test_the_places_of_a_branch_are_the_ends_of_its_head_and_leaves():
    branch = Branch((5, 6), ((7,), (8, 9)))
    assert [branch.ids[place] for place in branch.marked] == [6, 7, 9]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Branch((1,), ((2,), ())), "branch.leaves[1]: found no token ids, expected at least one"),
        (lambda: Branch((1, 2), places=(2,)), "branch.places: found (2,), expected some indices in [0, 2)"),
        (lambda: Branch((1, 2), places=()), "branch.places: found (), expected some indices in [0, 2)"),
    ],
)
def test_bad_branches_are_named(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()
