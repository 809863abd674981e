"""Qwen3's block (arXiv 2505.09388): RMSNorm, rotary grouped-query attention with q/k norm, SwiGLU.

Dimensions: B batch, L length, l positions that the block computes outputs for (L unless a caller keeps fewer), D hidden
width, N query heads, K key/value heads, H head width, h = H / 2, F inner width of the feed-forward layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int, PRNGKeyArray

from prism_jax.student.lora import Adapter, LoraConfig
from prism_jax.student.model_config import StudentConfig
from prism_jax.student.products import Compute, product

# Attention of q [B, l, N, H] over k and v [B, L, K, H], and over any cache that the function holds; gives [B, l, N, H].
Attend = Callable[[Array, Array, Array], Array]

# Selects the positions that the block computes outputs for: [B, L, ...] to [B, l, ...].
Keep = Callable[[Array], Array]


def keep_all(x: Array) -> Array:
    """Keeps all positions."""
    return x


class Rotary(NamedTuple):
    """Cosines and sines of the rotary embedding at each position, one per pair of dimensions of a head; float32."""

    cos: Float[Array, "B L h"]
    sin: Float[Array, "B L h"]


class RMSNorm(nnx.Module):
    """Root-mean-square norm in float32; the result is cast to the input's dtype before the weight, as in Qwen3."""

    def __init__(self, size: int, config: StudentConfig):
        self.weight = nnx.Param(jnp.ones((size,), config.param_dtype))
        self.epsilon = config.norm_epsilon

    def __call__(self, x: Float[Array, "*rest d"]) -> Float[Array, "*rest d"]:
        """Normalises the last axis."""
        x32 = x.astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + self.epsilon)
        return (x32 * scale).astype(x.dtype) * self.weight[...].astype(x.dtype)


class Linear(nnx.Module):
    """A matrix product without bias, with a low-rank adapter or without; the kernel is [in, out].

    `joined` is that of a block, whose products have a rounded copy of the kernel where the config computes in bfloat16.
    """

    def __init__(
        self,
        inner: int,
        outer: int,
        config: StudentConfig,
        rngs: nnx.Rngs,
        lora: LoraConfig | None = None,
        joined: bool = False,
    ):
        init = jax.nn.initializers.normal(config.initializer_range)
        self.kernel = nnx.Param(init(rngs.params(), (inner, outer), config.param_dtype))
        self.lora = None if lora is None else Adapter(inner, outer, lora, rngs)
        self.compute = config.compute
        copied = joined and config.compute == "bfloat16"
        self.rounded = nnx.Param(self.kernel[...].astype(jnp.bfloat16)) if copied else None

    def __call__(self, x: Float[Array, "*rest i"], key: PRNGKeyArray | None = None) -> Float[Array, "*rest o"]:
        """Computes x @ kernel, plus the adapter's product, in the dtype of x; a key is for the adapter's dropout."""
        # Flattened, because the backward pass of a product with several leading axes is far slower on CPU.
        flat = x.reshape(-1, x.shape[-1])
        out = product(flat, self.kernel[...], self.compute, None if self.rounded is None else self.rounded[...])
        if self.lora is not None:
            out += self.lora(flat, key)
        return out.reshape(*x.shape[:-1], out.shape[-1])


def linears(
    sizes: Mapping[str, tuple[int, int]],
    config: StudentConfig,
    rngs: nnx.Rngs,
    lora: LoraConfig | None,
    joined: bool,
) -> tuple[Linear, ...]:
    """The products of a part of a block by name, with an adapter for each that `lora` targets."""
    targets = lora.targets if lora is not None and lora.rank else ()
    return tuple(
        Linear(inner, outer, config, rngs, lora if name in targets else None, joined)
        for name, (inner, outer) in sizes.items()
    )


def drawn(key: PRNGKeyArray | None, count: int) -> tuple[PRNGKeyArray | None, ...]:
    """One key for each of `count` products, from that of a block; without one, none."""
    return (None,) * count if key is None else tuple(jax.random.split(key, count))


def rotary_tables(positions_BxL: Int[Array, "B L"], head_dim: int, theta: float) -> Rotary:
    """Computes the tables of the rotary embedding (Su et al., arXiv 2104.09864) with base `theta`."""
    inverse = theta ** (-jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)
    angles = positions_BxL[..., None].astype(jnp.float32) * inverse
    direct = lambda angles: (jnp.cos(angles), jnp.sin(angles))  # noqa: E731
    return Rotary(*jax.lax.platform_dependent(angles, cpu=_cos_sin_in_a_loop, default=direct))


def _cos_sin_in_a_loop(angles: Float[Array, "B L h"]) -> tuple[Float[Array, "B L h"], Float[Array, "B L h"]]:
    """The same values; without the loop, XLA on CPU would recompute both in every rotation of every head and block."""
    tables = jax.lax.map(lambda even: jax.lax.cond(even, jnp.cos, jnp.sin, angles), jnp.array([True, False]))
    return tables[0], tables[1]


def rotate(x: Float[Array, "B L n H"], rotary: Rotary) -> Float[Array, "B L n H"]:
    """Rotates each head by its position, pairing dimension i with i + H/2 (the Hugging Face layout)."""
    low, high = jnp.split(x, 2, axis=-1)
    cos, sin = (table[:, :, None].astype(x.dtype) for table in rotary)
    # Each half is computed separately: a concatenation inside the sum would leave a CPU's vector units idle.
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


class Attention(nnx.Module):
    """Grouped-query attention with rotary positions and, in Qwen3, a norm of every query and key head."""

    def __init__(self, config: StudentConfig, rngs: nnx.Rngs, lora: LoraConfig | None = None, joined: bool = False):
        c = config
        width, heads, keys = c.hidden_dim, c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        to_heads, to_keys, back = (width, heads), (width, keys), (heads, width)
        if joined:
            sizes = {"qkv_proj": (width, heads + 2 * keys), "o_proj": back}
            self.qkv_proj, self.o_proj = linears(sizes, c, rngs, lora, joined)
            self.qk_norm = RMSNorm(c.head_dim, c) if c.qk_norm else None
        else:
            sizes = {"q_proj": to_heads, "k_proj": to_keys, "v_proj": to_keys, "o_proj": back}
            self.q_proj, self.k_proj, self.v_proj, self.o_proj = linears(sizes, c, rngs, lora, joined)
            self.q_norm = RMSNorm(c.head_dim, c) if c.qk_norm else None
            self.k_norm = RMSNorm(c.head_dim, c) if c.qk_norm else None
        self.num_heads, self.num_kv_heads, self.head_dim, self.joined = c.num_heads, c.num_kv_heads, c.head_dim, joined

    def __call__(
        self,
        x_BxLxD: Float[Array, "B L D"],
        rotary: Rotary,
        attend: Attend,
        keep: Keep = keep_all,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "B l D"]:
        """Projects to rotated queries, rotated keys and values, calls `attend`, and projects back.

        Only the positions that `keep` selects have queries.
        """
        keys = drawn(key, 4)
        if self.joined:
            out = attend(*self._projected_at_once(x_BxLxD, rotary, keep))
        else:
            out = attend(*self._projected(x_BxLxD, rotary, keep, keys))
        joined = out.reshape(*out.shape[:2], self.num_heads * self.head_dim)
        return checkpoint_name(self.o_proj(joined, keys[3]), "output")

    def _projected(
        self, x_BxLxD: Float[Array, "B L D"], rotary: Rotary, keep: Keep, keys: tuple[PRNGKeyArray | None, ...]
    ) -> tuple[Array, Array, Array]:
        """Rotated queries of the kept positions, rotated keys, and values."""
        batch, length, _ = x_BxLxD.shape
        q = self.q_proj(keep(x_BxLxD), keys[0])
        k, v = self.k_proj(x_BxLxD, keys[1]), self.v_proj(x_BxLxD, keys[2])
        q, k, v = (checkpoint_name(x, name) for x, name in ((q, "query"), (k, "key"), (v, "value")))
        q = q.reshape(batch, -1, self.num_heads, self.head_dim)
        k, v = (x.reshape(batch, length, self.num_kv_heads, self.head_dim) for x in (k, v))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        return rotate(q, Rotary(keep(rotary.cos), keep(rotary.sin))), rotate(k, rotary), v

    def _projected_at_once(
        self, x_BxLxD: Float[Array, "B L D"], rotary: Rotary, keep: Keep
    ) -> tuple[Array, Array, Array]:
        """The same by one product, one norm and one rotation, which take all positions' queries, too."""
        heads = self.qkv_proj(x_BxLxD).reshape(*x_BxLxD.shape[:2], -1, self.head_dim)
        both, v = jnp.split(heads, [self.num_heads + self.num_kv_heads], axis=2)
        both = rotate(both if self.qk_norm is None else self.qk_norm(both), rotary)
        q, k = jnp.split(both, [self.num_heads], axis=2)
        kept = keep(q.reshape(*q.shape[:2], -1))
        return kept.reshape(*kept.shape[:2], *q.shape[2:]), k, v


class SwiGLU(nnx.Module):
    """The gated feed-forward layer (arXiv 2002.05202)."""

    def __init__(self, config: StudentConfig, rngs: nnx.Rngs, lora: LoraConfig | None = None, joined: bool = False):
        width, inner = config.hidden_dim, config.mlp_dim
        if joined:
            sizes = {"gate_up_proj": (width, 2 * inner), "down_proj": (inner, width)}
            self.gate_up_proj, self.down_proj = linears(sizes, config, rngs, lora, joined)
        else:
            sizes = {"gate_proj": (width, inner), "up_proj": (width, inner), "down_proj": (inner, width)}
            self.gate_proj, self.up_proj, self.down_proj = linears(sizes, config, rngs, lora, joined)
        self.rematerialised, self.joined = config.remat != "none", joined

    def __call__(self, x: Float[Array, "B L D"], key: PRNGKeyArray | None = None) -> Float[Array, "B L D"]:
        """Computes down(silu(gate(x)) * up(x))."""
        if self.joined:
            return self.down_proj(_gated(*jnp.split(self.gate_up_proj(x), 2, axis=-1)))
        keys = drawn(key, 3)
        # Without rematerialisation of blocks the gate alone is recomputed: cheaper than storing the sigmoid's inputs.
        gated = _gated if self.rematerialised else jax.checkpoint(_gated)
        gate, up = checkpoint_name(self.gate_proj(x, keys[0]), "gate"), checkpoint_name(self.up_proj(x, keys[1]), "up")
        return self.down_proj(gated(gate, up), keys[2])


def _gated(gate: Float[Array, "B L F"], up: Float[Array, "B L F"]) -> Float[Array, "B L F"]:
    return jax.nn.silu(gate) * up


class Block(nnx.Module):
    """One pre-norm transformer block; `joined` takes parameters as `join` returns them."""

    def __init__(self, config: StudentConfig, rngs: nnx.Rngs, lora: LoraConfig | None = None, joined: bool = False):
        self.input_norm = RMSNorm(config.hidden_dim, config)
        self.attention = Attention(config, rngs, lora, joined)
        self.post_norm = RMSNorm(config.hidden_dim, config)
        self.mlp = SwiGLU(config, rngs, lora, joined)

    def __call__(
        self,
        x: Float[Array, "B L D"],
        rotary: Rotary,
        attend: Attend,
        keep: Keep = keep_all,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "B l D"]:
        """Adds attention, then the feed-forward layer, to the residual stream of the positions that `keep` selects.

        A key is for the dropout of adapters.
        """
        keys = drawn(key, 2)
        with jax.named_scope("attention"):
            x = keep(x) + self.attention(self.input_norm(x), rotary, attend, keep, keys[0])
        with jax.named_scope("mlp"):
            return x + self.mlp(self.post_norm(x), keys[1])


def join(block: Mapping[str, Any], compute: Compute) -> dict[str, Any]:
    """The parameters of a block for inference: products of the same input become one, and norms of heads, too.

    Kernels are joined along their last axis, queries, keys and values, and gate and up. With a `compute` of bfloat16
    each has a rounded copy beside it: a single row, bound by memory, is faster with the kernel itself.
    """
    attention, mlp = dict(block["attention"]), dict(block["mlp"])

    def joined(part: dict[str, Any], *names: str) -> dict[str, Any]:
        return {"kernel": jnp.concatenate([part.pop(name)["kernel"] for name in names], axis=-1)}

    if "q_norm" in attention:
        weights = [attention.pop(name)["weight"] for name in ("q_norm", "k_norm")]
        counts = [attention[name]["kernel"].shape[-1] // weights[0].size for name in ("q_proj", "k_proj")]
        rows = [jnp.broadcast_to(w, (count, w.size)) for w, count in zip(weights, counts, strict=True)]
        attention["qk_norm"] = {"weight": jnp.concatenate(rows)}
    attention["qkv_proj"] = joined(attention, "q_proj", "k_proj", "v_proj")
    mlp["gate_up_proj"] = joined(mlp, "gate_proj", "up_proj")
    if compute == "bfloat16":
        for part, name in ((attention, "qkv_proj"), (attention, "o_proj"), (mlp, "gate_up_proj"), (mlp, "down_proj")):
            part[name] = {**part[name], "rounded": part[name]["kernel"].astype(jnp.bfloat16)}
    return {**block, "attention": attention, "mlp": mlp}
