"""The plugin for OpenClaw under Node, in the form of 2026.9.6, and with PRISM_OPENCLAW in that package's own hooks.

PRISM_OPENCLAW names what `npm pack openclaw@2026.9.6` unpacks to (95 MB), beside which its own versions of chalk, tslog
and @openclaw/fs-safe are installed. PRISM_NODE names another Node than that of the path.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import uuid

import pytest

import prism_jax.agent.adapters

FOLDER = pathlib.Path(prism_jax.agent.adapters.__file__).parent / "openclaw"
NODE = os.environ.get("PRISM_NODE", "node")
pytestmark = pytest.mark.skipif(shutil.which(NODE) is None, reason="node: found none, expected it to run the plugin")

PLAIN = """
const runner = (handlers) => ({ runMessageSending: (event, context) => handlers[0](event, context) });
"""
OWN = """
import { readdirSync } from "node:fs";
const folder = process.env.PRISM_OPENCLAW + "/dist/";
const names = readdirSync(folder).filter((one) => /^hooks-.*\\.mjs$/.test(one));
const name = names.find((one) => /createHookRunner as t/.test(readFileSync(folder + one)));
const { t: createHookRunner } = await import(folder + name);
const runner = (handlers) => createHookRunner({
  plugins: [], hooks: [],
  typedHooks: handlers.map((handler) => ({ pluginId: "prism", hookName: "message_sending", handler, priority: 0 })),
});
"""
PROGRAM = """
import { readFileSync } from "node:fs";
import plugin from "PLUGIN";
const found = [];
for (const [config, ...messages] of JSON.parse(readFileSync(process.argv[2]))) {
  const handlers = [];
  plugin.register({ pluginConfig: config, on: (name, handler) => handlers.push([name, handler]), logger: console });
  if (handlers.length !== 1 || handlers[0][0] !== "message_sending") throw new Error("expected one handler");
  const own = runner([handlers[0][1]]);
  for (const message of messages) found.push((await own.runMessageSending(...message)) ?? null);
}
console.log(JSON.stringify(found));
"""
OWNS = pytest.mark.skipif("PRISM_OPENCLAW" not in os.environ, reason="PRISM_OPENCLAW names no package of OpenClaw")


@pytest.fixture
def session():
    """The key of a cron job's session."""
    return f"agent:main:cron:{uuid.uuid4()}"


@pytest.fixture(params=[PLAIN, pytest.param(OWN, marks=OWNS)], ids=["plain", "openclaw"])
def send(request, tmp_path):
    """Sends messages, which stand behind the settings of their plugin; returns what the hooks answer and log."""
    program, given = tmp_path / "program.mjs", tmp_path / "given.json"
    program.write_text(request.param + PROGRAM.replace("PLUGIN", str(FOLDER / "index.js")))

    def call(*plugins):
        given.write_text(json.dumps(plugins))
        done = subprocess.run([NODE, str(program), str(given)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), done.stderr

    return call


def message(content, session, **context):
    event = {"to": "chat-1", "content": content, "metadata": {"channel": "telegram"}}
    return event, {"channelId": "telegram", "conversationId": "chat-1", "sessionKey": session, **context}


def cancelled(answer):
    return None if answer is None else (answer["cancel"], answer.get("cancelReason"))


def test_scheduled_messages_are_cancelled_where_the_gate_is_silent_and_answers_pass(send, server, records, session):
    answer = message("You asked: it is 9.", "agent:main:telegram:direct:ada")
    quiet = {"url": server.url, "p_accept": 0.1, "person": "ada"}
    (silent, *passed), said = send(
        [quiet, message("3 new mails", session), answer, message("No session", None)],
        [{"url": server.url, "p_accept": 0.9}, message("Fire!", f"{uuid.uuid4()}:heartbeat")],
    )
    assert cancelled(silent)[0] is True and cancelled(silent)[1].startswith("silent: 0.1")
    assert passed == [None] * 3 and not said
    (record,) = records(f"ada/{session}")
    assert record["candidate"] == "3 new mails" and record["person"]["name"] == "ada"


def test_a_run_that_is_delivered_again_gets_the_same_answer(send, server, records, session):
    again = message("Again", session, runId="run-1")
    first, _ = send([{"url": server.url, "p_accept": 0.1}, again])
    assert cancelled(first[0])[0] is True
    assert send([{"url": server.url, "p_accept": 0.99}, again])[0] == first
    assert len(records(session)) == 1


def test_an_outage_and_a_refusal_are_silence_unless_the_host_wants_speech(send, server, nowhere, session):
    away = {"url": nowhere, "p_accept": 0.9}
    (absent, speech, refused), _ = send(
        [away, message("a", session)],
        [away | {"otherwise": "speak"}, message("b", session)],
        [{"url": server.url, "p_accept": 2, "otherwise": "speak"}, message("c", session)],
    )
    assert absent["cancel"] and absent["cancelReason"].startswith("no answer of the server") and speech is None
    assert refused["cancel"] and "found 2, expected a number from 0 to 1" in refused["cancelReason"]


def test_what_is_missing_is_said_at_the_start(send, answering, session):
    elsewhere = answering(404, {"error": {"message": "found no such route"}})
    answers, said = send([{"url": elsewhere, "p_accept": 0.9}, message("a", session)], [{}, message("a", session)])
    assert all(answer["cancel"] for answer in answers)
    assert "prism-gate: /v1/decide: status 404: " in said and "serve --state=DIR" in said
    assert "prism-gate: url: found none" in said


def test_whatever_fails_in_the_hook_withholds(send, server, session):
    """One that throws would let the message be sent."""
    event, context = message("a", session)
    del event["content"]
    (broken, asked), _ = send(
        [{"url": server.url, "p_accept": 0.9}, (event, context)],
        [{"url": server.url, "p_accept": 0.1, "sessions": "("}, message("b", "agent:main:telegram:direct:ada")],
    )
    assert broken["cancel"] and broken["cancelReason"].startswith("the gate cannot decide")
    assert asked["cancel"], "a pattern that is none asks about every session"


def test_every_text_is_taken_and_a_clock_that_stays_behind_is_an_outage(send, server, session):
    ahead = {"stream": session, "time": 1e10, "p_need": 1.0, "p_accept": 0.9}
    assert server.ask("/v1/decide", ahead)[0] == 200
    texts = ("null", "", "\ud83d", "Tea? ☕", "☕" * 500_000)
    messages = [message(text, f"{session}:texts") for text in texts]
    (*taken, late), _ = send([{"url": server.url, "p_accept": 0.9}, *messages, message("Now?", session)])
    assert taken == [None] * len(texts)
    assert late["cancel"] and "later than this machine's clock" in late["cancelReason"]


def test_the_manifest_names_every_setting_that_the_plugin_reads():
    manifest = json.loads((FOLDER / "openclaw.plugin.json").read_text())
    source = (FOLDER / "index.js").read_text()
    assert set(re.findall(r"config\.(\w+)", source)) == set(manifest["configSchema"]["properties"])
    assert f'id: "{manifest["id"]}"' in source
    assert json.loads((FOLDER / "package.json").read_text())["openclaw"]["extensions"] == ["./index.js"]
