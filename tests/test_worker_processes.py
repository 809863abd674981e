"""Worker processes: what a pool hands over between them and their parent."""

import concurrent.futures
import functools
import multiprocessing
import signal

from prism_jax.runs import workers


class OneWay:
    """An item that goes to a worker and not back: of a long one, a worker that is killed could send a part."""

    def __reduce__(self):
        assert multiprocessing.parent_process() is None, "a pool would wait without end for the rest"
        return OneWay, ()


def test_a_worker_leaves_ctrl_c_to_its_parent():
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context, workers.end_with_parent) as pool:
        assert pool.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN


def load():
    return repr


def test_no_worker_sends_its_item_back():
    items = [OneWay(), OneWay()]
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        done = list(workers._as_done(pool, functools.partial(workers._work, load), items))
    assert set(done) == set(items)
