"""The search for the largest batch, against memory that is known exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_magic.check import fit

LIMIT = 16_000


def machine(fixed, each, asked, *, tells=True):
    def probe(size):
        asked.append(size)
        needed = fixed + each * size
        return fit.Size(needed <= LIMIT, needed if tells else None)

    return probe


@given(st.integers(0, 8000), st.integers(1, 300), st.integers(1, 4096))
def test_the_answer_fits_and_hardly_more_would(fixed, each, start):
    asked = []
    found = fit.largest(machine(fixed, each, asked), start, LIMIT)
    exact = (LIMIT - fixed) // each
    assert len(asked) <= fit.MOST_PROBES
    assert len(set(asked)) == len(asked)
    if found.best is not None:
        assert fixed + each * found.best <= LIMIT
        assert found.best >= min(exact, exact * (1 - 1 / 32) - 1)


def test_a_refusal_that_tells_no_size_is_searched_by_halves():
    asked = []
    found = fit.largest(machine(1000, 100, asked, tells=False), 64, LIMIT)
    assert 100 < found.best <= 150


def test_nothing_fits():
    asked = []
    assert fit.largest(machine(LIMIT + 1, 10, asked), 8, LIMIT).best is None


@pytest.mark.parametrize("fits", [True, False])
def test_a_name_that_changes_nothing_is_noticed(fits):
    found = fit.largest(lambda _: fit.Size(fits, 500), 32, LIMIT)
    assert not found.matters
    assert len(found.tried) == 2
