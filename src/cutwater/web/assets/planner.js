"use strict";
/* The planner page. Everything it asks for is in `state`, which the link holds, too; plans come from the server. */
(() => {
  const { el, byId, format } = CW;
  const decoder = new TextDecoder();
  let state = null, start = null, plan = null, details = null, ends = [1e11, 1e14], fleet = null, figures = {}, scales = null;

  /* ---- talking to the server ---- */
  const post = async (path, body) => {
    const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    if (answer.ok) return answer;
    const told = await answer.json().catch(() => ({}));
    throw new Error(told.error || `The server answered ${answer.status}.`);
  };
  const sentence = (error) => (error instanceof TypeError ? "The server does not answer: is cutwater web still running?" : error.message);
  const decode = (buffer) => {
    const bytes = new Uint8Array(buffer), end = bytes.indexOf(10) + 1;
    const found = JSON.parse(decoder.decode(bytes.subarray(0, end)));
    found.columns.forEach((name, i) => { found[name] = new Float64Array(buffer, end + 8 * i * found.count, found.count); });
    found.latencies = new Float64Array(found.count);
    for (const phase of start.phases) for (let k = 0; k < found.count; k++) found.latencies[k] += found[phase][k];
    return found;
  };

  /* ---- the link: the whole state, packed ---- */
  const through = async (stream, bytes) => new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
  const pack = async (value) => {
    const bytes = await through(new CompressionStream("deflate-raw"), new TextEncoder().encode(JSON.stringify(value)));
    let letters = "";
    for (let i = 0; i < bytes.length; i += 32768) letters += String.fromCharCode(...bytes.subarray(i, i + 32768));
    return btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  };
  const unpack = async (text) => {
    const letters = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = await through(new DecompressionStream("deflate-raw"), Uint8Array.from(letters, (letter) => letter.charCodeAt(0)));
    return JSON.parse(decoder.decode(bytes));
  };
  let linking = 0, linked = "";
  const link = () => {
    clearTimeout(linking);
    linking = setTimeout(async () => {
      linked = `#s=${await pack({ v: 1, ...state })}`;
      if (linked.length < 1_500_000) history.replaceState(null, "", linked);
    }, 300);
  };
  const fromLink = async () => {
    if (!location.hash.startsWith("#s=")) return null;
    try {
      const { v, ...found } = await unpack(location.hash.slice(3));
      if (v !== 1 || typeof found.fleet !== "object") throw new Error("unknown");
      return found;
    } catch {
      fail(new Error("This link is damaged or was made by another version: here is the scenario that the page was started with."));
      return null;
    }
  };

  /* ---- asking for a plan: one request at a time, always for the newest state ---- */
  let wanted = null, running = false, settled = 0, serial = 0;
  const painted = () => new Promise((done) => requestAnimationFrame(() => { const channel = new MessageChannel(); channel.port1.onmessage = done; channel.port2.postMessage(0); }));
  const refresh = (began = performance.now()) => {
    wanted = began;
    serial++;
    link();
    if (!running) run();
  };
  const run = async () => {
    running = true;
    const busy = setTimeout(() => { byId("verdict").textContent = "counting the model's cuts…"; }, 900);
    while (wanted !== null) {
      const began = wanted;
      wanted = null;
      try {
        plan = decode(await (await post("/api/plan", state)).arrayBuffer());
        const answered = performance.now();
        paint();
        performance.measure("drawing", { start: answered, end: performance.now() });
        await painted();
        performance.measure("drag-to-paint", { start: began, end: performance.now() });
        document.documentElement.dataset.painted = String(serial);
      } catch (error) { fail(error); }
    }
    clearTimeout(busy);
    running = false;
    clearTimeout(settled);
    settled = setTimeout(more, 40);
  };
  const more = async () => {
    const asked = serial;
    try {
      const found = await (await post("/api/details", { scenario: state, range: ends })).json();
      if (asked !== serial) return;
      details = found;
      paintDetails();
      document.documentElement.dataset.settled = String(asked);
    } catch { /* the plan's own complaint stands already */ }
  };
  const fail = (error) => {
    byId("error").textContent = sentence(error);
    byId("error").hidden = false;
    byId("plan").classList.add("stale");
    if (!plan) { byId("latency").textContent = "–"; byId("verdict").textContent = ""; }
  };

  /* ---- showing it ---- */
  const paint = () => {
    byId("error").hidden = true;
    byId("plan").classList.remove("stale");
    byId("latency").textContent = format.seconds(plan.latency);
    const gap = plan.lower_bound ? plan.latency / plan.lower_bound - 1 : null;
    const optimal = gap !== null && gap < 1e-9 ? "no plan is faster" : gap !== null ? `${format.percent(gap)} above the optimum` : "";
    const gain = plan.fedavg ? plan.fedavg / plan.latency : null;
    byId("verdict").textContent = [optimal, gain && gain > 1.005 ? `${format.number(gain)} × faster than FedAvg` : null].filter(Boolean).join("; ");
    byId("explanation").replaceChildren(...plan.explanation.slice(1).map((line) => el("p", { text: line })));
    const rows = Array.from({ length: plan.count }, (_, k) => ({
      name: fleet.name(k), phases: start.phases.map((phase) => plan[phase][k]), split: plan.cut[k] < plan.layers, alone: plan.alone[k], latency: plan.latencies[k], share: plan.share[k],
      note: plan.cut[k] < plan.layers ? `cut after layer ${plan.cut[k]}, share ${format.compute(plan.share[k])}` : "whole model on the device",
    }));
    figures.phases.update({ rows, phases: start.phases, level: plan.latency });
    figures.level.update({ rows, level: plan.latency, compute: plan.server_compute });
    figures.shares.update({ bars: [{ label: "share", parts: rows }], compute: plan.server_compute || 1 });
    figures.shares.note(plan.server_compute ? "" : "The server has no compute to share.");
    figures.cuts.update({ cuts: plan.cut, layers: plan.layers, names: details?.layer_names });
    byId("min-cut").max = plan.layers;
    byId("min-cut").value = state.min_cut || 1;
    fleet.show(plan);
    paintCurve();
  };
  const paintCurve = () => {
    if (!details || !plan) return;
    const { curve, knee } = details;
    const stops = [{ x: Math.min(Math.max(plan.server_compute, ends[0]), ends[1]), y: plan.latency, text: `${format.compute(plan.server_compute)}: ${format.seconds(plan.latency)}` }];
    if (knee) stops.push({ x: knee.compute, y: knee.latency, text: `knee ${format.compute(knee.compute)}`, kind: "faint", below: true, left: knee.compute < stops[0].x });
    const levels = plan.fedavg ? [{ y: plan.fedavg, text: `FedAvg ${format.seconds(plan.fedavg)}` }] : [];
    const { unit, scale } = CW.timeUnit(CW.most(curve.latency));
    figures.curve.update({
      series: [{ name: "optimum", colour: "var(--accent)", points: curve.compute.map((x, i) => [x, curve.latency[i]]), plain: true }], stops, levels, height: 280,
      x: { name: "server", label: "server compute", log: true, domain: ends, tick: format.compute, show: format.compute },
      y: { name: "round", label: `round (${unit})`, zero: true, tick: (v) => CW.tickText(v / scale), show: format.seconds },
    });
    figures.curve.note(knee ? `The knee: with ${format.compute(knee.compute)} a server saves 90 % of what any server could. Drag along the curve.` : "Drag along the curve. There is no knee in this range.");
  };
  const paintDetails = () => {
    paintCurve();
    const longest = 4 * Math.min(...details.planners.map((row) => row.latency ?? Infinity));  // a hopeless planner must not squeeze the others
    byId("planner-table").replaceChildren(el("table", {},
      el("thead", {}, el("tr", {}, ...["Planner", "Round", "", "Above the optimum", "Sharing", "Planned in"].map((head, i) => el("th", { text: head, class: i && i !== 2 ? "number" : "", scope: "col" })))),
      el("tbody", {}, ...details.planners.map((row) => {
        const pick = el("button", { type: "button", class: "quiet", text: row.planner, onclick: () => { byId("planner").value = row.planner; change("planner", row.planner); } });
        if (row.latency === null) return el("tr", {}, el("td", {}, pick), el("td", { class: "note", colspan: 5, text: row.error }));
        const bar = el("span", { class: row.latency > longest ? "gauge over" : "gauge", "aria-hidden": "true" });
        bar.style.width = `${Math.min((100 * row.latency) / longest, 100)}%`;
        return el("tr", { class: row.planner === state.planner ? "chosen" : "" }, el("td", {}, pick), el("td", { class: "number", text: format.seconds(row.latency) }), el("td", { class: "gauge-cell" }, bar),
          el("td", { class: "number", text: row.gap < 1e-9 ? "0 %" : format.percent(row.gap) }), el("td", { class: "number", text: format.count(row.sharing) }), el("td", { class: "number", text: format.seconds(row.seconds) }));
      }))));
  };

  /* ---- the controls ---- */
  const PREFIX = { k: 1e3, K: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };
  const flops = (text) => { const found = /^\s*([\d.,_eE+-]+)\s*([kKMGTP]?)F/.exec(text); return found ? Number(found[1].replaceAll(/[,_]/g, "")) * (PREFIX[found[2]] || 1) : NaN; };
  const place = (value) => Math.round((1000 * Math.log(value / ends[0])) / Math.log(ends[1] / ends[0]));
  const setEnds = (value) => {
    if (value >= ends[0] && value <= ends[1]) return;
    const low = value > 0 ? 10 ** (Math.floor(Math.log10(value)) - 1) : ends[0];
    ends = [low, low * 1000];
  };
  const change = (key, value) => {
    if (value === undefined || (["rates", "devices", "min_cut"].includes(key) && value === 1)) delete state[key];
    else state[key] = value;
    refresh();
  };
  const factor = (value) => Number((10 ** (value / 100)).toPrecision(3));
  const showFactor = (id) => { byId(`${id}-text`).textContent = `× ${state[id] || 1}`; };
  const setServer = (value, began) => {
    const unit = value >= 1e12 ? ["TFLOPS", 1e12] : ["GFLOPS", 1e9];
    state.server = `${Number((value / unit[1]).toPrecision(3))} ${unit[0]}`;
    byId("server-text").value = state.server;
    byId("server").value = place(value);
    byId("server").setAttribute("aria-valuetext", state.server);
    refresh(began);
  };
  const modelChanged = () => {
    const chosen = byId("model").selectedOptions[0], saved = chosen.dataset.profile;
    document.querySelectorAll(".zoo").forEach((node) => { node.hidden = Boolean(saved); });
    if (saved) { delete state.model; state.profile = saved; } else {
      delete state.profile;
      const paper = byId("count").value === "paper", kappa = Number(byId("kappa").value), classes = Number(byId("classes").value);
      state.model = { ...(state.model?.optimizer ? { optimizer: state.model.optimizer } : {}), name: chosen.value, input: byId("input").value.trim(), count: byId("count").value,
        ...(byId("classes").value.trim() ? { classes: Number.isFinite(classes) ? classes : byId("classes").value } : {}),
        ...(paper && byId("kappa").value.trim() ? { kappa: Number.isFinite(kappa) ? kappa : byId("kappa").value } : {}) };
    }
    byId("kappa-label").hidden = Boolean(saved) || byId("count").value !== "paper";
  };
  const whole = (text) => (/^\s*\d+\s*$/.test(text) ? Number(text) : text);
  const sessionChanged = () => {
    const kind = byId("session").value;
    byId("session-label").textContent = kind === "epochs" ? "Epochs" : "Steps";
    state.session = { [kind]: whole(byId("amount").value), batch_size: whole(byId("batch").value) };
  };
  const listen = () => {
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
    byId("server").addEventListener("input", (event) => setServer(ends[0] * (ends[1] / ends[0]) ** (event.target.value / 1000), performance.now()));
    byId("server-text").addEventListener("change", (event) => {
      state.server = event.target.value.trim();
      const value = flops(state.server);
      if (Number.isFinite(value)) { setEnds(value); byId("server").value = place(Math.max(value, ends[0])); }
      refresh();
    });
    for (const id of ["rates", "devices"]) {
      byId(id).addEventListener("input", (event) => { const began = performance.now(), value = factor(event.target.value); if (value === 1) delete state[id]; else state[id] = value; showFactor(id); refresh(began); });
    }
    byId("min-cut").addEventListener("input", (event) => { const began = performance.now(), value = Number(event.target.value); if (value === 1) delete state.min_cut; else state.min_cut = value; byId("min-cut-text").textContent = value; refresh(began); });
    for (const id of ["model", "input", "classes", "count", "kappa"]) byId(id).addEventListener("change", () => { modelChanged(); refresh(); });
    for (const id of ["session", "amount", "batch"]) byId(id).addEventListener("change", () => { sessionChanged(); refresh(); });
    byId("planner").addEventListener("change", (event) => change("planner", event.target.value));
    const svg = figures.curve.svg;
    const along = (event) => {
      if (!scales || !(event.buttons & 1)) return;
      const value = scales.sx.back(event.clientX - svg.getBoundingClientRect().left);
      setServer(Math.min(Math.max(value, ends[0]), ends[1]), performance.now());
    };
    svg.addEventListener("pointerdown", (event) => { svg.setPointerCapture(event.pointerId); along(event); });
    svg.addEventListener("pointermove", along);
    window.addEventListener("hashchange", async () => { if (location.hash !== linked) { const found = await fromLink(); if (found) open(found); } });
  };

  /* ---- a scenario into the controls ---- */
  const open = async (fresh) => {
    state = { planner: "exact", ...fresh };
    byId("planner").value = state.planner;
    const model = state.model || {};
    const option = [...byId("model").options].find((one) => (state.profile ? one.dataset.profile === state.profile : !one.dataset.profile && one.value === model.name));
    if (option) option.selected = true;
    byId("input").value = model.input || "1x28x28";
    byId("classes").value = model.classes ?? "10";
    byId("count").value = model.count || "exact";
    byId("kappa").value = model.kappa ?? "4.7";
    document.querySelectorAll(".zoo").forEach((node) => { node.hidden = Boolean(state.profile); });
    byId("kappa-label").hidden = Boolean(state.profile) || byId("count").value !== "paper";
    const session = state.session || {}, kind = "steps" in session ? "steps" : "epochs";
    byId("session").value = kind;
    byId("session-label").textContent = kind === "epochs" ? "Epochs" : "Steps";
    byId("amount").value = session[kind] ?? "";
    byId("batch").value = session.batch_size ?? 32;
    byId("server-text").value = state.server;
    setEnds(flops(state.server));
    byId("server").value = place(Math.max(flops(state.server) || ends[0], ends[0]));
    byId("server").setAttribute("aria-valuetext", state.server);
    for (const id of ["rates", "devices"]) { byId(id).value = Math.round(100 * Math.log10(state[id] || 1)); showFactor(id); }
    byId("min-cut").max = Math.max(byId("min-cut").max, state.min_cut || 1);
    byId("min-cut").value = state.min_cut || 1;
    byId("min-cut-text").textContent = state.min_cut || 1;
    plan = null;
    await loadFleet();
    refresh();
  };
  const loadFleet = async () => {
    if ("csv" in state.fleet && !state.fleet.csv.includes("\t") && !state.fleet.csv.includes(";")) fleet.load(state.fleet.csv);
    else {
      try { fleet.load((await (await post("/api/fleet", state.fleet)).json()).csv); } catch (error) { fail(error); }
    }
    noteFleet();
  };
  const noteFleet = () => {
    byId("fleet-note").textContent = `${format.count(fleet.count())} clients${"draw" in state.fleet ? `, drawn with seed ${state.fleet.draw.seed ?? 0}` : ""}`;
  };

  /* ---- dialogs, exports, the bar ---- */
  const dialog = (id, apply) => {
    const box = byId(`${id}-dialog`), told = byId(`${id}-error`);
    box.querySelector("[data-close]").addEventListener("click", () => box.close());
    byId(`${id}-apply`).addEventListener("click", async () => {
      told.hidden = true;
      try { await apply(); box.close(); } catch (error) { told.textContent = sentence(error); told.hidden = false; }
    });
    return () => { told.hidden = true; box.showModal(); };
  };
  const dialogs = () => {
    const csv = dialog("csv", async () => {
      const found = await (await post("/api/fleet", { csv: byId("csv-text").value })).json();
      state.fleet = { csv: found.csv };
      fleet.load(found.csv);
      noteFleet();
      refresh();
    });
    byId("paste").addEventListener("click", () => { byId("csv-text").value = fleet.count() > 2000 ? "" : fleet.csv(); csv(); });
    const names = { clients: "draw-clients", seed: "draw-seed" };
    const range = (key) => [byId(`draw-${key}-low`).value.trim(), byId(`draw-${key}-high`).value.trim()];
    const draw = dialog("draw", async () => {
      const table = { ...Object.fromEntries(Object.entries(names).map(([key, id]) => [key, whole(byId(id).value)])), compute: range("compute"), rate: range("rate"), samples: range("samples").map(whole) };
      const found = await (await post("/api/fleet", { draw: table })).json();
      state.fleet = { draw: table };
      fleet.load(found.csv);
      noteFleet();
      refresh();
    });
    byId("draw").addEventListener("click", () => {
      const table = state.fleet.draw || {}, ends = (key, low, high) => (Array.isArray(table[key]) ? table[key] : [low, high]);
      byId("draw-clients").value = table.clients ?? 30;
      byId("draw-seed").value = table.seed ?? 3;
      for (const [key, low, high] of [["compute", "50 GFLOPS", "300 GFLOPS"], ["rate", "2 MB/s", "12 MB/s"], ["samples", 361, 3578]]) {
        [byId(`draw-${key}-low`).value, byId(`draw-${key}-high`).value] = ends(key, low, high);
      }
      draw();
    });
    byId("add").addEventListener("click", () => fleet.add());
    const toml = dialog("toml", async () => open(await (await post("/api/scenario", { toml: byId("toml-text").value })).json()));
    byId("toml-file").addEventListener("change", async (event) => { const file = event.target.files[0]; if (file) byId("toml-text").value = await file.text(); });
    return toml;
  };
  const bar = (openScenario) => {
    const exports = [["scenario.toml", "Scenario (TOML)"], ["plan.json", "Plan (JSON)"], ["plan.csv", "Plan (CSV)"], ["fleet.csv", "Fleet (CSV)"]];
    const menu = el("details", { class: "menu", id: "export" }, el("summary", { text: "Export" }), el("div", {}, ...exports.map(([kind, label]) =>
      el("button", { type: "button", text: label, "data-kind": kind, onclick: async () => {
        menu.open = false;
        try { CW.download(kind, await (await post(`/api/export/${kind}`, state)).blob()); } catch (error) { fail(error); }
      } }))));
    const copy = el("button", { type: "button", id: "copy", text: "Copy link", onclick: async () => {
      const url = `${location.origin}/#s=${await pack({ v: 1, ...state })}`;
      try { await navigator.clipboard.writeText(url); copy.textContent = "Copied"; } catch { location.hash = url.split("#")[1]; copy.textContent = "It is in the address bar"; }
      setTimeout(() => { copy.textContent = "Copy link"; }, 2000);
    } });
    document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") menu.open = false; });
    byId("bar").append(CW.brand("/"), el("nav", { "aria-label": "Pages" }, el("a", { href: "/", text: "Planner", "aria-current": "page" }), start.runs ? el("a", { href: "/runs", text: "Runs" }) : null),
      el("span", { class: "space" }), el("button", { type: "button", id: "open", text: "Open", onclick: openScenario }), menu, copy, CW.themeButton());
    byId("foot").textContent = `Cutwater ${start.version}. Plans are computed on the machine that serves this page.`;
  };
  const makeFigures = () => {
    const make = (id, title, note, draw) => { figures[id] = CW.figure({ id, title, note, draw }); return figures[id].root; };
    byId("figures").append(
      make("phases", "Phases of each client", "Each phase summed over the session, in the order that it happens.", CW.sessions),
      el("div", { class: "pair" },
        make("level", "Water level", "What each client would take alone, and what the server's compute takes off.", CW.level),
        el("div", { class: "stack" }, make("shares", "Who has the server's compute", "", CW.shares), make("cuts", "Cuts", "How many layers stay on the device.", CW.cuts))),
      make("curve", "Round against server compute", "", (svg, data, width) => { const told = CW.lines(svg, data, width); scales = told.scales; return told; }));
  };

  const begin = async () => {
    try { start = await (await fetch("/api/start")).json(); } catch (error) { return fail(error); }
    byId("planner").append(...start.planners.map((name) => el("option", { value: name, text: name })));
    const saved = [...(start.given ? [[start.given.key, start.given.label]] : []), ...start.profiles.map((name) => [name, name])];
    byId("model").append(el("optgroup", { label: "Models" }, ...start.models.map((name) => el("option", { value: name, text: name }))),
      ...(saved.length ? [el("optgroup", { label: "Saved profiles" }, ...saved.map(([key, label]) => el("option", { value: `profile:${key}`, "data-profile": key, text: label })))] : []));
    fleet = CW.fleetTable({ changed: (csv) => { state.fleet = { csv }; noteFleet(); refresh(); } });
    makeFigures();
    bar(dialogs());
    listen();
    await open((await fromLink()) || start.scenario);
  };
  document.addEventListener("DOMContentLoaded", begin);
})();
