"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const KEY = `prism_jax ${data.digest}`;
let person = "", place = 0, answers = {}; // answers by item and question: [yes, when]

function kept(key) {
  try { return JSON.parse(localStorage.getItem(key)); } catch { return null; }
}
function keep() {
  try {
    localStorage.setItem(KEY, JSON.stringify(person));
    localStorage.setItem(`${KEY} ${person}`, JSON.stringify({ place, answers }));
  } catch { at("trouble").hidden = false; }
}
function make(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}
const text = (words) => make("bdi", { dir: "auto" }, words);
const asked = (item) => ["need", ...data.items[item].proposals.keys()].map(String);
const isDone = (item) => asked(item).every((question) => answers[item]?.[question]);
const openItems = () => [...data.items.keys()].filter((item) => !isDone(item));
const doneCount = () => data.items.length - openItems().length;

function row([time, words, written], now) {
  const seconds = now - time;
  const [unit, size] = [["d", 86400], ["h", 3600], ["min", 60]].find(([, size]) => seconds >= size) ?? ["s", 1];
  const when = written ?? (time === null ? "earlier" : `${Math.round(seconds / size)} ${unit} before`);
  return make("li", {}, make("span", { className: "when" }, when), text(words));
}

function view(id) { // one of the three parts of the page
  for (const part of ["begin", "moment", "end"]) at(part).hidden = part !== id;
  at("change").hidden = id === "begin";
  at("save").hidden = id !== "moment";
  at("who").textContent = id === "begin" ? "" : person;
  scrollTo({ top: 0, behavior: "instant" });
}

function question(name, legend, quote) {
  const choices = [["Yes", true], ["No", false]].map(([words, yes]) =>
    make("label", { className: "answer" }, make("input", {
      type: "radio", name, checked: answers[place]?.[name]?.[0] === yes, onchange: () => answer(name, yes),
    }), words));
  const node = make("fieldset", { className: "question" }, make("legend", {}, legend));
  if (quote) node.append(make("blockquote", { role: "group", ariaLabel: "Proposal" }, text(quote)));
  node.append(make("div", { className: "choices" }, ...choices));
  return node;
}

function show(item, moved = true) {
  place = Math.max(0, Math.min(item, data.items.length));
  keep();
  if (place === data.items.length) {
    at("sum").textContent = `You have answered ${doneCount()} of ${data.items.length} moments.`;
    at("open").hidden = !openItems().length;
    view("end");
    return at("thanks").focus({ preventScroll: true });
  }
  const { stream, event } = data.items[place];
  const events = data.streams[stream], now = events[event], first = Math.max(0, event + 1 - data.most);
  const rows = events.slice(first, event).map((one) => row(one, now[0]));
  if (first) rows.unshift(row([null, `${first} older events are not shown`]));
  at("list").replaceChildren(...rows);
  at("older").hidden = !rows.length;
  at("now").textContent = now[1];
  at("when").textContent = now[2] ? `Now, ${now[2]}` : "Now";
  view("moment");
  ask();
  at("older").scrollTop = at("older").scrollHeight;
  if (moved) at("title").focus({ preventScroll: true });
}

function ask() { // proposals are read after the first question, so that they cannot sway it
  const proposals = answers[place]?.need ? data.items[place].proposals : [];
  at("questions").replaceChildren(question("need", "Would help be wanted now?"), ...proposals.map(([words], n) =>
    question(String(n), `Proposal ${n + 1} of ${proposals.length}: would you accept it?`, words)));
  for (const node of document.querySelectorAll(".events, blockquote")) {
    if (node.scrollHeight > node.clientHeight) node.tabIndex = 0; else node.removeAttribute("tabindex");
  }
  count();
}
function count() {
  at("count").replaceChildren(make("strong", {}, `Moment ${place + 1} of ${data.items.length}`), ` · ${doneCount()} answered`);
  at("progress").value = doneCount();
  at("next").textContent = isDone(place) ? "Next" : "Skip";
  at("next").classList.toggle("strong", isDone(place));
  at("back").disabled = !place;
  at("clear").hidden = !answers[place];
}
function answer(name, yes) {
  const first = name === "need" && !answers[place]?.need;
  (answers[place] ??= {})[name] = [yes, new Date().toISOString().replace("Z", "+00:00")];
  keep();
  if (!first) return count();
  ask();
  document.querySelector("[name=need]:checked").focus({ preventScroll: true });
}

function lines() { // an answer counts at every place of its text; that help is wanted rejects silence
  return data.items.flatMap((item, number) => asked(number).filter((name) => answers[number]?.[name]).flatMap((name) => {
    const [yes, time] = answers[number][name];
    const [places, verdict] = name === "need" ? [item.silence, !yes] : [item.proposals[name][1], yes];
    return places.map(([question, stream, step, candidate]) =>
      `${JSON.stringify({ stream, step, candidate, judge: person, question, verdict, time, prompt: "page" })}\n`);
  })).join("");
}
function download() {
  const url = URL.createObjectURL(new Blob([lines()], { type: "application/jsonl" }));
  make("a", { href: url, download: `votes-${person.replace(/[^\p{L}\p{N}_-]+/gu, "_")}-${data.digest.slice(0, 8)}.jsonl` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

function enter(name, moved) {
  at("name").value = person = name.normalize().trim();
  if (!person) return view("begin");
  ({ place, answers } = kept(`${KEY} ${person}`) ?? { place: 0, answers: {} });
  show(place, moved);
}
at("begin").onsubmit = (event) => { event.preventDefault(); enter(at("name").value); };
at("moment").onsubmit = (event) => { event.preventDefault(); show(place + 1); };
at("moment").onkeydown = (event) => {
  const yes = { y: true, n: false }[event.key.toLowerCase()];
  if (yes === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  const open = () => document.querySelector(".question:not(:has(:checked))");
  (event.target.closest(".question") ?? open())?.querySelectorAll("input")[yes ? 0 : 1].click();
  (open()?.querySelector("input") ?? at("next")).focus();
};
at("back").onclick = at("return").onclick = () => show(place - 1);
at("clear").onclick = () => { delete answers[place]; show(place); };
at("open").onclick = () => show(openItems()[0]);
at("download").onclick = at("finish").onclick = download;
at("change").onclick = () => { view("begin"); at("name").focus(); at("name").select(); };
enter(kept(KEY) ?? "", false);
