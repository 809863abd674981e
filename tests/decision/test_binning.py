import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_jax.decision.calibration import binning


def edges_of(bins, dtype):
    return binning.bin_edges(np.zeros(1, dtype), None, bins, "equal_width")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bins", [1, 2, 6, 10, 12, 15, 49, 100, 1000])
def test_every_edge_and_its_neighbours_fall_where_the_edges_say(bins, dtype):
    """Multiplication by the number of bins would round some of these into the wrong bin, for example at 10 bins."""
    edges = edges_of(bins, dtype)
    np.testing.assert_array_equal(edges, np.arange(bins + 1, dtype=dtype) / dtype(bins))
    p = np.unique(np.concatenate([edges, np.nextafter(edges, dtype(0)), np.nextafter(edges, dtype(1))]))
    index = binning.bin_index(p, edges, uniform=True)
    expected = np.searchsorted(edges[1:-1], p, side="right")
    np.testing.assert_array_equal(index, expected)
    np.testing.assert_array_equal(
        binning.bin_index(jnp.asarray(p.astype(np.float32)), jnp.asarray(edges_of(bins, np.float32)), uniform=True),
        np.searchsorted(edges_of(bins, np.float32)[1:-1], p.astype(np.float32), side="right"),
    )
    at_edges = np.bincount(binning.bin_index(edges, edges, uniform=True), minlength=bins)
    assert at_edges.tolist() == [1] * (bins - 1) + [2], "each edge opens its bin, and the last bin closes at 1"


@settings(max_examples=200)
@given(st.lists(st.floats(0, 1), min_size=1), st.integers(1, 60), st.sampled_from([np.float32, np.float64]))
def test_bins_partition_the_rows(values, bins, dtype):
    p = np.array(values, dtype)
    edges = edges_of(bins, dtype)
    index = binning.bin_index(p, edges, uniform=True)
    assert np.all((edges[index] <= p) & ((p < edges[index + 1]) | (index == bins - 1)))
    (count,) = binning.bin_sums(p, bins, edges, uniform=True, columns=lambda rows: [None])
    assert count.sum() == p.size


def test_sums_cross_chunks():
    rng = np.random.default_rng(0)
    p, y = rng.random((2, 3 * binning.CHUNK + 17), np.float32)
    edges = edges_of(15, np.float32)
    found = binning.bin_sums(p, 15, edges, uniform=True, columns=lambda rows: [None, p[rows] - y[rows]])
    index = np.searchsorted(edges[1:-1], p, side="right")
    for bin_number in range(15):
        inside = index == bin_number
        assert found[0][bin_number] == inside.sum()
        np.testing.assert_allclose(found[1][bin_number], (p - y)[inside].sum(dtype=np.float64), rtol=1e-9)


def test_equal_mass_bins_hold_equal_numbers_of_distinct_scores():
    p = np.random.default_rng(1).permutation(np.linspace(0, 1, 60))
    edges = binning.bin_edges(p, None, 15, "equal_mass")
    (count,) = binning.bin_sums(p, 15, edges, uniform=False, columns=lambda rows: [None])
    assert count.tolist() == [4] * 15
    assert edges[0] == p.min()
    assert edges[-1] == p.max()


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(1, 8), st.integers(1, 5))
def test_equal_mass_edges_ignore_duplication_and_read_weights_as_repetition(values, bins, times):
    p = np.array(values) / 6
    edges = binning.bin_edges(p, None, bins, "equal_mass")
    np.testing.assert_array_equal(binning.bin_edges(np.tile(p, times), None, bins, "equal_mass"), edges)
    repeats = np.arange(p.size) % 3 + 1
    repeated = binning.bin_edges(np.repeat(p, repeats), None, bins, "equal_mass")
    np.testing.assert_array_equal(binning.bin_edges(p, repeats.astype(float), bins, "equal_mass"), repeated)
