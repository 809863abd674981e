"""NVIDIA GPUs that a step can be compiled for: how XLA's compiler describes them, and the peaks of the roofline.

The descriptions are the published ones of XLA (openxla/xla, xla/backends/gpu/target_config/specs), with the fields that
its compiler reads. It has none for the cards in UNDESCRIBED.
"""

from __future__ import annotations

import dataclasses

# Dense bfloat16 FLOP/s by prefix of JAX's device_kind; the longest prefix that matches applies. Where a data sheet
# gives the rate with sparsity, half of it is used.
PEAKS = {
    "NVIDIA A100": 312e12,  # NVIDIA A100 Tensor Core GPU, data sheet
    "NVIDIA H100 PCIe": 756e12,  # NVIDIA H100 Tensor Core GPU, data sheet
    "NVIDIA H100 NVL": 835e12,  # the same, later edition
    "NVIDIA H100": 989e12,  # the same: SXM
    "NVIDIA H200": 989e12,  # NVIDIA H200 Tensor Core GPU, data sheet
    "NVIDIA L4": 121e12,  # NVIDIA L4 Tensor Core GPU, data sheet
    "TPU v4": 275e12,  # cloud.google.com/tpu/docs/v4
    "TPU v5 lite": 197e12,  # cloud.google.com/tpu/docs/v5e
    "TPU v5": 459e12,  # cloud.google.com/tpu/docs/v5p
    "TPU v6 lite": 918e12,  # cloud.google.com/tpu/docs/v6e
}


def peak(device_kind: str) -> float | None:
    """Dense bfloat16 FLOP/s of a kind of device; None if unknown."""
    return next((PEAKS[name] for name in sorted(PEAKS, key=len, reverse=True) if device_kind.startswith(name)), None)


@dataclasses.dataclass(frozen=True)
class Card:
    """A GPU."""

    name: str  # name that CUDA gives it
    memory: int  # bytes of memory
    bandwidth: int  # bytes per second of its memory
    # bytes per second that it sends to the other cards of its node over NVLink, in one direction (data sheet)
    link: int
    host: int  # bytes per second between it and the host over PCIe with 16 lanes, in one direction
    capability: tuple[int, int]  # CUDA's compute capability, major and minor
    cores: int  # number of streaming multiprocessors
    lanes: int  # number of float32 units per multiprocessor
    cache: int  # bytes of the second-level cache
    clock: float  # clock rate in GHz
    shared: tuple[int, int]  # bytes of shared memory per multiprocessor, and per block at most

    @property
    def flops(self) -> float:
        """Peak rate of dense bfloat16 matrix products, in operations per second (data sheet)."""
        return peak(self.name) or 0.0

    def described(self, limit: int) -> str:
        """The description that XLA's compiler reads (a `GpuTargetConfigProto` as text).

        A process may use `limit` bytes. On a present card the compiler gets this number from the allocator; without one
        it takes 80 % of the described memory, so that share of what is written here is the limit.
        """
        major, minor = self.capability
        extension = "ACCELERATED_FEATURES" if major >= 9 else "NONE"
        return f"""
            gpu_device_info {{
              threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
              thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
              block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
              registers_per_core_limit: 65536 registers_per_block_limit: 65536
              shared_memory_per_block: 49152 shared_memory_per_core: {self.shared[0]}
              shared_memory_per_block_optin: {self.shared[1]} core_count: {self.cores} fpus_per_core: {self.lanes}
              memory_bandwidth: {self.bandwidth} l2_cache_size: {self.cache} clock_rate_ghz: {self.clock}
              device_memory_size: {round(limit / 0.8)}
              cuda_compute_capability {{ major: {major} minor: {minor} feature_extension: {extension} }}
            }}
            platform_name: "CUDA"
            dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
            runtime_version {{ major: 12 minor: 9 }}
            device_description_str: "{self.name}"
        """


_A100 = Card(
    "NVIDIA A100-SXM4-80GB",
    memory=85_100_068_864,
    bandwidth=2_039_040_000_000,
    link=300_000_000_000,
    host=31_500_000_000,
    capability=(8, 0),
    cores=108,
    lanes=64,
    cache=41_943_040,
    clock=1.41,
    shared=(167_936, 166_912),
)
_H100 = Card(
    "NVIDIA H100 80GB HBM3",
    memory=84_942_979_072,
    bandwidth=3_352_320_000_000,
    link=450_000_000_000,
    host=63_000_000_000,
    capability=(9, 0),
    cores=132,
    lanes=128,
    cache=52_428_800,
    clock=1.98,
    shared=(233_472, 232_448),
)

CARDS = {
    "a100-40gb": dataclasses.replace(
        _A100, name="NVIDIA A100-SXM4-40GB", memory=42_331_013_120, bandwidth=1_555_200_000_000
    ),
    "a100-80gb": _A100,
    "h100": _H100,
    "h200": dataclasses.replace(
        _H100, name="NVIDIA H200 141GB HBM3e", memory=151_397_597_184, bandwidth=4_800_000_000_000
    ),
}
UNDESCRIBED = ("l4", "rtx4090")


def card(target: str) -> Card:
    """The card of a target's name; raises ValueError for a name that is not in CARDS."""
    if target in UNDESCRIBED:
        raise ValueError(
            f"target: found {target!r}, which is not available: XLA has no description of this card for its compiler; "
            f"expected one of {', '.join(CARDS)}, or --device_memory for an estimate"
        )
    if target not in CARDS:
        raise ValueError(f"target: found {target!r}, expected one of {', '.join(CARDS)}")
    return CARDS[target]
