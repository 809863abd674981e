"""Packaging of prism_jax. Tool settings (ruff, mypy, pytest, import-linter) are in pyproject.toml."""

import pathlib

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).parent

# For reading GGUF files.
GGUF = ["gguf>=0.19"]
# For fitting a calibrator on a teacher's texts; applying it needs none of it.
TEXT = ["scikit-learn>=1.7"]
# For figures of experiments and notebooks.
FIGURES = ["matplotlib>=3.9"]
NOTEBOOKS = [*FIGURES, *TEXT, "ipykernel>=6.29", "nbclient>=0.10", "nbformat>=5.10"]
# For building the documentation as a site.
DOCS = ["mkdocs>=1.6,<2", "mkdocs-material>=9.6", "mkdocstrings[python]>=0.30"]
# For asking other models, over HTTP.
REMOTE = ["json5>=0.12", "openai>=3.57", "tenacity>=9.1"]
# For studies of published data: they start from a GGUF file, have baselines on words, and ask endpoints.
STUDY = [*GGUF, *TEXT, *REMOTE]
# For serving a model over HTTP.
SERVE = [
    *("fastapi>=0.160", "h11>=0.16", "prometheus-client>=0.22", "uvicorn>=0.50", "uvloop>=0.21"),
    "tzdata>=2025.2",  # time zones of people, where the machine has none
    "zstandard>=0.23",  # how clients of System One compress their requests
]
# For dividing the streams of a server among several machines.
CLUSTER = [*SERVE, "ray[serve]==2.60.*"]

TEST = [
    *STUDY,
    *SERVE,
    *NOTEBOOKS,
    *DOCS,
    "axe-core-python>=0.1",  # brings axe, which checks the person's page for what shuts people out
    "accelerate>=1.10",  # lets transformers read GGUF files, as a reference for tests
    "peft~=0.21.2",  # reads and writes the adapters that are exported and imported here
    "beartype>=0.22",
    "filelock>=3.12",
    "hypothesis>=6.150",
    "import-linter>=2.5",
    "langchain>=1.5.2",  # a host of our adapters
    "langchain-openai>=1.7.4",  # a client of the server, as is pydantic-ai
    "pydantic-ai-slim[openai]>=2.68",
    "pytest>=8.4",
    "pytest-xdist>=3.8",
    "selenium>=4.40",  # drives the browser in which the report is tested
    "setuptools>=77",  # builds the distributions that are tested
    "xllamacpp==2026.10.11549",  # an inference engine with a server of its own, for the tests of engines
    "typesafe-sdk>=0.7.5",  # a client of the server's older form
    "torch==2.13.0",  # the reference of the student's parity tests; the package itself never imports it
    # References for the decision library: off-policy estimators, calibration errors.
    "obp==0.4.1",
    "proactive-gate==0.9.*",  # its utility floor is our gate, and its other checks stand around ours
    "torchmetrics>=1.8",
]

# What the long runs of `make studies` need beside.
STUDIES = [*CLUSTER, "openai-agents>=0.24"]

setup(
    name="prism_jax",
    version="0.1.0",
    description="The calibrated decision layer for proactive agents, in JAX/Flax.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["prism_jax", "prism_jax.*"]),
    package_data={
        "prism_jax": [
            *("py.typed", "report/*.html.jinja", "report/*.css", "report/*.js", "runtime/*.css"),
            *("agent/service/me/*", "agent/adapters/openclaw/*.js", "agent/adapters/openclaw/*.json"),
        ]
    },
    python_requires=">=3.11",
    install_requires=[
        "absl-py>=2.3",
        "array_record>=0.8.1",
        "chex~=0.1.92",
        "etils[epath]>=1.13",
        "flax>=0.12.8",
        "grain~=0.2.18",
        "jax>=0.10.2,<0.13",
        "jaxtyping>=0.3.11",
        "jinja2>=3.1",
        "ml_collections~=1.1",
        "numpy>=2.2",
        "optax~=0.2.8",
        "orbax-checkpoint~=0.12.8",
        "pyarrow>=20",
        "pydantic>=2.12",
        "rich>=14",
        "safetensors>=0.8",
        "scipy>=1.15",
        "tensorboardX>=2.6",
        "tensorflow-datasets==4.9.10",
        "threadpoolctl>=3.5",
        "tokenizers>=0.22",
        "tqdm>=4.67",
        "transformers>=5.23,<6",
    ],
    extras_require={
        "gguf": GGUF,
        "remote": REMOTE,
        "serve": SERVE,
        "cluster": CLUSTER,
        "text": TEXT,
        "study": STUDY,
        "figures": FIGURES,
        "notebooks": [*NOTEBOOKS, "jupyterlab>=4.2"],
        "docs": DOCS,
        "gcs": ["gcsfs"],
        "cuda12": ["jax[cuda12]"],
        "cuda13": ["jax[cuda13]"],
        "test": TEST,
        "dev": [*TEST, "mypy>=1.18", "ruff>=0.14"],
        "studies": STUDIES,
    },
)
