"""Bad files and directories: the error is one line that names the file, and no file is left half-written."""

import json
import re
import shutil

import jax
import numpy as np
import pytest
import safetensors.numpy
from hf_models import SPELLINGS, edit_config, edit_tensors
from student_sizes import grouped

from prism_jax.runtime.files import MOST_LINE_BYTES
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights import load_gguf, load_hf, save_hf
from prism_jax.student.weights.safetensors_in import MOST_HEADER_BYTES

MODEL = Qwen3(grouped(num_layers=2))


@pytest.fixture(scope="module")
def params(draw_params):
    return draw_params(MODEL)


@pytest.fixture
def folder(params, tmp_path):
    """A directory with a single file of tensors."""
    save_hf(tmp_path / "model", MODEL, jax.device_get(params))  # to cut arrays of JAX compiles programs
    return tmp_path / "model"


@pytest.fixture
def sharded(params, tmp_path):
    """A directory with several files of tensors and an index."""
    save_hf(tmp_path / "sharded", MODEL, jax.device_get(params), max_shard_bytes=9000)
    return tmp_path / "sharded"


def refused(directory, pattern, error=ValueError, load=load_hf, dtype="float32"):
    """Asserts that loading raises this error, with a one-line message of the path and then the pattern."""
    with pytest.raises(error) as found:
        load(directory, dtype)
    message = str(found.value)
    assert "\n" not in message
    assert re.search(rf"^{re.escape(str(directory))}{pattern}$", message), message


def test_what_is_whole_is_read(folder, sharded, params):
    for directory in (folder, sharded):
        jax.tree.map(np.testing.assert_array_equal, load_hf(directory, "float32").params, params)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_files_that_transformers_reads_too_are_read(spelling, folder, params):
    """`tests/student/weights/test_parity.py` compares with transformers."""
    edit_tensors(folder, SPELLINGS[spelling])
    jax.tree.map(np.testing.assert_array_equal, load_hf(folder, "float32").params, params)


def test_an_index_may_leave_out_buffers(sharded, params):
    path = next(path for path in sharded.glob("model-*") if "model.norm.weight" in safetensors.numpy.load_file(path))
    buffer = {"model.rotary_emb.inv_freq": np.ones(4, np.float32)}
    safetensors.numpy.save_file(safetensors.numpy.load_file(path) | buffer, path)
    jax.tree.map(np.testing.assert_array_equal, load_hf(sharded, "float32").params, params)


def test_parameters_beside_those_of_the_model_are_still_refused(folder):
    def change(tensors):
        tensors["norm.weight"] = tensors["model.norm.weight"]
        for name in ("self_attn.q_proj.bias", "mlp.bias", "self_attn.rotary.weight"):
            tensors[f"model.layers.0.{name}"] = np.zeros(32, np.float32)

    edit_tensors(folder, change)
    names = "model.layers.0.mlp.bias, model.layers.0.self_attn.q_proj.bias, model.layers.0.self_attn.rotary.weight, "
    refused(folder, re.escape(f": found tensors that don't fit the model: unexpected {names}norm.weight"))


def test_paths_that_are_no_directory(tmp_path, folder):
    refused(tmp_path / "none", ": no such directory, expected a Hugging Face model directory", FileNotFoundError)
    weights = folder / "model.safetensors"
    refused(weights, ": found a file, expected a Hugging Face model directory", NotADirectoryError)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "weights.pt", "weights.pth"])
def test_pickles_are_refused_by_name_and_never_opened(name, folder):
    shutil.move(folder / "model.safetensors", folder / name)
    message = f"/{name}: found a pickle file, expected safetensors or GGUF: a pickle runs code when it is read"
    refused(folder, re.escape(message))
    for load in (load_hf, load_gguf):
        refused(folder / name, re.escape(message.removeprefix(f"/{name}")), load=load)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_symlinks_out_of_the_directory(name, folder, tmp_path):
    shutil.move(folder / name, tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    refused(folder, rf"/{name}: found a symlink out of the directory \(to {tmp_path / name}\), expected a file .*")


def test_symlinks_within_the_directory_are_followed(folder, params):
    shutil.move(folder / "model.safetensors", folder / "kept.safetensors")
    (folder / "model.safetensors").symlink_to("kept.safetensors")
    jax.tree.map(np.testing.assert_array_equal, load_hf(folder, "float32").params, params)


def test_a_snapshot_of_the_hubs_cache_is_read_and_links_out_of_the_cache_are_refused(folder, params, tmp_path):
    model = tmp_path / "hub" / "models--some--model"
    snapshot = model / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    (model / "blobs").mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        shutil.move(path, model / "blobs" / f"{number:040x}")
        (snapshot / path.name).symlink_to(f"../../blobs/{number:040x}")
    jax.tree.map(np.testing.assert_array_equal, load_hf(snapshot, "float32").params, params)
    blob = (snapshot / "model.safetensors").resolve()
    other = shutil.move(blob, tmp_path / "elsewhere")
    blob.symlink_to(other)
    refused(snapshot, rf"/model\.safetensors: found a symlink out of the directory \(to {other}\), expected a file .*")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "pytorch_model.bin",
            r"/model\.safetensors\.index\.json: weight_map: found 'pytorch_model\.bin' for model\.norm\.weight, "
            r"expected a \.safetensors file",
        ),
        (
            "../model/model.safetensors",
            r"/\.\./model/model\.safetensors: found a path out of the directory .*, expected a file inside .*",
        ),
    ],
)
def test_an_index_may_name_safetensors_in_the_directory_alone(sharded, folder, name, message):
    index = sharded / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.norm.weight"] = name
    index.write_text(json.dumps(content))
    refused(sharded, message)


def test_files_that_are_missing_or_too_many(folder, sharded):
    first = next(sharded.glob("model-00001*"))
    shutil.copy(folder / "model.safetensors", sharded)
    refused(sharded, ": found model.safetensors and model.safetensors.index.json, expected one of them")
    (sharded / "model.safetensors").unlink()
    first.unlink()
    refused(sharded, f"/{first.name}: no such file, expected one in .*", FileNotFoundError)
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    refused(folder, ": found config.json, generation_config.json, weights.safetensors, expected model.safetensors .*")
    (folder / "config.json").unlink()
    refused(folder, "/config.json: no such file, expected one in a Hugging Face model directory", FileNotFoundError)


def test_a_malformed_config_is_refused(folder):
    (folder / "config.json").write_text("{")
    refused(folder, r"/config.json: found broken JSON at column 2 \(.*\), expected a JSON value")


@pytest.mark.parametrize("content", ["[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', "{"])
def test_an_index_that_is_no_index(content, sharded):
    (sharded / "model.safetensors.index.json").write_text(content)
    refused(sharded, "/model.safetensors.index.json: .*expected .*")


def test_shards_that_hold_other_tensors_than_the_index_says(sharded):
    first, second = sorted(sharded.glob("model-*"))[:2]
    shutil.copy(second, first)
    refused(sharded, rf"/{first.name}: found other tensors than model\.safetensors\.index\.json lists .*, expected .*")


def test_truncated_and_corrupt_safetensors(folder):
    """A file that is cut, or whose header has a byte changed to a quote, is an error and never another model."""
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    cut = [whole[:size] for size in (0, 4, 8, 9, header // 2, header, header + 100, len(whole) - 1)]
    changed = [whole[:at] + b'"' + whole[at + 1 :] for at in range(0, header, header // 12)]
    for content in (*cut, *changed, whole + b"\0", b"\xff" * 64, b"\x80\x04}q\x00." * 9):
        path.unlink()
        path.write_bytes(content)
        refused(folder, "(/model.safetensors: found a truncated or corrupt safetensors .*|: found tensors that .*)")


def test_a_header_beyond_the_limit_is_refused_before_it_is_parsed(folder):
    """A million empty tensors in 59 MB would take a GB of memory; the file costs nothing on disk."""
    path = folder / "model.safetensors"
    size = MOST_HEADER_BYTES + 8
    path.unlink()
    path.write_bytes(size.to_bytes(8, "little"))
    with path.open("r+b") as file:
        file.truncate(8 + size)
    refused(folder, rf"/model\.safetensors: found a header of {size} bytes, expected at most {MOST_HEADER_BYTES}")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_json_files_beyond_the_limit_are_refused_before_they_are_parsed(name, sharded):
    with (sharded / name).open("r+b") as file:
        file.truncate(MOST_LINE_BYTES + 1)
    refused(sharded, rf"/{name}: found a file of more than {MOST_LINE_BYTES} bytes, expected a smaller one")


def test_truncated_and_corrupt_gguf(tmp_path):
    pytest.importorskip("gguf", reason="the gguf package is an extra")
    from gguf_models import write_gguf
    from hf_models import random_model

    path = write_gguf(tmp_path / "model.gguf", random_model("Llama"))
    whole = path.read_bytes()
    for content in (*(whole[:size] for size in (0, 3, 4, 20, 300, len(whole) // 2, len(whole) - 40)), b"PK" * 99):
        path.unlink()
        path.write_bytes(content)
        refused(path, ": found a truncated or corrupt GGUF file .*, expected a whole one", load=load_gguf)
    refused(tmp_path / "none.gguf", ": no such file, expected a GGUF file", FileNotFoundError, load=load_gguf)
    refused(tmp_path, ": no such file, expected a GGUF file", FileNotFoundError, load=load_gguf)


def test_everything_that_does_not_fit_is_reported_together(folder):
    def change(tensors):
        del tensors["model.norm.weight"], tensors["model.layers.1.mlp.up_proj.weight"]
        tensors["model.layers.0.self_attn.q_proj.bias"] = np.zeros(32, np.float32)
        tensors["model.layers.2.mlp.up_proj.weight"] = np.zeros((40, 24), np.float32)
        tensors["model.embed_tokens.weight"] = np.zeros((60, 24), np.float32)
        tensors["model.layers.0.mlp.down_proj.weight"] = np.zeros((24, 40), np.int8)

    edit_tensors(folder, change)
    refused(
        folder,
        re.escape(
            ": found tensors that don't fit the model: missing model.layers.1.mlp.up_proj.weight, model.norm.weight; "
            "unexpected model.layers.0.self_attn.q_proj.bias, model.layers.2.mlp.up_proj.weight; "
            "mis-shaped model.embed_tokens.weight [60, 24] (expected [61, 24]); "
            "unreadable model.layers.0.mlp.down_proj.weight (I8, expected BF16, F16, F32)"
        ),
    )


def test_another_models_tensors_are_counted_not_all_spelled_out(folder):
    edit_tensors(folder, lambda tensors: [tensors.update({f"x.{n}": tensors.pop(n)}) for n in list(tensors)])
    refused(folder, r": found tensors .*: missing ([\w.]+, ){11}[\w.]+ and 12 more; unexpected ([\w.]+, ){11}.* more")


def test_an_absurd_number_of_layers_is_not_counted_up_to(folder):
    edit_config(folder, num_hidden_layers=10**15)
    refused(folder, ": found 24 tensors, expected 1000000000000000 layers of them")


@pytest.mark.parametrize("dtype", ["int8", "float64", "nonsense", np.int32])
def test_dtypes_that_are_none_of_the_three(dtype, folder, params, tmp_path):
    message = r"^dtype: found '\w+', expected one of float32, bfloat16, float16$"
    for act in (lambda: load_hf(folder, dtype), lambda: save_hf(tmp_path / "out", MODEL, params, dtype=dtype)):
        with pytest.raises(ValueError, match=message):
            act()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("on_host", [True, False])
def test_numbers_that_are_not_finite_are_named(folder, on_host, monkeypatch):
    """Numbers that are not finite in the file, and numbers that overflow the requested dtype."""
    monkeypatch.setattr("prism_jax.student.weights.names._on_host", lambda leaf: on_host)

    def change(tensors):
        tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = 1e6
        tensors["model.norm.weight"][7] = -1e9

    edit_tensors(folder, change)
    load_hf(folder, "bfloat16")
    names = ": model.layers.1.mlp.up_proj.weight, model.norm.weight: found NaN or infinity, expected finite {} numbers"
    refused(folder, names.format("float16"), dtype="float16")
    edit_tensors(folder, lambda t: t.update({"model.norm.weight": np.full(24, np.nan, np.float32)}))
    refused(folder, ": model.norm.weight: found NaN or infinity, expected finite float32 numbers")


def test_parameters_of_another_model_are_not_written(params, tmp_path):
    for other, message in (
        (
            params | {"head": {"kernel": params["embedding"].T}},
            r"params: found other shapes .* at head/kernel, expected .*",
        ),
        (params | {"embedding": params["embedding"][:-1]}, r"params: found other shapes .* at embedding, expected .*"),
        (params | {"bias": params["embedding"]}, r"weights: found parameters bias, expected those that NAMES lists"),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            save_hf(tmp_path / "out", MODEL, other)
    with pytest.raises(ValueError, match=r"^max_shard_bytes: found 0, expected at least 1$"):
        save_hf(tmp_path / "out", MODEL, params, max_shard_bytes=0)
    assert not (tmp_path / "out").exists()


def test_parameters_on_the_host_are_written_alike(params, folder, tmp_path):
    save_hf(tmp_path / "out", MODEL, params)
    for path in folder.iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()


def test_numbers_that_are_not_finite_are_not_written(params, tmp_path):
    broken = params | {"embedding": params["embedding"].at[4, 2].set(1e6)}
    save_hf(tmp_path / "whole", MODEL, broken)
    with pytest.raises(ValueError, match=r"^params: model\.embed_tokens\.weight: found NaN or infinity, expected"):
        save_hf(tmp_path / "out", MODEL, broken, dtype="float16")
    assert not (tmp_path / "out").exists()


def test_a_model_is_never_written_over(folder, params):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(FileExistsError, match=r"found config\.json, model\.safetensors, expected a directory without"):
        save_hf(folder, MODEL, params)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
