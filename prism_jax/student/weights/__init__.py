"""Loading and saving the student's weights: Hugging Face directories in both directions, GGUF files in.

Belongs here: the table of tensor names, reading a checkpoint's architecture, placing tensors on devices, writing them.
Does not belong here: tokenizers, prompts, training state; downloading. Pickle files are never opened.
"""

from prism_jax.student.weights.gguf_in import load_gguf
from prism_jax.student.weights.hf_out import save_hf
from prism_jax.student.weights.pretrained import Pretrained
from prism_jax.student.weights.safetensors_in import load_hf
from prism_jax.student.weights.source import load, read_config

__all__ = ["Pretrained", "load", "load_gguf", "load_hf", "read_config", "save_hf"]
