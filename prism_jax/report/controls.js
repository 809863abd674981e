"use strict";
// The control surface. Where all signals are as calibrated, counts are sums over the library's exact table; at another
// temperature, and for one stream, the gate's comparison is made here step by step, in float64 as in the library.
{
  const data = JSON.parse(document.getElementById("control-data").textContent);
  const COUNTS = ["tp", "fp", "fn", "rejected", "offers", "slow"];
  const K = data.ratios.length, SLOW = data.rows.p.length > 2;
  const AS_CALIBRATED = data.temperatures.indexOf(1);
  const $ = (id) => document.getElementById(id);

  // ---- The data

  const rows = {
    p: data.rows.p.map(floats),
    z: data.rows.z.map(floats),
    labels: Uint8Array.from(data.rows.labels, (digit) => number(digit.charCodeAt(0))),
    group: data.rows.group,
    step: data.rows.step,
  };
  const tables = data.tables.map((table) => ({
    ...table,
    counts: Object.fromEntries(COUNTS.map((name) => [name, summed(table.counts[name])])),
  }));

  function floats(text) {
    return new Float64Array(Uint8Array.from(atob(text), (byte) => byte.charCodeAt(0)).buffer);
  }

  // Differences along the ratios back to counts.
  function summed(differences) {
    const counts = Float64Array.from(differences);
    for (let i = 0; i < counts.length; i++) if (i % K) counts[i] += counts[i - 1];
    return counts;
  }

  // The number that one digit of 0-9, a-z, A-Z stands for.
  function number(code) {
    return code - (code < 58 ? 48 : code < 91 ? 29 : 87);
  }

  // How many settings, from the first, think slowly at this row and ratio.
  function reach(table, row, ratio) {
    return number(table.reach.charCodeAt(row * K + ratio));
  }

  // ---- The library's formulas: gate.intervene, gate.slow_band and calibration.apply_temperature at C_FA = 1

  function intervenes(need, accept, ratio) {
    const both = accept * need;
    return 1 - accept <= both * ratio && both > 0;
  }

  function withinMargin(need, accept, ratio, margin) {
    const high = accept + margin, low = accept - margin;
    return 1 - high <= high * need * ratio && 1 - low >= low * need * ratio && margin > 0;
  }

  function tempered(signal, row, temperature) {
    const p = rows.p[signal][row];
    if (temperature === 1 || p === 0 || p === 1 || p === 0.5) return p;
    const z = rows.z[signal][row] / temperature, tail = Math.exp(-Math.abs(z));
    return (z >= 0 ? 1 : tail) / (1 + tail);
  }

  // ---- Decisions and counts at a point: { table, setting, ratio, need, accept }, the last two temperatures

  function decide(row, at) {
    const ratio = data.ratios[at.ratio];
    let need = tempered(0, row, at.need), accept = tempered(1, row, at.accept);
    const slow = at.table.trigger === "margin" ? withinMargin(need, accept, ratio, at.table.settings[at.setting])
      : at.table.trigger === "value" && at.setting < reach(at.table, row, at.ratio);
    if (slow) [need, accept] = [tempered(2, row, at.need), tempered(3, row, at.accept)];
    return { need, accept, slow, offer: intervenes(need, accept, ratio), ...labelsOf(row, slow) };
  }

  // Labels are 0, 1 or 2 for unknown; a step is judged if those of both passes' candidates are known. Silence counts
  // with the best candidate's.
  function labelsOf(row, slow) {
    const [yNeed, fast, thought, yBest] = [1, 3, 9, 27].map((place) => Math.floor(rows.labels[row] / place) % 3);
    return { yNeed, yAccept: slow ? thought : fast, yFast: fast, yBest, judged: yNeed < 2 && fast < 2 && thought < 2 };
  }

  function countRows(chosen, at) {
    const total = { steps: chosen.length, judged: 0, gold: 0, refused: 0, tp: 0, fp: 0, fn: 0, rejected: 0, offers: 0, slow: 0 };
    for (const row of chosen) {
      const one = decide(row, at);
      total.offers += one.offer;
      total.slow += one.slow;
      if (!one.judged) continue;
      total.judged += 1;
      total.gold += one.yNeed * one.yBest;
      total.refused += 1 - one.yFast;
      const gold = one.yNeed * one.yAccept;
      if (one.offer) {
        total.tp += gold;
        total.fp += 1 - gold;
        total.rejected += 1 - one.yAccept;
      } else total.fn += one.yNeed * one.yBest;
    }
    return total;
  }

  function countGroups(groups, at) {
    const total = { steps: 0, judged: 0, gold: 0, refused: 0, tp: 0, fp: 0, fn: 0, rejected: 0, offers: 0, slow: 0 };
    for (const group of groups) {
      for (const name of ["steps", "judged", "gold", "refused"]) total[name] += data[name][group];
      const place = (group * at.table.settings.length + at.setting) * K + at.ratio;
      for (const name of COUNTS) total[name] += at.table.counts[name][place];
    }
    return total;
  }

  // The mean of C_FA a (1 - y_accept) + C_FN (1 - a) y_need y_best, as `Surface.realised_cost` computes it.
  function realisedCost(total, ratio) {
    return data.cFa * (total.rejected + ratio * total.fn) / total.judged;
  }

  // ---- The inputs

  const TEMPERATURES = [...(data.hasNeed ? ["need-temperature"] : []), "accept-temperature"];
  const inputs = Object.fromEntries(["ratio", "trigger", "setting", ...TEMPERATURES, "domain", "persona", "stream", "only-stream"].map((id) => [id, $(id)]));
  const WORDS = { none: "never: there is no slow pass", margin: "near the threshold", value: "where worth its price" };

  function option(select, value, text) {
    const made = document.createElement("option");
    made.value = value;
    made.textContent = text;
    select.append(made);
  }

  function setUp() {
    tables.forEach((table, index) => option(inputs.trigger, index, WORDS[table.trigger]));
    for (const name of ["domain", "persona"]) {
      const column = data.columns.indexOf(name);
      $(`${name}-row`).hidden = column < 0;
      option(inputs[name], "", "all");
      if (column >= 0) for (const value of [...new Set(data.groups.map((group) => group[column]))].sort()) option(inputs[name], `=${value}`, value);
    }
    inputs.ratio.max = K - 1;
    for (const name of TEMPERATURES) {
      inputs[name].max = data.temperatures.length - 1;
      $(`${name}-row`).hidden = !data.complete;
    }
    for (const name of ["trigger-row", "setting-row"]) $(name).hidden = !SLOW;
    $("trigger-row").hidden = tables.length < 2;
    reset();
    $("panel").addEventListener("input", (event) => {
      if (event.target === inputs.trigger) chooseTrigger();
      if (event.target === inputs.domain || event.target === inputs.persona) listStreams();
      update();
    });
    $("reset").addEventListener("click", () => { reset(); update(); });
    $("previous").addEventListener("click", () => walk(-1));
    $("next").addEventListener("click", () => walk(1));
    $("explore").hidden = false;
    $("one-stream").hidden = true;
    update();
  }

  function reset() {
    inputs.ratio.value = data.ratio;
    inputs.trigger.value = 0;
    chooseTrigger();
    for (const name of TEMPERATURES) inputs[name].value = AS_CALIBRATED;
    inputs.domain.value = inputs.persona.value = "";
    inputs["only-stream"].checked = false;
    listStreams();
  }

  function chooseTrigger() {
    const table = tables[inputs.trigger.value], byValue = table.trigger === "value";
    inputs.setting.max = table.settings.length - 1;
    inputs.setting.value = table.deployed;
    document.querySelector("label[for=setting]").textContent = byValue ? "Price of thinking" : "Margin";
    $("setting-hint").textContent = byValue ? "cost of one slow token, in units of C_FA; 0 always thinks" : "distance from the threshold; 0 never thinks, 1 always";
    // How much thinking saves was computed at the calibrated signals.
    for (const name of TEMPERATURES) {
      if (byValue) inputs[name].value = AS_CALIBRATED;
      inputs[name].disabled = byValue;
    }
  }

  function chosenGroups() {
    const wanted = ["domain", "persona"].filter((name) => inputs[name].value);
    return data.groups.map((_, index) => index).filter((index) =>
      wanted.every((name) => `=${data.groups[index][data.columns.indexOf(name)]}` === inputs[name].value));
  }

  function listStreams() {
    const groups = new Set(chosenGroups()), before = inputs.stream.value;
    inputs.stream.replaceChildren();
    data.streams.forEach((stream, index) => {
      if (groups.has(rows.group[stream.rows[0]])) option(inputs.stream, index, stream.name);
    });
    if ([...inputs.stream.options].some((one) => one.value === before)) inputs.stream.value = before;
  }

  function walk(way) {
    const count = inputs.stream.options.length;
    inputs.stream.selectedIndex = (inputs.stream.selectedIndex + way + count) % count;
    update();
  }

  // ---- What is shown

  // Rounds as Python does: an exact tie goes to the even digit.
  function fixed(value, digits) {
    if (!Number.isFinite(value)) return "–";
    const rounded = value.toFixed(digits), exact = Math.abs(value).toFixed(60).split(".")[1].slice(digits);
    if (!/^50*$/.test(exact) || "02468".includes(rounded.at(-1))) return rounded;
    return (value - Math.sign(value) * 0.5 * 10 ** -digits).toFixed(digits);
  }

  const compact = (value) => String(Number(value.toPrecision(3)));
  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

  function put(id, value, text, note) {
    $(id).textContent = text;
    $(id).dataset.value = value;
    if (note !== undefined) $(`${id}-note`).textContent = note;
  }

  function label(name, text) {
    $(`${name}-value`).textContent = text;
    inputs[name].setAttribute("aria-valuetext", text);
  }

  function update() {
    const table = tables[inputs.trigger.value], stream = data.streams[inputs.stream.value];
    const at = {
      table, setting: Number(inputs.setting.value), ratio: Number(inputs.ratio.value),
      need: data.hasNeed ? data.temperatures[inputs["need-temperature"].value] : 1, accept: data.temperatures[inputs["accept-temperature"].value],
    };
    label("ratio", compact(data.ratios[at.ratio]));
    label("setting", table.settings[at.setting] === 0 || table.trigger === "margin" ? compact(table.settings[at.setting]) : table.settings[at.setting].toExponential());
    if (data.hasNeed) label("need-temperature", `× ${at.need}`);
    label("accept-temperature", `× ${at.accept}`);
    const groups = chosenGroups(), ofStream = stream ? span(stream) : [], alone = inputs["only-stream"].checked;
    const member = new Set(groups), calibrated = at.need === 1 && at.accept === 1;
    const chosen = alone ? ofStream : calibrated ? null : rows.group.map((_, row) => row).filter((row) => member.has(rows.group[row]));
    const count = (point) => chosen ? countRows(chosen, point) : countGroups(groups, point);
    numbers(count(at), at);
    drawCurve($("curve"), at, data.ratios.map((_, ratio) => count({ ...at, ratio })));
    showStream(stream, ofStream.map((row) => ({ row, ...decide(row, at) })), at);
  }

  function span(stream) {
    return Array.from({ length: stream.rows[1] }, (_, i) => stream.rows[0] + i);
  }

  function numbers(total, at) {
    const cost = realisedCost(total, data.ratios[at.ratio]);
    put("cost", cost, fixed(cost, 4), `always ${fixed(data.cFa * total.refused / total.judged, 4)}, never ${fixed(data.cFa * data.ratios[at.ratio] * total.gold / total.judged, 4)}`);
    const share = (id, part, whole, note) => put(id, part / whole, fixed(100 * (part / whole), 1), note);
    share("offer-rate", total.offers, total.steps, `${total.offers} of ${plural(total.steps, "step")}`);
    share("slow-rate", total.slow, total.steps, SLOW ? `${total.slow} of ${plural(total.steps, "step")}` : "no slow pass");
    share("recall", total.tp, total.tp + total.fn, `${total.tp} of ${total.tp + total.fn} gold`);
    share("dismissed", total.rejected, total.tp + total.fp, `${total.rejected} of ${plural(total.tp + total.fp, "offer")}`);
    if (data.hasNeed) share("false-alarm", total.fp, total.tp + total.fp, `${total.fp} of ${plural(total.tp + total.fp, "offer")}`);
    for (const name of ["tp", "fp", "fn"]) put(name, total[name], String(total[name]));
    const tn = total.judged - total.tp - total.fp - total.fn;
    put("tn", tn, String(tn));
    $("counted").textContent = `${plural(total.judged, "step")} judged, of ${total.steps}.`;
  }

  // ---- Figures

  function draw(name, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function replace(place, svg) {
    const focused = place.firstElementChild && place.firstElementChild === document.activeElement;
    place.replaceChildren(svg);
    window.answerToPointerAndFocus(svg);
    if (focused) svg.focus();
  }

  function path(points, kind) {
    return draw("path", { class: kind, d: points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("") });
  }

  function drawCurve(place, at, totals) {
    const costOfRule = (name, i) => {
      const ratio = data.ratios[i], total = totals[i];
      const cost = { gate: total.rejected + ratio * total.fn, always: total.refused, never: ratio * total.gold }[name];
      return data.cFa * cost / total.judged;
    };
    const low = Math.log(data.ratios[0]), high = Math.log(data.ratios[K - 1]);
    const top = Math.max(1e-9, ...totals.map((_, i) => Math.max(costOfRule("gate", i), Math.min(costOfRule("always", i), costOfRule("never", i))))) * 1.25;
    const x = (ratio) => 40 + 310 * (Math.log(ratio) - low) / (high - low);
    const y = (cost) => 190 - 176 * Math.min(cost, top) / top;
    const svg = draw("svg", { viewBox: "0 0 360 214", role: "img", "aria-label": "Realised cost of the gate, of always and of never offering, at every cost ratio" });
    for (const tick of [0.1, 0.2, 0.5, 1, 2, 5, 10]) {
      svg.append(draw("path", { class: "grid", d: `M${x(tick)} 14V190` }), draw("text", { x: x(tick), y: 207, "text-anchor": "middle" }, compact(tick)));
    }
    const unit = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5].map((one) => one * data.cFa).find((one) => top / one <= 5) ?? top / 2;
    for (let tick = 0; tick <= top; tick += unit) {
      svg.append(draw("path", { class: "grid", d: `M40 ${y(tick)}H350` }), draw("text", { x: 34, y: y(tick), dy: 4, "text-anchor": "end" }, compact(tick)));
    }
    for (const name of ["always", "never"]) {
      const points = data.ratios.map((ratio, i) => [x(ratio), y(costOfRule(name, i)), costOfRule(name, i)]).filter((point) => point[2] <= top);
      if (!points.length) continue;
      // The name stands where the line leaves the figure, or ends, at its top.
      const end = name === "always" ? points[0] : points.at(-1);
      const anchor = end[0] > 300 ? "end" : "start";
      svg.append(path(points, `constant ${name}`), draw("text", { x: end[0] + (anchor === "end" ? 0 : 6), y: Math.max(end[1] + (anchor === "end" ? -6 : 10), 10), "text-anchor": anchor }, name));
    }
    svg.append(path(data.ratios.map((ratio, i) => [x(ratio), y(costOfRule("gate", i))]), "line accept"));
    svg.append(draw("path", { class: "chosen", d: `M${x(data.ratios[at.ratio])} 14V190` }));
    data.ratios.forEach((ratio, i) => {
      const mark = draw("circle", { class: i === at.ratio ? "dot accept" : "point accept", cx: x(ratio), cy: y(costOfRule("gate", i)), r: i === at.ratio ? 5 : 2.5 });
      mark.dataset.tip = `ratio ${compact(ratio)}: gate ${fixed(costOfRule("gate", i), 4)}, always ${fixed(costOfRule("always", i), 4)}, never ${fixed(costOfRule("never", i), 4)}`;
      svg.append(mark);
    });
    replace(place, svg);
  }

  const word = (value) => ["no", "yes", "unknown"][value];
  const costOf = (one, at) => !(one.yNeed < 2 && one.yAccept < 2) ? "?"
    : compact(one.offer ? data.cFa * (1 - one.yAccept) : data.cFa * data.ratios[at.ratio] * one.yNeed * one.yBest);
  const otherOf = (one) => one.judged && !one.offer && one.yBest > one.yAccept ? ", another offer yes" : "";
  const thresholdOf = (one, at) => one.need > 0 ? 1 / (1 + one.need * data.ratios[at.ratio]) : Infinity;

  function sentence(one, at) {
    const threshold = thresholdOf(one, at), reached = Number.isFinite(threshold) ? fixed(threshold, 3) : "unreachable";
    const [signal, told] = data.hasNeed ? [`p_need ${fixed(one.need, 3)}, `, `need ${word(one.yNeed)}, `] : ["", ""];
    return `step ${rows.step[one.row]}: ${signal}p_accept ${fixed(one.accept, 3)}, threshold ${reached}, ` +
      `${one.offer ? "offer" : "silent"}${one.slow ? " after thinking slowly" : ""}; ${told}accept ${word(one.yAccept)}${otherOf(one)}, cost ${costOf(one, at)}`;
  }

  function showStream(stream, moments, at) {
    $("stream-title").replaceChildren("Stream ", Object.assign(document.createElement("bdi"), { textContent: stream.name }),
      `: ${plural(moments.filter((one) => one.offer).length, "offer")} at ${plural(moments.length, "step")}`);
    drawStream($("stream-figure"), moments, at);
    const byRow = new Map(moments.map((one) => [one.row, one]));
    $("moments").replaceChildren(...stream.events.map(([row, time, text]) => momentRow(byRow.get(row), time, text, at)));
  }

  function drawStream(place, moments, at) {
    const width = Math.max(640, 90 + 24 * moments.length), step = (width - 76) / moments.length;
    const x = (i) => 56 + step * (i + 0.5), y = (p) => 184 - 170 * p;
    const svg = draw("svg", { viewBox: `0 0 ${width} 266`, width: Math.round(width * 0.9), role: "img", "aria-label": `${data.hasNeed ? "Need, acceptance" : "Acceptance"}, threshold and decision at each step; the table below holds the same numbers` });
    for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
      svg.append(draw("path", { class: "grid", d: `M56 ${y(tick)}H${width - 20}` }), draw("text", { x: 48, y: y(tick), dy: 4, "text-anchor": "end" }, String(tick)));
    }
    const thresholds = moments.flatMap((one, i) => { const level = y(Math.min(thresholdOf(one, at), 1)); return [[x(i - 0.5), level], [x(i + 0.5), level]]; });
    svg.append(path(thresholds, "threshold"));
    if (data.hasNeed) svg.append(path(moments.map((one, i) => [x(i), y(one.need)]), "line need"));
    svg.append(path(moments.map((one, i) => [x(i), y(one.accept)]), "line accept"));
    if (data.hasNeed) moments.forEach((one, i) => svg.append(draw("rect", { class: "dot need", x: x(i) - 4, y: y(one.need) - 4, width: 8, height: 8 })));
    for (const [name, level] of [["offer", 214], ["slow", 236], ["step", 260]]) if (name !== "slow" || SLOW) svg.append(draw("text", { x: 48, y: level, "text-anchor": "end" }, name));
    moments.forEach((one, i) => {
      const told = [draw("circle", { class: `${one.offer ? "dot" : "ring"} accept`, cx: x(i), cy: y(one.accept), r: 5.5 }), draw("circle", { class: one.offer ? "dot accept" : "hollow", cx: x(i), cy: 210, r: 7 })];
      for (const mark of told) mark.dataset.tip = sentence(one, at);
      svg.append(...told, draw("text", { x: x(i), y: 260, "text-anchor": "middle" }, String(rows.step[one.row])));
      if (one.slow) svg.append(draw("text", { class: "strong", x: x(i), y: 236, "text-anchor": "middle" }, "slow"));
    });
    replace(place, svg);
  }

  function momentRow(one, time, text, at) {
    const made = document.createElement("tr");
    const cell = (content, kind) => {
      const td = document.createElement("td");
      td.append(content);
      if (kind) td.className = kind;
      made.append(td);
    };
    const event = Object.assign(document.createElement("bdi"), { textContent: text });
    if (!one) {
      made.className = "quiet";
      for (const [content, kind] of [["", ""], [time, ""], [event, "what"], ...Array(data.hasNeed ? 7 : 5).fill(["", ""])]) cell(content, kind);
      return made;
    }
    const ofNeed = (cell) => data.hasNeed ? [cell] : [];
    const threshold = thresholdOf(one, at), decision = document.createElement("span");
    decision.className = `pill ${one.offer ? "offer" : "silent"}`;
    decision.textContent = one.offer ? "offer" : "silent";
    const said = document.createElement("span");
    said.append(decision, one.slow ? " slow" : "");
    const cells = [[String(rows.step[one.row]), ""], [time, ""], [event, "what"], ...ofNeed([fixed(one.need, 3), ""]), [fixed(one.accept, 3), ""],
      [Number.isFinite(threshold) ? fixed(threshold, 3) : "unreachable", ""], [said, "left"], ...ofNeed([word(one.yNeed), word(one.yNeed)]), [word(one.yAccept), word(one.yAccept)], [costOf(one, at), ""]];
    for (const [content, kind] of cells) cell(content, kind);
    return made;
  }

  setUp();
}
