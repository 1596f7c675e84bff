"use strict";
// The page to watch: asks for the state every two seconds, and for the latest jobs when something finished.
const STATUSES = ["correct", "incorrect", "compile_error", "hack", "runtime_error", "timeout", "out_of_memory", "infra_error"];
const byId = (id) => document.getElementById(id);

function element(tag, text, cls) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text; // textContent only: names and sources are hostile
  if (cls) made.className = cls;
  return made;
}

function figures(state) {
  const jobs = state.counts.state;
  const shown = [
    ["waiting", jobs.queued || 0], ["running", jobs.leased || 0], ["done", jobs.done || 0],
    ["verdicts a second", state.throughput.toFixed(1)],
    ["median seconds", state.latency.p50 === undefined ? "–" : state.latency.p50.toFixed(2)],
    ["95% within", state.latency.p95 === undefined ? "–" : state.latency.p95.toFixed(2) + " s"],
  ];
  byId("figures").replaceChildren(...shown.map(([label, value]) => {
    const box = element("div");
    box.append(element("b", value), element("span", label));
    return box;
  }));
}

function mix(counts) {
  const total = Object.values(counts).reduce((a, b) => a + b, 0) || 1;
  const names = STATUSES.filter((name) => counts[name]);
  byId("mix").replaceChildren(...names.map((name) => {
    const part = element("i", undefined, "s" + STATUSES.indexOf(name));
    part.style.width = (100 * counts[name] / total) + "%";
    return part;
  }));
  byId("mix-legend").replaceChildren(...names.map((name) => {
    const item = element("span");
    item.append(element("i", undefined, "s" + STATUSES.indexOf(name)), `${name.replaceAll("_", " ")} ${counts[name]}`);
    return item;
  }));
}

function plot(id, values) {
  const svg = byId(id);
  const top = Math.max(...values, 1e-9);
  const points = values.map((v, k) => `${(100 * k / Math.max(1, values.length - 1)).toFixed(2)},${(38 - 36 * v / top).toFixed(2)}`);
  svg.querySelector("polyline").setAttribute("points", points.join(" "));
  byId(id + "-top").textContent = `highest ${top < 10 ? top.toFixed(2) : top.toFixed(0)}`;
}

function history(recent) {
  const now = Date.now() / 1000, bins = new Array(60).fill(0);
  for (const [at] of recent) {
    const age = Math.floor((now - at) / 5);
    if (age >= 0 && age < 60) bins[59 - age] += 1 / 5;
  }
  plot("throughput", bins);
  plot("latency", recent.slice(-200).map((row) => row[1]));
}

function workers(list) {
  byId("workers").replaceChildren(...list.map((worker) => {
    const row = element("tr");
    const quiet = Date.now() / 1000 - worker.seen > 60 && worker.kind === "remote";
    const health = worker.quarantined ? "quarantined" : quiet ? "silent" : "well";
    row.append(element("td", worker.name), element("td", worker.kind), element("td", worker.slots, "r"),
      element("td", worker.done, "r"), element("td", worker.failed, "r"), element("td", health, health === "well" ? "" : "bad"));
    return row;
  }));
}

async function jobs() {
  const query = new URLSearchParams({ limit: "50" });
  if (byId("task").value) query.set("task", byId("task").value);
  if (byId("status").value) query.set("status", byId("status").value);
  const answer = await fetch("/v1/jobs?" + query);
  if (!answer.ok) return;
  const rows = (await answer.json()).jobs;
  byId("jobs").replaceChildren(...rows.map((job) => {
    const row = element("tr"), cell = element("td"), link = element("a", job.task_id);
    link.href = "/jobs/" + encodeURIComponent(job.id);
    cell.append(link);
    const seconds = job.finished && job.submitted ? (job.finished - job.submitted).toFixed(2) : "";
    row.append(cell, element("td", (job.status || job.state).replaceAll("_", " "), "status " + (job.status || "")),
      element("td", job.device), element("td", job.client), element("td", seconds, "r"),
      element("td", new Date(job.submitted * 1000).toLocaleTimeString()));
    return row;
  }));
}

let seen = -1;
async function tick() {
  try {
    const answer = await fetch("/v1/state");
    if (answer.status === 401) { location.href = "/login"; return; }
    const state = await answer.json();
    figures(state); mix(state.counts.status); history(state.recent); workers(state.workers);
    byId("live").textContent = state.draining ? "shutting down" : "live";
    const total = Object.values(state.counts.state).reduce((a, b) => a + b, 0) + (state.counts.state.done || 0);
    if (total !== seen) { seen = total; await jobs(); }
  } catch (error) {
    byId("live").textContent = "no answer from the service";
  }
}

byId("search").addEventListener("submit", (event) => { event.preventDefault(); jobs(); });
tick();
setInterval(tick, 2000);
