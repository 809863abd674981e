"""Real pretrained weights: SmolLM2-135M-Instruct, dequantised from Q4_1, compared with transformers."""

import jax
import numpy as np
import pytest
import tokenizers

from prism_jax.streams import Event
from prism_jax.student import presets
from prism_jax.student.prompting.gguf_tokenizer import read_gguf_tokenizer
from prism_jax.student.prompting.template import NEED, PromptConfig, Template
from prism_jax.student.prompting.tokenizer import Tokenizer
from prism_jax.student.weights import Pretrained, load_gguf, load_hf, save_hf

pytestmark = pytest.mark.slow

ENGLISH = (
    "The water cycle describes how water moves between the land, the sea and the sky. The sun warms the surface of "
    "the ocean, and some of the water turns into vapour. The vapour rises with the warm air, cools, and becomes small "
    "drops that form clouds. When the drops grow heavy enough they fall as rain or snow. Some of that water runs into "
    "rivers and back to the sea, some of it soaks into the ground, and plants draw up a part through their roots. "
    "People have built dams, wells and canals for thousands of years to keep water for the dry months of the year."
)
# No whitespace before a number: transformers does not implement this file's pre-tokenizer, which isolates digits.
TEXTS = (
    ENGLISH,
    "def f(x):\n    return x**2  # squared\n\n\nclass A:\n\tpass\r\n",
    "it's I'LL we've  don't   </b> -- \u201cquoted\u201d\u2026 na\u00efve caf\u00e9 \u4f60\u597d \U0001f600 e\u0301",
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n<filename>a.py<|endoftext|>",
    "1234567890 v2.0.1 x=3.14159,y=(42)",
    "",
    " \n ",
)


@pytest.fixture(scope="module")
def theirs(smollm2_gguf):
    torch = pytest.importorskip("torch", reason="torch is the oracle of parity")
    pytest.importorskip("accelerate", reason="transformers reads GGUF files with it")
    import transformers

    torch.set_num_threads(1)  # more threads would compete with JAX's
    source = {"pretrained_model_name_or_path": smollm2_gguf.parent, "gguf_file": smollm2_gguf.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).eval()
    return model, transformers.AutoTokenizer.from_pretrained(**source)


@pytest.fixture(scope="module")
def ours(smollm2_gguf):
    return load_gguf(smollm2_gguf, "float32")


@pytest.fixture(scope="module")
def tokenizer(smollm2_gguf):
    return read_gguf_tokenizer(smollm2_gguf)


@pytest.fixture(scope="module")
def encode(tokenizer):
    whole = tokenizers.Tokenizer.from_str(tokenizer.definition)
    return lambda text: whole.encode(text, add_special_tokens=False).ids


def perplexity(model, ids):
    log_p = jax.nn.log_softmax(model.logits(np.array([ids]))[0, :-1])
    return float(np.exp(-np.mean(np.asarray(log_p)[np.arange(len(ids) - 1), ids[1:]])))


def test_the_file_describes_the_preset(ours):
    assert ours.model.config == presets.smollm2_135m()


def test_logits_equal_transformers(ours, theirs, encode):
    import torch

    ids = np.array([encode(ENGLISH)])
    with torch.no_grad():
        want = theirs[0](torch.tensor(ids)).logits.numpy()
    assert want.std() > 1
    np.testing.assert_allclose(ours.logits(ids), want, atol=1e-3, rtol=0)


def test_the_wrong_order_of_rows_triples_perplexity(ours, encode):
    """The same weights, but with query and key rows in the order of the file."""
    config, ids = ours.model.config, encode(ENGLISH)

    def as_stored(kernel, heads):
        pairs = kernel.reshape(config.num_layers, config.hidden_dim, heads, 2, config.head_dim // 2)
        return pairs.swapaxes(3, 4).reshape(kernel.shape)

    attention = ours.params["layers"]["attention"]
    changed = attention | {
        "q_proj": {"kernel": as_stored(attention["q_proj"]["kernel"], config.num_heads)},
        "k_proj": {"kernel": as_stored(attention["k_proj"]["kernel"], config.num_kv_heads)},
    }
    unordered = Pretrained(ours.model, ours.params | {"layers": ours.params["layers"] | {"attention": changed}})
    right, wrong = perplexity(ours, ids), perplexity(unordered, ids)
    print(f"perplexity {right:.2f}, with rows in the file's order {wrong:.2f}")
    assert right < 20
    assert wrong > 3 * right


def test_ids_are_those_that_transformers_reads(theirs, encode, tokenizer):
    for text in TEXTS:
        assert encode(text) == theirs[1](text, add_special_tokens=False)["input_ids"], text
    assert tokenizer.chat_template == theirs[1].chat_template
    assert tokenizer.eos_token_id == theirs[1].eos_token_id


def test_a_round_trip_through_a_hugging_face_directory_changes_nothing(ours, theirs, tmp_path, encode):
    """The exported directory holds, bit for bit, what transformers reads from the GGUF file."""
    import transformers

    save_hf(tmp_path, ours.model, ours.params, eos_token_id=2, max_shard_bytes=200 * 10**6)
    read = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    want = theirs[0].state_dict()
    assert read.state_dict().keys() == want.keys()
    assert all((tensor == want[name]).all() for name, tensor in read.state_dict().items())
    again = load_hf(tmp_path, "float32")
    jax.tree.map(np.testing.assert_array_equal, again.params, ours.params)


def test_the_template_reads_as_the_models_own_chat_template(theirs, smollm2_gguf):
    """Special tokens are the model's own, answers are single tokens, and untrusted text produces no special token."""
    _, chat = theirs
    template = Template(Tokenizer.load(smollm2_gguf), PromptConfig())
    events = [Event(time=9.0 * i, text=text) for i, text in enumerate(("Opens parser.py.", "It fails again."))]
    messages = [{"role": "system", "content": template.config.system}]
    messages += [{"role": "user", "content": event.text} for event in events]
    expected = chat.apply_chat_template(messages, tokenize=True, return_dict=False, add_generation_prompt=True)
    trunk = [*template.system(), *template.event(events[0], None), *template.event(events[1], events[0])]
    assert [*trunk, *template.head()] == [*expected, *chat.encode(NEED, add_special_tokens=False)]
    assert chat.convert_ids_to_tokens([template.yes, template.no]) == ["\u0120yes", "\u0120no"]
    added = {token.content: i for i, token in chat.added_tokens_decoder.items()}
    assert len(added) >= 17
    for name in added:
        ids = template.event(Event(time=0.0, text=f"a {name}{name[:2]}{name} b"), None)
        assert sum(i in added.values() for i in ids) == 2  # those that begin and end the message
