// OpenClaw: asks before a message of a scheduled run is sent, and cancels it where the gate is silent.
//
//   FOLDER=$(python -c 'import prism_jax.agent.adapters as a; print(a.__path__[0])')/openclaw
//   openclaw plugins install --link "$FOLDER" --force && openclaw plugins enable prism-gate
//
// and in openclaw.json {"plugins": {"entries": {"prism-gate": {"config": {"url": "http://localhost:8000"}}}}}; all
// settings are in the manifest.
//
// The hook `message_sending` withholds speech alone: it cancels, or has no objection, and it stands before no tool.
// Answers to a person pass: only sessions of `sessions` are asked about, by default those of cron jobs, and of
// heartbeats in a session of their own. A heartbeat in the main session looks like an answer, and passes.
import { createHash } from "node:crypto";

const SCHEDULED = "(^|:)(cron|heartbeat)(:|$)";
const BACKWARDS = "events are in time order"; // what the server says where a later event came first

function request(config, event, context) {
  const thread = context.sessionKey ?? `openclaw:${event.to}`;
  const stream = config.person ? `${encodeURIComponent(config.person)}/${thread}` : thread; // a stream is one person's
  const words = event.content.slice(0, 100_000).toWellFormed();
  const body = { candidates: [/^\s*(null)?\s*$/i.test(words) ? JSON.stringify(words) : words] };
  if (config.person) body.person = config.person;
  const headers = { "content-type": "application/json", prefer: "handling=lenient" };
  if (config.token) headers.authorization = `Bearer ${config.token}`;
  if (context.runId) {
    const parts = JSON.stringify([context.runId, event.to, event.content]); // without a run, nothing names the message
    headers["idempotency-key"] = createHash("sha256").update(parts).digest("hex");
  }
  if (config.p_accept === undefined) {
    return { path: `/v1/streams/${encodeURIComponent(stream)}/events`, headers, body: { ...body, text: "scheduled" } };
  }
  const numbers = { p_need: config.p_need ?? 1, p_accept: [config.p_accept] };
  return { path: "/v1/decide", headers, body: { ...body, stream, ...numbers } };
}

function post(config, path, headers, body) {
  const signal = AbortSignal.timeout(config.timeout ?? 2000);
  return fetch(config.url.replace(/\/+$/, "") + path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

// Says what would withhold every message; a server that gives no answer yet is taken for one that will.
async function check(config, say) {
  try {
    const { path, headers } = request(config, { to: "check", content: "" }, {});
    const answer = await post(config, path, headers, []); // which holds no event, so that a route that is there refuses it
    const text = await answer.text();
    if (answer.status < 500 && ![408, 422, 429].includes(answer.status)) {
      say(`${path}: status ${answer.status}: ${text}; expected one of \`python -m prism_jax serve --state=DIR\``);
    }
  } catch (error) {
    if (!config.url) say(`url: found none, expected that of the server (${error.message})`);
  }
}

export async function decide(config, event, context) {
  const absent = (why) => ({ speak: config.otherwise === "speak", reason: `no answer of the server: ${why}` });
  const { path, headers, body } = request(config, event, context);
  for (let number = 0; number < 20; number += 1) {
    let answer, text;
    try {
      answer = await post(config, path, headers, { ...body, time: Date.now() / 1000 });
      text = await answer.text();
      const found = answer.ok ? JSON.parse(text) : undefined;
      if (answer.ok) return typeof found?.speak === "boolean" ? found : absent("an answer that is no decision");
    } catch (error) {
      return absent(error.message);
    }
    if (answer.status >= 500 || [408, 429].includes(answer.status)) return absent(`status ${answer.status}`);
    // A hook that throws would let the message be sent, so a refusal is silence, whose reason is what to repair.
    if (!text.includes(BACKWARDS)) return { speak: false, reason: `the server refused: ${text}` };
    await new Promise((done) => setTimeout(done, 2 * number));
  }
  return absent("the last event of the stream is later than this machine's clock");
}

export default {
  id: "prism-gate",
  name: "Prism gate",
  description: "Withholds messages of scheduled runs that are not worth the interruption.",
  register(api) {
    const config = api.pluginConfig ?? {};
    const say = (words) => api.logger?.error?.(`prism-gate: ${words}`);
    check(config, (words) => say(`${words}; every message is withheld until then`));
    let scheduled; // a pattern that is none asks about every session
    try {
      scheduled = new RegExp(config.sessions ?? SCHEDULED);
    } catch (error) {
      say(`sessions: found no regular expression (${error.message}); all are asked about`);
    }
    api.on("message_sending", async (event, context) => {
      if (scheduled && !scheduled.test(context.sessionKey ?? "")) return undefined;
      try {
        const answer = await decide(config, event, context);
        return answer.speak ? undefined : { cancel: true, cancelReason: answer.reason };
      } catch (error) {
        return { cancel: true, cancelReason: `the gate cannot decide: ${error.message}` };
      }
    });
  },
};
