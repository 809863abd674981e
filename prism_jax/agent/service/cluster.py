"""Owners of partitions as actors of Ray, and the directory that makes them and replaces those that are lost."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from typing import Any

import ray
from etils import epath

from prism_jax.agent.service.agents import Agents
from prism_jax.agent.service.divided import ANSWER_SECONDS, Handle, LostError, Owner, Owners

NAMESPACE = "prism_jax"
START_SECONDS = 600.0
"""How long owners may take to load."""
LINGER = 60.0
"""How long an owner that has no partitions any more still tells others so."""


class OwnerActor(Owner):
    """An owner that is an actor."""

    async def leave(self) -> None:
        """Ends the process after a while, until which it answers that it has nothing."""
        await asyncio.sleep(LINGER)
        await self.stop()
        ray.actor.exit_actor()


class Actor:
    """An actor as others call it."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    async def call(self, method: str, *arguments: Any) -> Any:
        """See `Handle.call`."""
        try:
            return await getattr(self.actor, method).remote(*arguments)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            raise LostError(type(error).__name__) from None


class Directory:
    """An actor that makes owners, says who has what, and replaces those that are lost."""

    def __init__(
        self,
        load: Callable[[], Agents],
        folder: str,
        waiting: int,
        partitions: int,
        options: dict[str, Any],
        settings: str,
    ) -> None:
        self._load, self._folder, self._waiting, self._partitions = load, folder, waiting, partitions
        self._options, self._settings = options, settings
        self._owners: list[Actor] = []
        self._generation = 0
        self._changing = asyncio.Lock()

    def settings(self) -> str:
        """A hash of what the owners were made with."""
        return self._settings

    async def owners(self) -> Owners:
        """Who has which partitions now."""
        return Owners(self._generation, tuple(self._owners))

    async def scale(self, count: int) -> None:
        """Divides the partitions among so many owners. They change hands while requests are answered."""
        async with self._changing:
            kept, left = self._owners[:count], self._owners[count:]
            new: list[Actor] = []
            try:
                async with asyncio.timeout(START_SECONDS):
                    for _ in range(count - len(kept)):
                        new.append(self._made())
                    await asyncio.gather(*(owner.call("start") for owner in new))
            except BaseException:
                for owner in new:
                    ray.kill(owner.actor)
                raise
            # Those who had partitions let them go first, so that nobody waits for a lease to end.
            old = [owner.call("own", self._share(i, count)) for i, owner in enumerate(kept)]
            await asyncio.gather(*map(_tried, [*old, *(owner.call("own", range(0)) for owner in left)]))
            begun = [owner.call("own", self._share(i, count)) for i, owner in enumerate(new, len(kept))]
            await asyncio.gather(*map(_tried, begun))
            self._owners = kept + new
            self._generation += 1
            for owner in left:
                owner.actor.leave.remote()

    async def lost(self, generation: int, place: int) -> None:
        """Replaces an owner of that generation that somebody got no answer from, if it gives none now either."""
        async with self._changing:
            if generation != self._generation or await _tried(self._owners[place].call("alive")):
                return
            # What it may still do, its leases forbid; and it could hold a file, or what a new one needs of the machine.
            ray.kill(self._owners[place].actor)
            new = self._made()
            try:
                async with asyncio.timeout(START_SECONDS):
                    await new.call("start")
                    await new.call("own", self._share(place, len(self._owners)))
            except BaseException:
                ray.kill(new.actor)
                raise
            self._owners[place] = new
            self._generation += 1

    def _share(self, place: int, count: int) -> range:
        return range(place, self._partitions, count)

    def _made(self) -> Actor:
        actor = ray.remote(OwnerActor).options(max_concurrency=1000, **self._options)
        return Actor(actor.remote(self._load, self._folder, self._waiting))


async def _tried(call: Any) -> bool:
    """Whether a call ends well in half of the time that an answer may take."""
    try:
        await asyncio.wait_for(call, ANSWER_SECONDS / 2)
    except (TimeoutError, LostError):
        return False
    return True


def name_of(folder: epath.PathLike) -> str:
    """The name of the directory of a state's folder."""
    place = str(epath.Path(folder).resolve())
    return f"owners of {hashlib.sha256(place.encode()).hexdigest()[:16]}"


def start_owners(
    load: Callable[[], Agents],
    folder: epath.PathLike,
    *,
    owners: int,
    partitions: int,
    waiting: int,
    resources: dict[str, float],
    settings: str,
    stays: bool,
) -> Actor:
    """Divides a state's partitions among so many owners on the Ray cluster that was joined.

    `load` makes the agents of an owner, in its process, and at most `waiting` requests wait there. Owners that are
    there already stay. `resources` are `num_cpus` and `num_gpus` of each, `settings` a hash of what they are made with,
    and `stays` whether they outlive this process.

    Raises:
      ValueError: if they run with other settings, or cannot be placed; and what `load` raises.
    """
    lifetime = {"lifetime": "detached"} if stays else {}
    actor: Any = (
        ray.remote(Directory)
        .options(
            name=name_of(folder),
            namespace=NAMESPACE,
            get_if_exists=True,
            num_cpus=0,
            max_concurrency=1000,
            **lifetime,
        )
        .remote(load, str(folder), waiting, partitions, {**resources, **lifetime}, settings)
    )
    if ray.get(actor.settings.remote()) != settings:
        raise ValueError(
            f"--state: {folder}: found owners that run with other flags or tenants, expected the same; "
            "--owners=0 ends them"
        )
    try:
        ray.get(actor.scale.remote(owners), timeout=START_SECONDS)
    except TimeoutError:  # here, or of the directory
        free = {name: number for name, number in ray.available_resources().items() if name in ("CPU", "GPU")}
        raise ValueError(
            f"--owners: found no room for {owners} within {START_SECONDS:g} s (free: {free}), expected "
            f"{resources['num_cpus']:g} CPUs and {resources['num_gpus']:g} GPUs for each"
        ) from None
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    return Actor(actor)


def stop_owners(folder: epath.PathLike) -> bool:
    """Ends the owners of a state's partitions; False where there were none."""
    try:
        actor: Any = ray.get_actor(name_of(folder), NAMESPACE)
    except ValueError:
        return False
    handles: tuple[Handle, ...] = ray.get(actor.owners.remote(), timeout=ANSWER_SECONDS).handles
    with contextlib.suppress(ray.exceptions.RayError):  # what is not given back is free when its lease ends
        ray.get(actor.scale.remote(0), timeout=START_SECONDS + ANSWER_SECONDS)  # which may wait for owners that load
    for handle in handles:
        if isinstance(handle, Actor):
            ray.kill(handle.actor)
    ray.kill(actor)
    return True
