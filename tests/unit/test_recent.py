"""The cache of bounded size: what was set or found last stays."""

from hypothesis import given
from hypothesis import strategies as st

from drkernel.base.files import Recent


@given(st.integers(0, 4), st.lists(st.tuples(st.booleans(), st.integers(0, 6))))
def test_it_keeps_what_was_set_or_found_last(size: int, steps: list[tuple[bool, int]]) -> None:
    cache: Recent[int, int] = Recent(size)
    order: list[int] = []  # the last used at the end
    for number, (sets, key) in enumerate(steps):
        if sets:
            cache[key] = number
        else:
            assert (cache.get(key) is not None) == (key in order)
        if sets or key in order:
            order = [*(other for other in order if other != key), key][-size:] if size else []
        assert len(cache) == len(order)
    assert all(cache.get(key) is not None for key in order)
