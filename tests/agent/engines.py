"""Engines for tests: servers of each one's shape that compute a function of the ids, and llama.cpp's own."""

import contextlib
import dataclasses
import hashlib
import http.server
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
from exported_folder import prism, write

from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.runs.export import write_tokenizer

CONTEXT = 1024
SERVED = CONTEXT + 7


def log_odds_of(prompt):
    """What the fake engines answer: a fixed function of all ids of a prompt."""
    digest = hashlib.sha256(np.array(prompt, "<i4").tobytes()).digest()
    return (int.from_bytes(digest[:4], "little") / 2**32 - 0.5) * 8


def probability_of(*texts):
    """What the fake decision model answers: a fixed function of what it is asked."""
    return 1 / (1 + math.exp(-log_odds_of(list("\0".join(texts).encode()))))


def export(folder, template, sample=(), context=CONTEXT):
    """The directory of an exported student without weights: prism.json, the tokenizer, and their digests."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, template.tokenizer, context)
    decision = dataclasses.asdict(OperatingPoint(margin=0.0))
    own = {"slots": template.describe(), "decision": decision, "responses": False, "sample": list(sample)}
    return write(folder, prism(slow=False) | own, weights=None)


class Fake:
    """An engine of one shape on a thread; `faults` are what happens to the next answers, one after the other."""

    def __init__(self, shape, tokenizer, faults=(), port=0):
        self.shape, self.tokenizer, self.faults, self.asked = shape, tokenizer, list(faults), []
        self.always, self.closed, self.shift, self.elsewhere = None, False, 0.0, None
        self.names, self.headers = iter(()), []  # of the next answers, and of the requests
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # one packet an answer: a second one would wait for the first to be acknowledged

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.reply(200, fake.about(self.path))

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if fake.closed:  # over a connection that was open before
                    self.close_connection = True
                    return None
                if self.path == "/tokenize":
                    text = body["content" if fake.shape == "llamacpp" else "prompt"]
                    return self.reply(200, {"tokens": fake.ids(text)})
                fake.asked.append((self.path, body))
                fake.headers.append(self.headers)
                fault = fake.always or (fake.faults.pop(0) if fake.faults else None)
                if fault in (400, 401, 404, 429, 500, 503):
                    return self.reply(fault, {"error": {"message": "busy"}}, {"Retry-After": "0"})
                if fault == "redirect":
                    return self.reply(307, {}, {"Location": fake.elsewhere + self.path})
                if fault == "hang":
                    time.sleep(3)
                if fault == "slow":
                    time.sleep(0.05)
                answer = getattr(fake, "systemone" if self.path == "/systemone" else fake.shape)(body, fault)
                if (name := next(fake.names, None)) is not None:
                    answer["model"] = name
                if fault == "half":
                    data = json.dumps(answer).encode()
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data[: len(data) // 2])
                    self.close_connection = True
                    return None
                return self.reply(200, answer)

            def reply(self, status, value, headers=()):
                data = json.dumps(value).encode()
                self.send_response(status)
                for name, text in {"Content-Type": "application/json", **dict(headers)}.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128  # who finds no room among those that wait tries again after a second

            def handle_error(self, *_):
                pass  # a client that gave up has closed its connection

        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def name(self):
        return f"{self.shape}:{self.url}"

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def close(self):
        self.closed = True
        self.server.shutdown()
        self.server.server_close()

    def ids(self, text):
        return self.tokenizer.encode(text)

    def about(self, path):
        if path == "/props":
            return {"default_generation_settings": {"n_ctx": SERVED}, "total_slots": 2}
        meta = {"meta": {"n_vocab": self.tokenizer.size}} if self.shape == "llamacpp" else {"max_model_len": SERVED}
        return {"object": "list", "data": [{"id": "served", **meta}]}

    def llamacpp(self, body, fault):
        (yes, bias), (no, same) = body["logit_bias"]
        settings = [body[key] for key in ("n_predict", "temperature", "samplers", "n_probs", "post_sampling_probs")]
        assert settings == [1, 1.0, ["temperature"], 2, True] and bias == same == 100
        p = 1 / (1 + math.exp(-log_odds_of(body["prompt"]) - self.shift))
        rows = [{"id": yes, "prob": p}, {"id": no, "prob": 1 - p}]
        if fault == "missing":
            rows[1]["id"] = no + 1
        if fault == "none":
            rows[1]["prob"] = 0.0
        return {
            "tokens_evaluated": math.inf if fault == "infinite" else len(body["prompt"]) - 7 * (fault == "cut"),
            "timings": {"cache_n": len(body["prompt"]) // 2},
            "completion_probabilities": [{"id": yes, "top_probs": rows}],
        }

    def _log_probabilities(self, prompt, yes, no, fault):
        z = log_odds_of(prompt) + self.shift
        rows = {yes: -1.0 - math.log1p(math.exp(-z)), no: -1.0 - math.log1p(math.exp(z))}
        if fault == "missing":
            rows[no + 1] = rows.pop(no)
        if fault == "none":
            rows[no] = -9999.0
        return rows, len(prompt) - 7 * (fault == "cut")

    def vllm(self, body, fault):
        assert body["return_tokens_as_token_ids"] and body["max_tokens"] == body["logprobs"] == 1
        rows, read = self._log_probabilities(body["prompt"], *body["logprob_token_ids"], fault)
        named = {f"token_id:{token}": value for token, value in rows.items()} | {"token_id:0": -0.1}
        return {
            "choices": [{"logprobs": {"top_logprobs": [named]}}],
            "usage": {"prompt_tokens": read, "prompt_tokens_details": None},
        }

    def decisions(self, body, fault):
        """The Decisions API; `faults` may name a refusal, or a number of answers too few."""
        asked = json.dumps([one["content"] for one in body["input"]])
        answers = [
            {"type": "predicate", "name": one["name"], "probability": self.moved(asked, one["instructions"])}
            for one in body["questions"]
        ]
        if fault == "refusal":
            answers[-1] = {"type": "refusal", "name": None}
        if fault == "need alone":
            answers[1:] = [{"type": "refusal", "name": None}] * len(answers[1:])
        if fault == "few":
            answers.pop()
        if fault == "another order":
            answers.reverse()
        details = {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
        read = len(asked) * len(answers) // 4  # once for each question, as some servers count
        usage = {"input_tokens": read, "output_tokens": len(answers), "total_tokens": 0, **details}
        return {"model": body["model"], "answers": answers, "usage": usage}

    def moved(self, *texts):
        """The probability of yes, moved by `shift` log-odds."""
        p = probability_of(*texts)
        return p if not self.shift else 1 / (1 + (1 - p) / p * math.exp(-self.shift))

    def systemone(self, body, fault):
        """The form of System One; a fault gives an answer that is no noul."""
        asked = json.dumps(body["state"])
        answers = {
            name: {"type": "noul", "noul": fault or probability_of(asked, one["instructions"])}
            for name, one in body["questions"].items()
        }
        return {"model": body["model"], "answers": answers, "usage": {"input_tokens": 6, "output_tokens": 0}}

    def sglang(self, body, fault):
        assert body["return_logprob"] and body["sampling_params"] == {"max_new_tokens": 1, "temperature": 1.0}
        rows, read = self._log_probabilities(body["input_ids"], *body["token_ids_logprob"], fault)
        found = [[value, token, None] for token, value in rows.items()]
        return {"meta_info": {"output_token_ids_logprobs": [found], "prompt_tokens": read, "cached_tokens": read // 2}}


LLAMA = """
import os, sys
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path, params.port, slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
params.n_parallel, params.n_ctx = slots, slots * int(sys.argv[4])
# Its threads spin while they wait, which takes the processor from the tests beside it.
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
if sys.argv[5] == "exact":
    kinds = type(params.cache_type_k)
    params.cache_type_k = params.cache_type_v = kinds.GGML_TYPE_F32
    params.flash_attn_type = type(params.flash_attn_type).LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(params)
print("ready", flush=True)
sys.stdin.read()  # which ends with whoever started it
os._exit(0)
"""


@contextlib.contextmanager
def running(command, port, **settings):
    """A server that answers at /health when it is ready; yields its process, which the caller may kill."""
    environment = os.environ | settings
    nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True, **nowhere) as server:
        try:
            for _ in range(3000):
                assert server.poll() is None, f"{command[0]} has ended"
                with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
                    if answer.status == 200:
                        break
                time.sleep(0.1)
            yield server
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)


def llama_server(path, port, slots=1, context=SERVED, kind="usual"):
    """llama.cpp's HTTP server on a GGUF file."""
    return running([sys.executable, "-c", LLAMA, str(path), str(port), str(slots), str(context), kind], port)


def vllm_server(python, folder, port, context=SERVED):
    """vLLM's HTTP server on an export, in the environment of another Python."""
    command = [python, "-m", "vllm.entrypoints.openai.api_server", f"--model={folder}", f"--max-model-len={context}"]
    command += ["--host=127.0.0.1", f"--port={port}", "--dtype=float32", "--enforce-eager"]
    return running([*command, "--enable-prompt-tokens-details"], port, VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1")


def lowest_blocks(source, target, blocks, form="F32"):
    """Writes the lowest blocks of a GGUF model, dequantised to `form`, with everything that says how to run it."""
    import gguf

    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        value = blocks if name == f"{architecture}.block_count" else field.contents()
        inside = field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(name, value, field.types[0], inside)
    for tensor in reader.tensors:
        if tensor.name.startswith("blk.") and int(tensor.name.split(".")[1]) >= blocks:
            continue
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
