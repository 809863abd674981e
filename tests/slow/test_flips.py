"""Single flipped bits in the files of an export, of an exported probe and of a saved probe: none is served or used."""

import jax
import numpy as np
import pytest
from etils import epath
from exported_folder import prism
from mutations import flip
from offers import make_stream
from student_sizes import small

from prism_jax.agent.exported import read_exported
from prism_jax.agent.loading import load_reader
from prism_jax.probe.fitting import StreamInputs, fit_probe
from prism_jax.probe.probe_config import FitConfig, StatesConfig
from prism_jax.probe.saved import SavedProbe, load_probe, save_probe
from prism_jax.probe.words import describe
from prism_jax.runs.export import write_tokenizer
from prism_jax.runtime.digests import write_digests
from prism_jax.runtime.files import write_json
from prism_jax.student.prompting.template import PromptConfig, Template, make_tokenizer
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights import save_hf

pytestmark = pytest.mark.slow
FLIPS = 500


def student(folder, simulated):
    """Writes an export of a random student."""
    tokenizer = make_tokenizer(simulated, PromptConfig(vocab_size=400))
    model = Qwen3(small(vocab_size=tokenizer.size))
    save_hf(folder, model, model.init(jax.random.key(0)))
    write_tokenizer(folder, tokenizer, 2048)
    write_json(folder / "prism.json", prism() | {"slots": Template(tokenizer, PromptConfig()).describe()})
    write_digests(epath.Path(folder))


def saved(folder, _):
    """Writes a probe on words."""
    probe = fit_probe([StreamInputs(describe(make_stream(number))) for number in range(4)], FitConfig(), StatesConfig())
    save_probe(folder / "probe", SavedProbe(probe))


def exported(folder, _):
    """Writes an exported probe on words."""
    saved(folder, _)
    for path in (folder / "probe").iterdir():
        path.rename(folder / path.name)
    (folder / "probe").rmdir()
    write_json(folder / "prism.json", prism(slow=False) | {"slots": {}, "probe": True})
    write_digests(epath.Path(folder))


def serve(folder):
    return load_reader(folder, read_exported(folder))


KINDS = {
    "a student's export": (student, serve),
    "a probe's export": (exported, serve),
    "a saved probe": (saved, lambda folder: load_probe(folder / "probe")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_flipped_bit_is_served(kind, tmp_path, simulated):
    write, use = KINDS[kind]
    write(tmp_path, simulated)
    use(tmp_path)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    rng, unseen = np.random.default_rng(0), []
    for number in range(FLIPS):  # every file, large or small, as often as any other
        path = files[number % len(files)]
        whole = path.read_bytes()
        changed = bytearray(whole)
        flip(changed, rng)
        path.write_bytes(changed)
        try:
            use(tmp_path)
        except ValueError as error:
            assert str(tmp_path) in str(error) and "\n" not in str(error)
        else:
            unseen.append(path.name)
        path.write_bytes(whole)
    use(tmp_path)
    assert unseen == []
