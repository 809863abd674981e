"""Works through items on all devices of a machine: in this process, in several, or by actors of Ray.

Every worker first loads what does the work, from a function that can be sent to another process. Items are yielded when
they are done, in any order; an error of the work is raised, and no further item is begun. That the workers can start is
checked when a function is called, before its first item is asked for.
"""

from __future__ import annotations

import concurrent.futures
import functools
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.queues import SimpleQueue
from typing import Any, TypeVar

from tqdm import tqdm

I = TypeVar("I")  # noqa: E741 -- the type of an item
Load = Callable[[], Callable[[I], object]]


def in_process(load: Load[I], items: Sequence[I]) -> Iterator[I]:
    """Works in this process: a thread per device, each of which loads for itself."""
    import jax

    devices = jax.local_devices()[: len(items)]
    if len(devices) <= 1:
        work = load()
        for item in items:
            work(item)
            yield item
        return
    free: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for device in devices:
        free.put(device)
    own = threading.local()

    def work_on_device(item: I) -> None:
        if not hasattr(own, "device"):
            own.device = free.get()
        with jax.default_device(own.device):
            if not hasattr(own, "work"):
                own.work = load()
            own.work(item)

    with concurrent.futures.ThreadPoolExecutor(len(devices)) as pool:
        yield from _as_done(pool, work_on_device, items)


def in_processes(load: Load[I], items: Sequence[I], workers: int) -> Iterator[I]:
    """Works in so many new processes, each on a GPU of its own if there are any; in fewer if there are fewer items.

    Raises:
      ValueError: for more processes than GPUs.
      RuntimeError: if a process dies.
    """
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context, end_with_parent) as pool:
        platform, count = pool.submit(_devices).result()
    most = {"cpu": workers, "gpu": count}.get(platform, 1)
    if workers > most:
        raise ValueError(f"--workers: found {workers}, expected at most {most} on {count} {platform} devices")
    return _in_processes(load, items, min(workers, len(items)), context)


def _in_processes(
    load: Load[I], items: Sequence[I], workers: int, context: multiprocessing.context.SpawnContext
) -> Iterator[I]:
    places = context.SimpleQueue()
    for place in range(workers):
        places.put(place)
    try:
        with concurrent.futures.ProcessPoolExecutor(workers, context, _begin, (places,)) as pool:
            yield from _as_done(pool, functools.partial(_work, load), items)
    except BrokenProcessPool as error:
        raise RuntimeError(
            "--workers: found that one of the processes died, perhaps for want of memory; what was finished is kept, "
            "and the same command resumes"
        ) from error


def on_ray(load: Load[I], items: Sequence[I], workers: int) -> Iterator[I]:
    """Works in so many actors of Ray, with a GPU each where the cluster has any; one that dies is started again.

    Joins the cluster of this machine or of RAY_ADDRESS, or starts one.

    Raises:
      ValueError: without Ray, or for more actors than the cluster has room for.
      RuntimeError: if an actor dies again and again.
    """
    ray = connect_ray()
    cluster = ray.cluster_resources()
    unit = "GPU" if cluster.get("GPU") else "CPU"
    if workers > (most := int(cluster.get(unit, 0))):
        raise ValueError(f"--workers: found {workers}, expected at most {most}, one for each {unit} of the cluster")
    resources = {"num_cpus": 1, "num_gpus": int(unit == "GPU")}
    actor = ray.remote(_Actor).options(max_restarts=3, max_task_retries=3, **resources)
    return _by_actors(ray, lambda: [actor.remote(load) for _ in range(workers)], items)


def _by_actors(ray: Any, start: Callable[[], list[Any]], items: Sequence[I]) -> Iterator[I]:
    actors = start()
    try:
        yield from ray.util.ActorPool(actors).map_unordered(lambda one, item: one.work.remote(item), items)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise RuntimeError(
            f"--runner: found that an actor died ({type(error).__name__}); the same command resumes"
        ) from error
    finally:
        for one in actors:
            ray.kill(one)


def connect_ray(**resources: Any) -> Any:
    """The library Ray, joined to the cluster of this machine or of RAY_ADDRESS, or to one that is started.

    `resources` are those of a cluster that is started. Raises ValueError without the library.
    """
    try:
        import ray
        import ray.util
    except ImportError as error:
        raise ValueError(
            f"--runner: found no library {error.name}, expected it: pip install 'prism_jax[cluster]'"
        ) from error
    if not ray.is_initialized():
        ray.init(log_to_driver=False, **resources)
    return ray


class _Actor:
    """A worker that is an actor."""

    def __init__(self, load: Load[Any]) -> None:
        self._load: Load[Any] = functools.cache(load)

    def work(self, item: Any) -> Any:
        self._load()(item)
        return item


def _as_done(pool: concurrent.futures.Executor, work: Callable[[I], None], items: Sequence[I]) -> Iterator[I]:
    """The items, which no worker returns: a pool waits without end for the rest of a long one where that is killed."""
    try:
        futures = {pool.submit(work, item): item for item in items}
        for future in concurrent.futures.as_completed(futures):
            future.result()
            yield futures[future]
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def _devices() -> tuple[str, int]:
    """The platform and the number of devices, asked for in a process of its own: asking takes the devices' memory."""
    import jax

    return jax.default_backend(), jax.local_device_count()


_LOADED: list[Callable[[Any], object]] = []
"""What a worker process has loaded."""


def _begin(places: SimpleQueue[int]) -> None:
    """Begins a worker process on its own device, which Ctrl-C lets end what it has begun."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import jax

    jax.config.update("jax_cuda_visible_devices", str(places.get()))
    tqdm.set_lock(threading.RLock())  # its own is shared by processes, and a worker that dies leaves that behind


def end_with_parent() -> None:
    """Ends this worker process when the process that started it ends, even by kill -9, and at Ctrl-C silently."""
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:  # else Ctrl-C is ignored here
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker is started by another process"

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _work(load: Load[I], item: I) -> None:
    if not _LOADED:
        _LOADED.append(load())
    _LOADED[0](item)
