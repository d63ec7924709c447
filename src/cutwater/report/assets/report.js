"use strict";
/* The run report. Its data stands in the page, or is asked for again and again while a run goes on. */
(() => {
  const { el, byId, format, sum, most } = CW;
  const colour = (i) => `var(--run-${i % 6})`;
  const choices = { by: "round", run: 0, round: null };
  let data = null, parts = null;

  const last = (list) => list[list.length - 1];
  const known = (run, key) => run.lines.filter((line) => line[key] !== null && line[key] !== undefined);
  const final = (run, key) => { const lines = known(run, key); return lines.length ? last(lines)[key] : null; };
  const total = (run, key) => sum(known(run, key).map((line) => line[key]));

  /* ---- the parts of the page, made once ---- */
  const build = () => {
    const root = byId("report");
    const make = (id, title, note, draw) => { parts[id] = CW.figure({ id, title, note, draw }); return parts[id].root; };
    parts = { cards: el("div", { class: "cards" }), notices: el("div"), runs: el("div", { class: "scroll" }) };
    root.replaceChildren(
      el("div", { class: "head" }, el("h1", { id: "title" }), el("span", { class: "note", id: "status", role: "status" })),
      parts.notices, parts.cards,
      (parts.table = el("section", { class: "panel", id: "compared" }, el("h2", { text: "Runs" }), parts.runs)),
      el("div", { class: "head" }, el("h2", { text: "Learning" }), choose("by", [["round", "by round"], ["virtual_seconds", "by time"], ["wall_seconds", "by this machine's time"]])),
      el("div", { class: "pair" },
        make("accuracy", "Test accuracy", "The global model on the test set after each round.", CW.lines),
        make("loss", "Training loss", "Mean over the round's sessions, weighted by samples.", CW.lines)),
      el("div", { class: "pair" },
        make("latency", "Round latency", "As planned (dashed) and as it was.", CW.lines),
        make("bytes", "Bytes moved", "Model, smashed data and gradients, all clients together.", CW.columns)),
      el("div", { class: "head" }, el("h2", { text: "Round by round" }), (parts.which = el("span")), roundPager()),
      (parts.told = el("p", { class: "note", id: "told" })),
      make("gantt", "Phases of each client", "", CW.sessions),
      el("div", { class: "pair" },
        make("level", "Water level", "What each client would take alone, and what the server's compute takes off, as planned.", CW.level),
        el("div", { class: "stack" }, make("shares", "The server's compute", "", CW.shares), make("cuts", "Cuts", "How many layers stay on the device.", CW.cuts))),
      el("div", { class: "pair" },
        make("predicted", "Predicted against measured", "Each dot is a client's session; on the line the plan was right.", CW.scatter),
        el("section", { class: "panel" }, el("h3", { text: "By phase" }), el("p", { class: "note", text: "Over all sessions shown that made it." }), (parts.byPhase = el("div", { class: "scroll" })))),
      el("section", { class: "panel", id: "dropouts" }, el("h2", { text: "Dropouts and failed rounds" }), (parts.losses = el("div", { class: "scroll" }))),
      (parts.about = el("section", { class: "panel", id: "about" })),
      (parts.foot = el("p", { class: "foot" })));
  };
  const choose = (key, options) => el("span", { class: "choice", role: "group" }, ...options.map(([value, label]) =>
    el("button", { type: "button", text: label, "data-value": value, "aria-pressed": String(choices[key] === value), onclick: (event) => {
      choices[key] = value;
      for (const button of event.target.parentNode.children) button.setAttribute("aria-pressed", String(button === event.target));
      show();
    } })));
  const roundPager = () => {
    const step = (by) => () => { const at = places().indexOf(round()?.round); pick(places()[at + by]); };
    parts.slider = el("input", { type: "range", min: 0, step: 1, "aria-label": "Round", id: "round", oninput: (event) => pick(places()[event.target.value]) });
    parts.before = el("button", { type: "button", text: "‹", "aria-label": "Round before", onclick: step(-1) });
    parts.after = el("button", { type: "button", text: "›", "aria-label": "Next round", onclick: step(1) });
    parts.number = el("b", { id: "round-number" });
    return el("span", { class: "pager" }, parts.before, parts.slider, parts.after, parts.number);
  };
  const places = () => data.runs[choices.run].rounds.map((one) => one.round);
  const round = () => data.runs[choices.run].rounds.find((one) => one.round === choices.round);
  const pick = (number) => { if (number !== undefined) { choices.round = number; showRound(); } };

  /* ---- a whole run ---- */
  const table = (heads, rows, texts = 1) => el("table", {},
    el("thead", {}, el("tr", {}, ...heads.map((head, i) => el("th", { text: head, class: i >= texts ? "number" : "", scope: "col" })))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell, i) =>
      el("td", { class: i >= texts ? "number" : "" }, cell))))));
  const off = (planned, actual) => {
    const text = planned ? format.percent(Math.abs(actual / planned - 1)) : "–";
    return text === "0 %" || !planned ? text : `${actual > planned ? "+" : "−"}${text}`;
  };
  const named = (run, i) => el("span", { class: "named" }, el("span", { class: "swatch", colour: colour(i) }), run.name);

  const goal = () => {
    const best = data.runs.map((run) => most(known(run, "accuracy").map((line) => line.accuracy)));
    return Math.floor(Math.min(...best) * 0.98 * 100) / 100;
  };
  const reached = (run, accuracy) => run.lines.find((line) => line.accuracy !== null && line.accuracy >= accuracy);
  const error = (run) => {
    const lines = run.lines.filter((line) => line.planned_seconds && line.actual_seconds && !line.failed);
    return lines.length ? sum(lines.map((line) => Math.abs(line.actual_seconds / line.planned_seconds - 1))) / lines.length : null;
  };

  const showSummary = () => {
    const one = data.runs.length === 1 ? data.runs[0] : null;
    byId("title").textContent = one ? one.name : `${data.runs.length} runs compared`;
    const card = (value, label) => el("div", { class: "card" }, el("b", { text: value }), el("span", { text: label }));
    const orDash = (value, show) => (value === null || value === undefined ? "–" : show(value));
    parts.cards.replaceChildren(...(one ? [
      card(orDash(final(one, "accuracy"), format.accuracy), "test accuracy"),
      card(format.count(one.lines.length), "rounds"),
      card(orDash(final(one, "virtual_seconds"), format.duration), "of training by the clock"),
      card(format.bytes(total(one, "bytes_up") + total(one, "bytes_down")), "moved over the network"),
      card(orDash(error(one), format.percent), "mean error of the plan"),
      card(format.count(one.losses.length), one.losses.length === 1 ? "update lost" : "updates lost"),
    ] : []));
    parts.cards.hidden = !one;
    parts.table.hidden = Boolean(one);
    const target = goal();
    parts.runs.replaceChildren(table(
      ["Run", "Planner", "Rounds", "Accuracy", "Training time", `Time to ${format.accuracy(target)}`, "Moved", "Plan's error", "Lost"],
      data.runs.map((run, i) => [named(run, i), run.info.planner || "–", format.count(run.lines.length), orDash(final(run, "accuracy"), format.accuracy),
        orDash(final(run, "virtual_seconds"), format.duration), orDash(target > 0 ? reached(run, target)?.virtual_seconds : null, format.duration),
        format.bytes(total(run, "bytes_up") + total(run, "bytes_down")), orDash(error(run), format.percent), format.count(run.losses.length)])));
    const notes = data.runs.flatMap((run) => run.notes.map((note) => (one ? note : `${run.name}: ${note}`)));
    parts.notices.replaceChildren(...notes.map((note) => el("p", { class: "notice", text: note })));
    parts.notices.hidden = !notes.length;
  };

  const showLearning = () => {
    const by = choices.by, time = by !== "round";
    const longest = most(data.runs.flatMap((run) => run.lines.map((line) => line[by] || 0)));
    const { unit, scale } = time ? CW.timeUnit(longest) : { unit: "", scale: 1 };
    const x = time
      ? { name: "time", domain: [0, longest || 1], label: `${by === "wall_seconds" ? "time this machine needed" : "time by the clock"} (${unit})`, tick: (v) => CW.tickText(v / scale), show: format.duration }
      : { name: "round", label: "round", tick: (v) => (Number.isInteger(v) ? CW.tickText(v) : "") };
    const lines = (key) => data.runs.map((run, i) => ({ name: run.name, colour: colour(i), broad: i === 0 && !time && data.runs.length > 1, points: known(run, key).filter((line) => line[by] !== null).map((line) => [line[by], line[key]]) }));
    parts.accuracy.update({ series: lines("accuracy"), x, y: { name: "accuracy", label: "accuracy (%)", tick: (v) => CW.tickText(Number((v * 100).toPrecision(6))), show: format.accuracy }, empty: "not evaluated yet" });
    parts.loss.update({ series: lines("loss"), x, y: { name: "loss", label: "loss", zero: true, show: format.number }, empty: "no round has ended yet" });
    const latencies = data.runs.flatMap((run, i) => [["actual_seconds", false], ["planned_seconds", true]].map(([key, dash]) => ({
      name: `${data.runs.length > 1 ? `${run.name}, ` : ""}${dash ? "planned" : "actual"}`, dash, plain: dash, colour: colour(i),
      points: known(run, key).map((line) => [line.round, line[key]]) })));
    const high = CW.timeUnit(most(latencies.flatMap((one) => one.points.map((p) => p[1]))));
    parts.latency.update({ series: latencies, x: { name: "round", label: "round", tick: (v) => (Number.isInteger(v) ? CW.tickText(v) : "") }, legend: true,
      y: { name: "latency", label: `seconds of a round (${high.unit})`.replace("seconds of a round", "round"), zero: true, tick: (v) => CW.tickText(v / high.scale), show: format.seconds } });
  };

  const showRun = () => {
    const run = data.runs[choices.run];
    parts.which.replaceChildren(data.runs.length > 1 ? el("select", { "aria-label": "Run", onchange: (event) => { choices.run = Number(event.target.value); choices.round = null; show(); } },
      ...data.runs.map((one, i) => el("option", { value: i, text: one.name, selected: i === choices.run }))) : "");
    parts.bytes.root.hidden = !run.lines.length;
    if (run.lines.length) {
      const { unit, scale } = CW.byteUnit(most(run.lines.map((line) => (line.bytes_up || 0) + (line.bytes_down || 0))));
      parts.bytes.note(`Model, smashed data and gradients, all clients together${data.runs.length > 1 ? `; ${run.name}` : ""}: ${format.bytes(total(run, "bytes_up"))} up, ${format.bytes(total(run, "bytes_down"))} down.`);
      parts.bytes.update({ xs: run.lines.map((line) => line.round), y: { label: unit, tick: (v) => CW.tickText(v / scale), show: format.bytes },
        series: [["up", "bytes_up", "--smashed-upload"], ["down", "bytes_down", "--gradient-download"]].map(([name, key, tone]) => ({ name, colour: `var(${tone})`, values: run.lines.map((line) => line[key] || 0) })) });
    }
    const points = run.rounds.flatMap((one) => one.clients.filter((client) => !client.lost && client.planned && client.actual).map((client) => ({
      x: sum(client.planned), y: sum(client.actual), colour: client.split ? "var(--water)" : "var(--slate)",
      text: [`${client.name}, round ${one.round}`, `planned ${format.seconds(sum(client.planned))}`, `actual ${format.seconds(sum(client.actual))}`] })));
    parts.predicted.update({ points, empty: "no session to compare yet", legend: [["split", "var(--water)"], ["whole model", "var(--slate)"]] });
    parts.byPhase.replaceChildren(run.phases.length ? table(["Phase", "Planned", "Actual", "Off"], run.phases.map(({ phase, planned, actual }) => [
      el("span", {}, el("span", { class: "swatch", colour: CW.phaseColour(phase) }), format.phase(phase)), format.duration(planned), format.duration(actual),
      off(planned, actual)])) : el("p", { class: "note", text: "Nothing to compare yet." }));
    const failed = run.lines.filter((line) => line.failed);
    const rows = [...failed.map((line) => [String(line.round), "whole round", line.failed]), ...run.losses.map((one) => [String(one.round), one.client, one.reason])].sort((a, b) => a[0] - b[0]);
    parts.losses.replaceChildren(rows.length ? table(["Round", "Client", "Why"], rows.slice(0, 200), 3) : el("p", { class: "note", text: "Nobody was lost and no round failed." }),
      rows.length > 200 ? el("p", { class: "note", text: `… and ${rows.length - 200} more.` }) : "");
    parts.about.replaceChildren(el("h2", { text: "Scenario and versions" }), facts(run), run.scenario
      ? el("details", { open: run.scenario.length < 3000 }, el("summary", { text: "scenario.toml" }), el("pre", { text: run.scenario, tabindex: 0 })) : el("p", { class: "note", text: "The run folder holds no scenario.toml." }));
  };
  const facts = (run) => {
    const rows = [["Model", [run.model, run.input && `input ${run.input}`, run.layers && `${run.layers} layers`].filter(Boolean).join(", ")]];
    const walk = (value, key) => {
      if (value === null || value === "" || ["format", "version"].includes(key)) return;
      if (typeof value === "object") Object.entries(value).forEach(([below, one]) => walk(one, key ? `${key}.${below}` : below));
      else rows.push([key.replace(/^versions\./, "").replaceAll("_", " "), key.endsWith("_compute") ? format.compute(value) : String(value)]);
    };
    walk(run.info, "");
    const final = last(run.lines);
    if (final?.sha256) rows.push(["weights after the last round", `sha256 ${final.sha256.slice(0, 16)}…`]);
    return el("div", { class: "scroll" }, el("table", { class: "facts" }, el("tbody", {}, ...rows.filter(([, value]) => value).slice(0, 60).map(([key, value]) => el("tr", {}, el("th", { text: key, scope: "row" }), el("td", { text: value }))))));
  };

  /* ---- one round ---- */
  const showRound = () => {
    const run = data.runs[choices.run], numbers = places();
    if (!numbers.includes(choices.round)) choices.round = last(numbers) ?? null;
    const one = round(), at = numbers.indexOf(choices.round);
    for (const id of ["gantt", "level", "shares", "cuts"]) parts[id].root.hidden = !one;
    parts.slider.max = Math.max(numbers.length - 1, 0);
    parts.slider.value = at;
    parts.before.disabled = at <= 0;
    parts.after.disabled = at >= numbers.length - 1;
    parts.number.textContent = one ? `round ${one.round}` : "";
    if (!one) { parts.told.textContent = "No round has been written yet."; return; }
    const lost = one.clients.filter((client) => client.lost).length, slow = run.lines.find((line) => line.round === one.round)?.bottleneck;
    parts.told.textContent = `${one.planner ? `Planned by ${one.planner}: ` : "Planned: "}${format.seconds(one.planned_seconds)}. It took ${format.seconds(one.actual_seconds)}${slow ? `, waiting for ${slow}` : ""}. `
      + `${one.clients.filter((client) => client.share > 0).length} of ${one.clients.length} clients share the server${lost ? `; ${lost} lost` : ""}.${one.failed ? ` The round failed: ${one.failed}.` : ""}`;
    const rows = one.clients.filter((client) => client.actual || client.planned).map((client) => ({
      name: client.name, split: client.split, lost: client.lost, phases: client.actual || client.planned, planned: client.actual ? client.planned : null,
      note: client.split ? `cut after layer ${client.cut}, share ${format.compute(client.share)}` : "whole model on the device" }));
    parts.gantt.note(`Each phase summed over the session and drawn in the order that it happens; the thin bar below is the plan.`);
    parts.gantt.update({ rows, phases: data.phases, level: one.actual_seconds });
    const sharing = one.clients.filter((client) => client.share > 0), measured = sharing.some((client) => client.delivered !== null);
    const compute = one.server_compute || sum(sharing.map((client) => client.share)) || 1;
    const kept = sum(sharing.map((client) => client.delivered ?? 0)) / (sum(sharing.map((client) => client.share)) || 1);
    parts.shares.note(!sharing.length ? "Nobody shares the server in this round." : measured ? `Delivered ${format.percent(kept)} of what was promised.` : "As promised by the plan; what was delivered is not measured in this engine.");
    const bars = [{ label: "promised", parts: sharing.map((client) => ({ name: client.name, share: client.share })) }];
    if (measured) bars.push({ label: "delivered", parts: sharing.map((client) => ({ name: client.name, share: client.delivered ?? 0 })) });
    parts.shares.update({ bars, compute });
    const level = one.clients.filter((client) => client.planned && client.alone !== null).map((client) => ({ name: client.name, alone: client.alone, latency: sum(client.planned), share: client.share }));
    parts.level.root.hidden = !level.length;
    if (level.length) parts.level.update({ rows: level, level: one.planned_seconds || most(level.map((row) => row.latency)), compute });
    const layers = one.layers || run.layers || most(one.clients.map((client) => client.cut || 1), 1);
    parts.cuts.update({ cuts: one.clients.filter((client) => client.cut >= 1 && client.cut <= layers).map((client) => client.cut), layers });
  };

  const show = () => {
    if (!parts) build();
    showSummary();
    showLearning();
    showRun();
    showRound();
    parts.foot.textContent = `Cutwater ${data.cutwater}`;
  };
  const fresh = (received) => {
    const following = !data || !choices.round || choices.round === last(data.runs[choices.run].rounds)?.round;
    data = received;
    if (following) choices.round = last(data.runs[choices.run].rounds)?.round ?? null;
    show();
  };

  /* ---- following a run: ask every two seconds, draw only what is new ---- */
  const follow = async (url) => {
    let etag = "", changed = Date.now();
    for (;;) {
      try {
        const answer = await fetch(url, { headers: etag ? { "If-None-Match": etag } : {} });
        if (answer.status === 200) {
          etag = answer.headers.get("ETag") || "";
          changed = Date.now();
          fresh(await answer.json());
        } else if (answer.status !== 304) {
          const told = await answer.json().catch(() => ({}));
          (byId("status") || byId("report")).textContent = told.error || `The server answered ${answer.status}.`;
        }
        const quiet = Math.round((Date.now() - changed) / 1000);
        if (byId("status") && answer.ok | (answer.status === 304)) byId("status").textContent = quiet < 30 ? "following" : `following; nothing new for ${format.duration(quiet)}`;
      } catch {
        if (byId("status")) byId("status").textContent = "the server does not answer; trying again";
      }
      await new Promise((done) => setTimeout(done, 2000));
    }
  };

  const start = () => {
    const bar = byId("bar"), live = byId("data").dataset.live;
    bar.append(CW.brand(live ? "/" : undefined));
    if (live) bar.append(el("nav", { "aria-label": "Pages" }, el("a", { href: "/", text: "Planner" }), el("a", { href: "/runs", text: "Runs", "aria-current": "page" })));
    bar.append(el("span", { class: "space" }), CW.themeButton());
    if (live) follow(live + location.search); else fresh(JSON.parse(byId("data").textContent));
  };
  if (byId("report")) document.addEventListener("DOMContentLoaded", start);
})();
