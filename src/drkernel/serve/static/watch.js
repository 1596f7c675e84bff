"use strict";
// The page to watch: asks for the state every two seconds, and for the latest jobs when something changed.
const STATES = { queued: "waiting", leased: "running", cancelled: "cancelled" };
const SPAN_S = 1800, BIN_S = 30;
const byId = (id) => document.getElementById(id);

function element(tag, text, cls) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text; // textContent only: names and sources are hostile
  if (cls) made.className = cls;
  return made;
}

function shape(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function seconds(value) {
  if (value === undefined || value === null) return "–";
  if (value < 1) return (1000 * value).toFixed(0) + " ms";
  if (value < 120) return value.toFixed(value < 10 ? 1 : 0) + " s";
  return value < 7200 ? (value / 60).toFixed(0) + " min" : (value / 3600).toFixed(1) + " h";
}

function ago(value, now) {
  return value ? seconds(Math.max(0, now - value)) : "";
}

function figures(state) {
  const jobs = state.counts.state;
  const shown = [
    [jobs.queued || 0, "waiting"], [jobs.leased || 0, "running"], [jobs.done || 0, "done"],
    [state.throughput.toFixed(1), "verdicts a second"],
    [seconds(state.latency.p50), "median latency"], [seconds(state.latency.p95), "95% within"],
  ];
  byId("figures").replaceChildren(...shown.map(([value, label]) => {
    const box = element("div");
    box.append(element("b", value), element("span", label));
    return box;
  }));
}

function mix(counts) {
  const total = Object.values(counts).reduce((a, b) => a + b, 0) || 1;
  const names = Object.keys(counts).filter((name) => counts[name]).sort((a, b) => counts[b] - counts[a]);
  byId("mix").replaceChildren(...names.map((name) => {
    const part = element("i", undefined, "mark " + name);
    part.style.width = (100 * counts[name] / total) + "%";
    return part;
  }));
  byId("mix-legend").replaceChildren(...names.map((name) => {
    const item = element("span"), share = 100 * counts[name] / total;
    item.append(element("i", undefined, "mark " + name),
      `${name.replaceAll("_", " ")} ${counts[name]} (${share < 1 ? "<1" : share.toFixed(0)}%)`);
    return item;
  }));
  if (!names.length) byId("mix-legend").replaceChildren(element("span", "no verdict yet", "dim"));
}

// ---- the two plots over the last half hour: x in seconds before now, y from 0 to a round top

function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-3)));
  return [1, 2, 5, 10].find((k) => k * power >= value) * power;
}

function frame(id, top, label) {
  const svg = byId(id), width = svg.clientWidth || 300, height = svg.clientHeight || 140;
  const left = 52, bottom = 18, x = (age) => width - (width - left) * age / SPAN_S, y = (v) => 6 + (height - bottom - 6) * (1 - v / top);
  svg.replaceChildren();
  for (const share of [0, 0.5, 1]) {
    svg.append(shape("line", { class: "grid", x1: left, x2: width, y1: y(share * top), y2: y(share * top) }),
      shape("text", { x: left - 6, y: y(share * top) + 4, "text-anchor": "end" }, label(share * top)));
  }
  for (const minutes of [30, 20, 10, 0]) {
    const anchor = minutes === 30 ? "start" : minutes ? "middle" : "end";
    svg.append(shape("text", { x: x(60 * minutes), y: height - 3, "text-anchor": anchor }, minutes ? `-${minutes} min` : "now"));
  }
  return { svg, x, y };
}

function binned(state) {
  const bins = new Map();
  for (const [start, count, failed, p50, p95] of state.history) {
    const age = state.now - start;
    if (age > SPAN_S) continue;
    const at = Math.floor(start / BIN_S) * BIN_S;
    const bin = bins.get(at) || { at, count: 0, failed: 0, p50: 0, p95: 0 };
    bin.p50 = (bin.p50 * bin.count + p50 * count) / (bin.count + count); // of the ten-second medians, weighted
    bin.p95 = Math.max(bin.p95, p95);
    bin.count += count;
    bin.failed += failed;
    bins.set(at, bin);
  }
  return [...bins.values()].sort((a, b) => a.at - b.at);
}

function plots(state) {
  const bins = binned(state);
  byId("plots").hidden = !bins.length;
  if (!bins.length) return;
  const most = Math.max(...bins.map((bin) => bin.count / BIN_S));
  const rate = frame("throughput", niceTop(most), (v) => String(+v.toPrecision(2)));
  for (const bin of bins) {
    const right = rate.x(Math.max(0, state.now - bin.at - BIN_S)), left = rate.x(Math.min(SPAN_S, state.now - bin.at));
    for (const [cls, count] of [["bar", bin.count], ["bar failed", bin.failed]]) {
      if (!count) continue;
      const y = rate.y(count / BIN_S);
      rate.svg.append(shape("rect", { class: cls, x: left, width: Math.max(1, right - left - 1), y, height: rate.y(0) - y }));
    }
  }
  byId("throughput-note").textContent = `bins of ${BIN_S} s, highest ${+most.toPrecision(2)}; red: infrastructure errors`;
  const slowest = Math.max(...bins.map((bin) => bin.p95));
  const wait = frame("latency", niceTop(slowest), (v) => seconds(v));
  for (const name of ["p95", "p50"]) {
    const points = bins.map((bin) => [wait.x(Math.max(0, state.now - bin.at - BIN_S / 2)), wait.y(bin[name])]);
    wait.svg.append(...points.map(([x, y]) => shape("circle", { class: name, cx: x, cy: y, r: 1.5 })));
    wait.svg.append(shape("polyline", { class: name, points: points.map((p) => p.map((v) => v.toFixed(1)).join()).join(" ") }));
  }
  byId("latency-note").textContent = "strong: median, pale: 95th percentile";
}

function health(worker, state) {
  if (worker.quarantined) return ["quarantined", "bad"];
  if (worker.lost) return ["lost", "bad"];
  if (worker.kind === "remote" && state.now - worker.seen > state.lease_s) return ["silent " + ago(worker.seen, state.now), "warn"];
  if (worker.in_a_row) return [`${worker.in_a_row} failures in a row`, "warn"];
  return ["well", "up"];
}

function workers(state) {
  const first = [...state.workers].sort((a, b) => b.quarantined - a.quarantined);
  byId("workers").replaceChildren(...first.map((worker) => {
    const row = element("tr", undefined, worker.quarantined ? "out" : ""), [text, cls] = health(worker, state), name = element("td", worker.name, "name");
    name.title = worker.name;
    const cell = element("td", text, cls);
    if (cls !== "up" && worker.note) cell.append(element("div", worker.note, "note"));
    row.append(name, element("td", worker.kind, "wide"), element("td", worker.slots, "r wide"), element("td", worker.done, "r"),
      element("td", worker.failed, "r"), cell);
    return row;
  }));
  if (!state.workers.length) empty("workers", 6, "no worker has joined: drkernel worker URL");
}

function empty(id, columns, text) {
  const row = element("tr"), cell = element("td", text, "dim");
  cell.colSpan = columns;
  row.append(cell);
  byId(id).replaceChildren(row);
}

function queue(state) {
  byId("queue").replaceChildren(...state.queue.slice(0, 12).map((line) => {
    const row = element("tr"), name = element("td", line.client, "name");
    name.title = line.client;
    row.append(name, element("td", line.waiting, "r"), element("td", line.running, "r"), element("td", ago(line.since, state.now), "r"));
    return row;
  }));
  if (!state.queue.length) empty("queue", 4, "nobody waits");
}

function wish() {
  const query = new URLSearchParams();
  if (byId("task").value) query.set("task", byId("task").value);
  if (byId("status").value) query.set("status", byId("status").value);
  return query;
}

// ---- the table of jobs: what a column is sorted by, and how a job looks

const KEYS = {
  status: (job) => job.status || job.state, task: (job) => job.task_id, device: (job) => job.device, client: (job) => job.client,
  speedup: (job) => (job.result || {}).speedup, coverage: (job) => (job.result || {}).coverage,
  took: (job) => job.finished && job.finished - job.submitted, submitted: (job) => job.submitted,
};
let shown = [], order = { by: "submitted", down: true };

function sorted(rows) {
  const key = KEYS[order.by], sign = order.down ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [x, y] = [key(a), key(b)], [lacks, lacked] = [x === undefined || x === null, y === undefined || y === null];
    if (lacks || lacked) return lacks - lacked; // what has no value comes last, whichever way
    return sign * (typeof x === "string" ? x.localeCompare(y) : x - y);
  });
}

function jobRow(job, today) {
  const row = element("tr"), cell = element("td", undefined, "name"), link = element("a", job.task_id), found = job.result || {};
  link.href = "/jobs/" + encodeURIComponent(job.id);
  link.title = job.task_id;
  cell.append(link);
  const at = found.timed_at && found.timed_at !== found.checked_at ? `timed at ${found.timed_at}, checked at ${found.checked_at}`
    : found.timed_at || found.checked_at;
  if (found.hacks && found.hacks.length) cell.append(element("div", found.hacks.join(", "), "sub"));
  if (at) cell.append(element("div", at, "sub"));
  if (found.untimed) cell.append(element("div", found.untimed, "sub warn"));
  cell.title = at || "";
  const has = (value) => value !== undefined && value !== null;
  const speed = has(found.speedup) ? (found.timing_kind === "modelled" ? "~" : "") + times(found.speedup) : "";
  const took = job.finished ? seconds(job.finished - job.submitted) : "", when = new Date(job.submitted * 1000);
  const status = element("td");
  status.append(element("span", (job.status || STATES[job.state] || job.state).replaceAll("_", " "), job.status ? "mark tag " + job.status : "dim"));
  row.append(status, cell,
    element("td", speed, has(found.speedup) && found.speedup > 1 ? "r up" : "r"),
    element("td", has(found.coverage) ? (100 * found.coverage).toFixed(0) + "%" : "", "r wide"),
    element("td", job.device, "wide"), element("td", job.client, "wide"), element("td", took, "r wide"),
    element("td", when.toDateString() === today ? when.toTimeString().slice(0, 8) : when.toISOString().slice(0, 16).replace("T", " "), "r wide"));
  return row;
}

function times(value) {
  return (value >= 0.1 ? value.toFixed(2) : value.toPrecision(2)) + "\u00d7";
}

function table() {
  const today = new Date().toDateString();
  byId("jobs").replaceChildren(...sorted(shown).map((job) => jobRow(job, today)));
  if (!shown.length) empty("jobs", 8, "no job matches");
  for (const head of byId("columns").children) {
    if (head.dataset.by === order.by) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
}

async function jobs() {
  const query = wish();
  query.set("limit", "200");
  const answer = await fetch("/v1/jobs?" + query);
  if (!answer.ok) return;
  shown = (await answer.json()).jobs;
  table();
}

function quarantine(state) {
  const out = state.workers.filter((worker) => worker.quarantined);
  byId("quarantine").hidden = !out.length;
  byId("quarantine").textContent = out.length ? `${out.length === 1 ? "A worker is" : out.length + " workers are"} quarantined and gets no jobs: `
    + out.map((worker) => worker.name + (worker.note ? ` (${worker.note})` : "")).join(", ")
    + ". Once repaired: POST /v1/worker/release." : "";
}

let seen = "";
async function tick() {
  try {
    const answer = await fetch("/v1/state");
    if (answer.status === 401) { location.href = "/login"; return; }
    const state = await answer.json();
    figures(state); mix(state.counts.status); plots(state); workers(state); queue(state); quarantine(state);
    byId("live").textContent = state.draining ? "shutting down" : "live";
    byId("trouble").hidden = !state.trouble;
    byId("trouble").textContent = state.trouble || "";
    const now = JSON.stringify(state.counts);
    if (now !== seen) { seen = now; await jobs(); }
  } catch (error) {
    byId("live").textContent = "no answer from the service";
  }
}

function searched(event) {
  if (event) event.preventDefault();
  history.replaceState(null, "", "/?" + wish());
  jobs();
}

const asked = new URLSearchParams(location.search);
byId("task").value = asked.get("task") || "";
byId("status").value = asked.get("status") || "";
byId("columns").addEventListener("click", (event) => {
  const head = event.target.closest("th");
  if (!head) return;
  order = { by: head.dataset.by, down: order.by === head.dataset.by ? !order.down : !["status", "task", "device", "client"].includes(head.dataset.by) };
  table();
});
byId("search").addEventListener("submit", searched);
byId("status").addEventListener("change", () => searched());
byId("search").addEventListener("reset", () => setTimeout(searched, 0));
tick();
setInterval(tick, 2000);
