"""The training state, the jitted training step, which donates it, and the gradient norm of each loss term.

The gradient is computed from the whole batch at once or accumulated over microbatches. Every term of the loss is
sum(numerators) / sum(denominators) over the whole batch. The denominators do not depend on the parameters, so they are
summed first. Each microbatch then adds the gradient of its numerators divided by these sums. The result is the gradient
of the batch, even if labels and tokens are distributed unevenly over microbatches.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, PRNGKeyArray

from prism_jax.student import sharding
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.prompting.packing import Packed, Sizes
from prism_jax.student.qwen3 import Params, Qwen3
from prism_jax.student.scoring.slots import Slots
from prism_jax.training.optimization.frozen import Partition
from prism_jax.training.optimization.objective import TERMS, Objective, Terms
from prism_jax.training.optimization.optimizer import Optimizer, OptimizerState, schedule
from prism_jax.training.run_config import TrainingConfig


class TrainState(NamedTuple):
    """Everything that training changes."""

    step: Int[Array, ""]  # number of completed updates
    params: Params
    optimizer: OptimizerState  # for the trained parameters only


Key = PRNGKeyArray | None
Metrics = dict[str, Float[Array, ""]]
Step = Callable[[TrainState, Packed], tuple[TrainState, Metrics]]


def abstract_state(model: Qwen3, config: TrainingConfig, mesh: Mesh) -> TrainState:
    """Shapes, dtypes and shardings of the state; allocates nothing."""
    shapes = jax.eval_shape(lambda: _fresh(model, config, jax.random.key(0)))
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=_place(path, leaf, mesh)), shapes
    )


def init_state(model: Qwen3, config: TrainingConfig, mesh: Mesh, start: PRNGKeyArray | Params) -> TrainState:
    """A fresh state, created directly on the mesh from a random key, or from initial parameters, which are donated.

    The initial parameters of a student with adapters are those of its base, and may hold adapters, too.
    """
    placed = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(model, config, mesh))
    donated = 0 if isinstance(start, dict) else ()
    return jax.jit(lambda start: _fresh(model, config, start), out_shardings=placed, donate_argnums=donated)(start)


def _fresh(model: Qwen3, config: TrainingConfig, start: PRNGKeyArray | Params) -> TrainState:
    params = start if isinstance(start, dict) else model.init(start)
    if model.lora.rank:
        params = model.adapted(params, jax.random.key(config.seed))
    trained = Partition.of(model, config.frozen).split(params)
    return TrainState(jnp.zeros((), jnp.int32), params, Optimizer(config).init(trained))


def saved_part(state: TrainState, model: Qwen3) -> TrainState:
    """What a checkpoint holds of a state, or of its shapes: all of it but the base of adapters."""
    return state._replace(params=model.own(state.params))


def _place(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct, mesh: Mesh) -> NamedSharding:
    """Sharding of a leaf: moments and masters like their parameter; factored moments are small and replicated."""
    name = sharding.path_of(path)
    if leaf.size == 1 or re.search(r"/v_(row|col)/", name):
        return NamedSharding(mesh, PartitionSpec())
    return NamedSharding(mesh, sharding.partition_spec(name, leaf.ndim))


@dataclasses.dataclass(frozen=True)
class StepShape:
    """Everything on which a training step depends."""

    objective: Objective  # what it minimises, and for which student
    training: TrainingConfig  # how it updates; epochs are converted into steps (`TrainingConfig.over`)
    row: Packed  # a packed row of the largest sizes that it may receive
    mesh: Mesh  # the devices

    @property
    def slots(self) -> Slots:
        """The student and the tokens of its two answers."""
        return self.objective.slots

    @property
    def student(self) -> StudentConfig:
        """The architecture of the student, and how it runs."""
        return self.slots.model.config

    @property
    def partition(self) -> Partition:
        """The trained and the frozen parameters."""
        return Partition.of(self.slots.model, self.training.frozen)

    @property
    def state(self) -> TrainState:
        """Shapes, dtypes and shardings of the state (`abstract_state`)."""
        return abstract_state(self.slots.model, self.training, self.mesh)

    @property
    def batch(self) -> Packed:
        """Shapes and shardings of one batch, as the step receives it."""
        where = NamedSharding(self.mesh, sharding.BATCH)

        def abstract_column(column: Any, dtype: Any, *more: int) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((self.training.batch, *np.shape(column), *more), dtype, sharding=where)

        batch = jax.tree.map(lambda column: abstract_column(column, column.dtype), self.row)
        if not self.training.reuse_frozen:
            return batch
        of_frozen = {
            name: abstract_column(getattr(self.row, name), self.student.dtype, self.student.hidden_dim)
            for name in ("trunk", "tokens")
        }
        return batch._replace(**of_frozen)

    @property
    def size(self) -> Sizes:
        """The sizes of the row."""
        row, slots = self.row, self.slots
        decisions = len(row.need_slot), len(row.accept_slot), len(row.response_target)
        return Sizes(len(row.trunk), len(row.tokens), slots.window, *decisions, slots.visible)

    def running(self, **changes: Any) -> StepShape:
        """The same step with other settings of the student, such as `remat`."""
        model = dataclasses.replace(self.slots.model, config=dataclasses.replace(self.student, **changes))
        slots = dataclasses.replace(self.slots, model=model)
        return dataclasses.replace(self, objective=dataclasses.replace(self.objective, slots=slots))


def make_step(shape: StepShape) -> Step:
    """The jitted training step, which donates the state passed to it; a remat policy still `auto` is an error."""
    if shape.student.remat == "auto":
        raise ValueError("student.remat: found 'auto', expected a policy; memory.fitted chooses one")
    optimizer, rate = Optimizer(shape.training), schedule(shape.training)
    partition, gradient_of = shape.partition, make_gradient(shape)
    placed = jax.tree.map(lambda leaf: leaf.sharding, shape.state)

    def step(state: TrainState, batch: Packed) -> tuple[TrainState, Metrics]:
        gradient, metrics = gradient_of(state.params, batch, state.step)
        # The norm and the moments of a bfloat16 gradient are computed in float32.
        gradient = jax.tree.map(lambda g: g.astype(jnp.float32), gradient)
        metrics |= {"gradient_norm": optax.global_norm(gradient), "learning_rate": rate(state.step)}
        trained, optimizer_state = optimizer.update(
            gradient, state.optimizer, partition.split(state.params), state.step
        )
        return TrainState(state.step + 1, partition.merge(state.params, trained), optimizer_state), metrics

    rows = NamedSharding(shape.mesh, sharding.BATCH)
    return jax.jit(step, donate_argnums=0, in_shardings=(placed, rows), out_shardings=(placed, None))


Shares = Callable[[TrainState, Packed], dict[str, Float[Array, ""]]]


def make_shares(shape: StepShape) -> Shares:
    """Makes a jitted function of state and batch that runs one backward pass per term with a positive weight.

    For each term it returns `gradient_norm_TERM`, the global norm of the gradient of that weighted term with respect to
    the trained parameters, before clipping, and `gradient_share_TERM`, its share of the sum of these norms. The norm of
    the total gradient is at most that sum, because terms may have opposing gradients.
    """
    objective = shape.objective
    gradients = {
        name: make_gradient(dataclasses.replace(shape, objective=objective.alone(name)))
        for name in TERMS
        if getattr(objective.loss, name) > 0
    }

    def norm(gradient_of: Gradient, state: TrainState, batch: Packed) -> Float[Array, ""]:
        gradient, _ = gradient_of(state.params, batch, state.step)
        return optax.global_norm(jax.tree.map(lambda g: g.astype(jnp.float32), gradient))

    def shares(state: TrainState, batch: Packed) -> dict[str, Float[Array, ""]]:
        norms = {name: norm(gradient_of, state, batch) for name, gradient_of in gradients.items()}
        whole = jnp.maximum(sum(norms.values(), jnp.zeros(())), jnp.finfo(jnp.float32).tiny)
        return {f"gradient_norm_{name}": value for name, value in norms.items()} | {
            f"gradient_share_{name}": value / whole for name, value in norms.items()
        }

    return jax.jit(shares)


Gradient = Callable[[Params, Packed, Int[Array, ""]], tuple[Params, Metrics]]


def make_gradient(shape: StepShape) -> Gradient:
    """Makes a function of parameters, batch and number of completed steps that returns the gradient and the metrics.

    It differentiates with respect to the trained parameters only. Without microbatches (`training.accumulation` = 1)
    the gradients have the dtypes of the parameters. With some they have at least float32, because small terms are lost
    when a sum is accumulated in bfloat16.
    """
    training, partition, depth = shape.training, shape.partition, shape.training.accumulation
    lora, slots = shape.slots.model.lora, dataclasses.replace(shape.slots, frozen=partition.depth)
    objective = dataclasses.replace(shape.objective, slots=slots)

    def one_batch(params: Params, batch: Packed, width: Float[Array, ""], key: Key) -> tuple[Params, Metrics]:
        def whole(trained: Params) -> tuple[Array, Metrics]:
            return objective.total(objective.sums(partition.merge(params, trained), batch, width, key))

        return jax.grad(whole, has_aux=True)(partition.split(params))

    def microbatches(params: Params, batch: Packed, width: Float[Array, ""], key: Key) -> tuple[Params, Metrics]:
        whole, trained = objective.denominators(batch), partition.split(params)

        def share(trained: Params, part: Packed, key: Key) -> tuple[Array, Terms]:
            sums = objective.sums(partition.merge(params, trained), part, width, key)
            return objective.total(sums.over(whole))[0], sums

        def add(so_far: Any, part: tuple[Packed, Key]) -> tuple[Any, None]:
            return jax.tree.map(operator.add, so_far, jax.grad(share, has_aux=True)(trained, *part)), None

        zeros = jax.tree.map(lambda leaf: jnp.zeros_like(leaf, jnp.promote_types(leaf.dtype, jnp.float32)), trained)
        nothing = (zeros, jax.tree.map(jnp.zeros_like, whole))
        keys = None if key is None else jax.random.split(key, depth)
        (gradient, sums), _ = jax.lax.scan(add, nothing, (split(batch, depth, shape.mesh), keys))
        return gradient, objective.total(sums)[1]

    def gradient(params: Params, batch: Packed, step: Int[Array, ""]) -> tuple[Params, Metrics]:
        width, key = objective.width(step, training.steps), None
        if lora.rank and lora.dropout:  # drawn by the seed and the step alone
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(training.seed), step), 1)
        with jax.sharding.use_abstract_mesh(shape.mesh.abstract_mesh):
            of_trained, metrics = (one_batch if depth == 1 else microbatches)(params, batch, width, key)
        return of_trained, metrics | {"gate_width": width}

    return gradient


def split(batch: Packed, depth: int, mesh: Mesh) -> Packed:
    """Splits a batch into microbatches along a new leading axis.

    Microbatch i holds rows i, i + depth, i + 2 depth, ..., so that no row moves to another device.
    """

    def split_column(column: Array) -> Array:
        parts = column.reshape(len(column) // depth, depth, *column.shape[1:]).swapaxes(0, 1)
        return jax.lax.with_sharding_constraint(parts, NamedSharding(mesh, PartitionSpec(None, *sharding.BATCH)))

    return jax.tree.map(split_column, batch)
