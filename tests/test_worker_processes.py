"""Worker processes: what a pool hands over between them and their parent."""

import concurrent.futures
import functools
import multiprocessing
import signal

import pytest

from prism_jax.runs import workers


class OneWay:
    """An item that goes to a worker and not back: of a long one, a worker that is killed could send a part."""

    def __reduce__(self):
        assert multiprocessing.parent_process() is None, "a pool would wait without end for the rest"
        return OneWay, ()


@pytest.mark.parametrize("python", [signal.default_int_handler, signal.SIG_IGN])
def test_ctrl_c_ends_a_worker_without_a_traceback_where_it_is_not_ignored(python):
    context, before = multiprocessing.get_context("spawn"), signal.signal(signal.SIGINT, python)
    try:
        with concurrent.futures.ProcessPoolExecutor(1, context, workers.end_with_parent) as pool:
            found = pool.submit(signal.getsignal, signal.SIGINT).result()
    finally:
        signal.signal(signal.SIGINT, before)
    assert found == (signal.SIG_IGN if python == signal.SIG_IGN else signal.SIG_DFL)


def load():
    return repr


def test_no_worker_sends_its_item_back():
    items = [OneWay(), OneWay()]
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        done = list(workers._as_done(pool, functools.partial(workers._work, load), items))
    assert set(done) == set(items)
