"""Adapters are those of PEFT: its own load here, ours load there, and both compute the same, merged or not."""

import dataclasses
import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors.numpy
from hf_models import libraries, random_model
from student_sizes import grouped

from prism_jax.student import lora
from prism_jax.student.lora import LoraConfig
from prism_jax.student.qwen3 import Qwen3
from prism_jax.student.weights import Pretrained, load, load_hf, read_config
from prism_jax.student.weights.peft import CONFIG, TENSORS, adapters_as_in, read_adapters, save_adapters

IDS = np.random.default_rng(3).integers(0, 61, (2, 11))
TOKENS = (7, 3)
HEADS = ("frozen", "slots", "all")


@pytest.fixture(scope="module")
def peft():
    return pytest.importorskip("peft", reason="peft is the oracle of adapters")


@pytest.fixture(scope="module", params=[True, pytest.param(False, marks=pytest.mark.slow)], ids=["tied", "untied"])
def base(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    random_model(tie_word_embeddings=request.param).save_pretrained(folder)
    return folder


def of_transformers(folder):
    _, transformers = libraries()
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()


def logits_of(model):
    torch, _ = libraries()
    with torch.no_grad():
        return model(torch.tensor(IDS)).logits.numpy()


def assert_same(found, expected):
    """Within 16 roundings of the largest logit: the two libraries add in other orders."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=16 * np.spacing(np.float32(np.abs(expected).max())))


def head_settings(head, tied):
    if head == "slots":
        return {"trainable_token_indices": list(TOKENS) if tied else {"lm_head": list(TOKENS)}}
    if head == "all":
        return {"modules_to_save": ["embed_tokens" if tied else "lm_head"], "ensure_weight_tying": tied}
    return {}


def trained_by_peft(peft, base, folder, tied, *, steps=3, **settings):
    """Trains adapters with PEFT for some steps on next tokens, saves them, and returns the model."""
    torch, _ = libraries()
    torch.manual_seed(0)
    config = peft.LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", **{"target_modules": ["q_proj"]} | settings)
    model = peft.get_peft_model(of_transformers(base), config)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    ids = torch.tensor(IDS)
    for _ in range(steps):
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"target_modules": ["q_proj", "v_proj", "down_proj"]},
        {"target_modules": "all-linear", "use_rslora": True},
        *(pytest.param({"head": head}, id=head) for head in HEADS[1:]),
    ],
)
def test_adapters_that_peft_trained_compute_the_same_here(peft, base, tmp_path, settings):
    student = read_config(base, "float32")
    settings = dict(settings)
    head = settings.pop("head", "frozen")
    oracle = trained_by_peft(peft, base, tmp_path, student.tied, **settings, **head_settings(head, student.tied))
    expected = logits_of(oracle)
    assert np.abs(expected - logits_of(of_transformers(base))).max() > 0.05
    base_params = load_hf(base, "float32").params
    config, part = read_adapters(tmp_path, student, base_params)
    assert (config.head, config.tokens) == (head, TOKENS if head == "slots" else ())
    params = lora.joined(base_params, part)
    assert_same(Pretrained(Qwen3(student, config), params).logits(IDS), expected)
    merged = load(tmp_path, "float32")  # the base that the adapters name
    assert merged.model == Qwen3(student)
    assert_same(merged.logits(IDS), logits_of(oracle.merge_and_unload()))


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_adapters_that_peft_saved_with_the_embeddings_compute_the_same_here(peft, base, tmp_path, head):
    tied = read_config(base, "float32").tied
    oracle = trained_by_peft(peft, base, tmp_path, tied, **head_settings(head, tied))
    oracle.save_pretrained(tmp_path, save_embedding_layers=True)
    assert_same(load(tmp_path, "float32").logits(IDS), logits_of(oracle))


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_peft_computes_the_same_from_saved_adapters(peft, base, tmp_path, head):
    loaded = load_hf(base, "float32")
    config = LoraConfig(rank=3, alpha=5.0, head=head, tokens=TOKENS if head == "slots" else ())
    model = Qwen3(loaded.model.config, config)
    part = model.own(model.adapted(loaded.params, jax.random.key(1)))
    leaves, tree = jax.tree.flatten(part)
    drawn = [leaf + 0.05 * jax.random.normal(jax.random.key(i), leaf.shape) for i, leaf in enumerate(leaves)]
    part = jax.tree.unflatten(tree, drawn)
    save_adapters(tmp_path, model, part, base=str(base))
    ours = Pretrained(model, lora.joined(loaded.params, part))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # PEFT only warns of keys that it does not know
        theirs = peft.PeftModel.from_pretrained(of_transformers(base), tmp_path).eval()
    assert_same(logits_of(theirs), ours.logits(IDS))
    by_name = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path, dtype="float32").eval()
    assert_same(logits_of(by_name), ours.logits(IDS))
    plain = Pretrained(loaded.model, model.plain(ours.params))
    assert_same(logits_of(theirs.merge_and_unload()), plain.logits(IDS))
    _, again = read_adapters(tmp_path, loaded.model.config, loaded.params)
    jax.tree.map(np.testing.assert_array_equal, again, jax.device_get(part))


@pytest.mark.slow
def test_gradients_are_those_of_peft(peft, base, tmp_path):
    student = read_config(base, "float32")
    targets = {"target_modules": list(lora.TARGETS)}
    head = head_settings("slots", student.tied)
    oracle = trained_by_peft(peft, base, tmp_path, student.tied, **targets, **head)
    torch, _ = libraries()
    oracle(torch.tensor(IDS), labels=torch.tensor(IDS)).loss.backward()
    for parameter in oracle.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.grad
    oracle.save_pretrained(tmp_path / "gradients")
    loaded = load_hf(base, "float32")
    _, expected = read_adapters(tmp_path / "gradients", student, loaded.params)
    config, part = read_adapters(tmp_path, student, loaded.params)

    def loss(part):
        logits = Pretrained(Qwen3(student, config), lora.joined(loaded.params, part)).logits(IDS)[:, :-1]
        return optax.losses.softmax_cross_entropy_with_integer_labels(logits, jnp.asarray(IDS[:, 1:])).mean()

    found = jax.grad(loss)(jax.tree.map(jnp.asarray, part))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), found, expected)


@pytest.fixture
def saved(tmp_path):
    """Adapters of rank 2 on the queries of three layers, and the student that they fit."""
    student = grouped()
    model = Qwen3(student, LoraConfig(rank=2, targets=("q_proj",)))
    save_adapters(tmp_path, model, model.own(model.init(jax.random.key(0))), base="here")
    return tmp_path, student


def save_with(tensors, folder):
    safetensors.numpy.save_file(safetensors.numpy.load_file(folder / TENSORS) | tensors, folder / TENSORS)


EMBEDDING, HEAD = ("base_model.model.model.embed_tokens", "base_model.model.lm_head")


@pytest.mark.parametrize(
    "names",
    [
        [f"{EMBEDDING}.weight"],
        [f"{EMBEDDING}.weight", f"{HEAD}.weight"],
        [f"{EMBEDDING}.token_adapter.base_layer.weight", f"{HEAD}.original_module.weight"],
    ],
)
def test_embeddings_that_are_saved_with_the_adapters_must_be_the_bases(saved, names):
    folder, student = saved
    base = Qwen3(student).init(jax.random.key(1))
    table = np.asarray(base["embedding"])
    config, part = read_adapters(folder, student, base)
    save_with(dict.fromkeys(names, table), folder)
    again, same = read_adapters(folder, student, base)
    assert again == config
    jax.tree.map(np.testing.assert_array_equal, same, part)
    read_adapters(folder, student, {**base, "embedding": base["embedding"].astype(jnp.bfloat16)})
    for other, message in (
        (table + 1, rf"{names[-1]}: found other numbers than the base's, expected the same: .*merge_and_unload"),
        (np.concatenate([table, table[:5]]), rf"mis-shaped {names[-1]} \[66, 24\] \(expected \[61, 24\]\)"),
    ):
        save_with({names[-1]: other}, folder)
        with pytest.raises(ValueError, match=message):
            read_adapters(folder, student, base)


@pytest.mark.parametrize("tied", [True, False])
def test_an_embedding_and_a_head_that_both_are_modules_to_save(saved, tied):
    """A tied head must be the saved embedding; on an untied student only the head may differ from the base's."""
    folder, student = saved
    student = dataclasses.replace(student, tied=tied)
    base = Qwen3(student).init(jax.random.key(1))
    table, head = np.asarray(base["embedding"]), np.random.default_rng(0).random((61, 24), np.float32)
    edit(folder / CONFIG, modules_to_save=["embed_tokens", "lm_head"])
    save_with({f"{EMBEDDING}.weight": head if tied else table, f"{HEAD}.weight": head}, folder)
    config, part = read_adapters(folder, student, base)
    assert config.head == "all"
    np.testing.assert_array_equal(part["embedding"] if tied else part["head"]["kernel"].T, head)
    save_with({f"{EMBEDDING}.weight": table + 1}, folder)
    words = (
        f"{HEAD}.weight: found other numbers than {EMBEDDING}.weight" if tied else f"{EMBEDDING}.weight: found other"
    )
    with pytest.raises(ValueError, match=words):
        read_adapters(folder, student, base)


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


B = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"


@pytest.mark.parametrize(
    ("changes", "tensors", "message"),
    [
        ({"r": 3}, {}, r"mis-shaped base_model\.model\.model\.layers\.0\.self_attn\.q_proj\.lora_A\.weight \[2, 24\]"),
        ({"trainable_token_indices": [1]}, {}, r"missing base_model\.model\.model\.embed_tokens\.token_adapter\.train"),
        ({}, {B: None}, r"adapter_model\.safetensors: found tensors .*: missing .*layers\.1\."),
        ({}, {"extra": np.zeros(1, np.float32)}, r"unexpected extra$"),
        (
            {},
            {B: np.full((32, 2), np.nan, np.float32)},
            r"layers\.1\..*lora_B\.weight: found NaN or infinity, expected",
        ),
    ],
)
def test_other_adapters_are_refused_by_name(saved, changes, tensors, message):
    folder, student = saved
    edit(folder / CONFIG, **changes)
    changed = safetensors.numpy.load_file(folder / TENSORS) | tensors
    safetensors.numpy.save_file({name: own for name, own in changed.items() if own is not None}, folder / TENSORS)
    with pytest.raises(ValueError, match=message):
        read_adapters(folder, student, {})


def test_a_start_must_have_the_rank_of_the_config_and_sets_the_rest(saved):
    folder, student = saved
    config = LoraConfig(rank=2, dropout=0.1, start=str(folder))
    read = adapters_as_in(config, student)
    assert (read.targets, read.dropout, read.start) == (("q_proj",), 0.1, str(folder))
    with pytest.raises(ValueError, match=r"^lora\.rank: found 4, expected 2 as in "):
        adapters_as_in(LoraConfig(rank=4, start=str(folder)), student)


def test_a_base_that_is_not_here_is_an_error(saved):
    folder, _ = saved
    edit(folder / CONFIG, base_model_name_or_path="someone/else")
    with pytest.raises(FileNotFoundError, match=r"base_model_name_or_path: found 'someone/else', expected the path of"):
        load(folder, "float32")
