"use strict";
/* The kinds of drawing. Each takes (svg, data, width), draws, and returns height, legend and marks to read. */
(() => {
  const { svg: make, format } = CW;
  const text = (x, y, content, kind = "", anchor = "start") =>
    make("text", { x, y, class: kind, "text-anchor": anchor, text: content });
  const rect = (x, y, width, height, fill, kind) =>
    make("rect", { x, y, width: Math.max(width, 0), height: Math.max(height, 0), fill, class: kind });
  const line = (x1, y1, x2, y2, kind) => make("line", { x1, y1, x2, y2, class: kind });
  const short = (name, most) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const most = (values, least = 0) => values.reduce((high, value) => (value > high ? value : high), least);
  CW.sum = sum;
  CW.most = most;

  /* Axes around a plot area; returns the scales. */
  const axes = (svg, { width, height, left, right = 16, top = 14, bottom = 38, x, y }) => {
    const sx = (x.log ? CW.log : CW.linear)(x.domain[0], x.domain[1], left, width - right);
    const sy = (y.log ? CW.log : CW.linear)(y.domain[0], y.domain[1], height - bottom, top);
    for (const tick of sy.ticks(Math.max((height - top - bottom) / 48, 2))) {
      svg.append(line(left, sy(tick), width - right, sy(tick), "grid"),
        text(left - 8, sy(tick) + 4, (y.tick || CW.tickText)(tick), "tick", "end"));
    }
    let free = -Infinity;
    for (const tick of x.ticks || sx.ticks(Math.max((width - left - right) / 90, 2))) {
      const label = (x.tick || CW.tickText)(tick), half = label.length * 3.4;
      const at = Math.min(Math.max(sx(tick), left), width - half - 1);
      if (at - half < free) continue;
      free = at + half + 6;
      svg.append(line(sx(tick), height - bottom, sx(tick), height - bottom + 4, "axis"),
        text(at, height - bottom + 18, label, "tick", "middle"));
    }
    svg.append(line(left, height - bottom, width - right, height - bottom, "axis"));
    if (x.label) svg.append(text(width - right, height - 4, x.label, "label", "end"));
    if (y.label) svg.append(text(0, 10, y.label, "label"));
    return { sx, sy };
  };

  const leftFor = (domain, tick = CW.tickText) =>
    14 + 6.6 * most(CW.ticks(domain[0], domain[1], 6).map((value) => tick(value).length), 2);

  /* Lines over a common x: {series: [{name, colour, points, dash}], x, y, levels, stops}. */
  CW.lines = (svg, data, width) => {
    const height = data.height || (width < 480 ? 230 : 270);
    const points = data.series.flatMap((one) => one.points);
    if (!points.length) {
      svg.append(text(width / 2, 60, data.empty || "nothing to show yet", "label", "middle"));
      return { height: 110, says: "Nothing to show yet." };
    }
    const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]).concat((data.levels || []).map((l) => l.y));
    const low = Math.min(...ys), high = most(ys, -Infinity);
    const x = { domain: [Math.min(...xs), most(xs, -Infinity)], ...data.x };
    if (x.domain[0] === x.domain[1]) x.domain = [x.domain[0] - 0.5, x.domain[1] + 0.5];
    const pad = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
    const y = { domain: [data.y.zero ? 0 : low - pad, high + pad], ...data.y };
    const left = leftFor(y.domain, y.tick);
    const { sx, sy } = axes(svg, { width, height, left, top: 24, x, y });
    for (const level of data.levels || []) {
      svg.append(line(left, sy(level.y), width - 16, sy(level.y), "level"), text(width - 18, sy(level.y) - 5, level.text, "label", "end"));
    }
    for (const stop of data.stops || []) {
      svg.append(line(sx(stop.x), sy(stop.y), sx(stop.x), sy(y.domain[0]), `stop ${stop.kind || ""}`));
    }
    const marks = [];
    for (const one of data.series) {
      const path = one.points.map(([a, b], i) => `${i ? "L" : "M"}${sx(a).toFixed(1)} ${sy(b).toFixed(1)}`).join("");
      const drawn = make("path", { d: path, class: `line ${one.dash ? "dash" : ""}`, stroke: one.colour });
      // Runs that agree lie on each other: the first is drawn broader, so that both are seen.
      if (one.broad) drawn.style.strokeWidth = "5.5px";
      svg.append(drawn);
      if (one.points.length <= 40 && !one.plain) {
        for (const [a, b] of one.points) svg.append(make("circle", { cx: sx(a), cy: sy(b), r: 2.6, fill: one.colour }));
      }
      for (const [a, b] of one.points) {
        marks.push({ x: sx(a), y: sy(b), text: [one.name, `${data.x.name}: ${(data.x.show || CW.tickText)(a)}`, `${data.y.name}: ${(data.y.show || CW.tickText)(b)}`] });
      }
    }
    for (const stop of data.stops || []) {
      const px = sx(stop.x), wide = stop.text.length * 6.8 + 6;
      const after = stop.left ? px - wide < left : px + wide < width;
      svg.append(make("circle", { cx: px, cy: sy(stop.y), r: 5, class: `dot ${stop.kind || ""}` }),
        text(px + (after ? 4 : -4), sy(stop.y) + (stop.below ? 22 : -12), stop.text, "halo strong", after ? "start" : "end"));
    }
    const legend = data.series.length > 1 || data.legend ? data.series.map((one) => [one.name, one.colour, one.dash ? "dashed" : "stroke"]) : [];
    return { height, legend, marks, scales: { sx, sy }, says: `${data.series.length} lines of ${data.y.name} by ${data.x.name}.` };
  };

  /* Sessions as bars of phases: {rows: [{name, phases, planned, note, lost, split}], phases: names, level}. */
  CW.sessions = (svg, data, width) => {
    const legend = data.phases.map((phase) => [format.phase(phase), CW.phaseColour(phase)]);
    if (data.rows.length > 60) return strata(svg, data, width, legend);
    const planned = data.rows.some((row) => row.planned);
    const tall = planned ? 26 : 20, gap = data.rows.length > 30 ? 4 : 7, top = 22;
    const left = Math.min(26 + 6.8 * most(data.rows.map((row) => row.name.length), 2), width * 0.3), right = 64;
    const height = top + data.rows.length * (tall + gap) + 40;
    const end = most(data.rows.map((row) => Math.max(sum(row.phases), row.planned ? sum(row.planned) : 0)), data.level || 0) || 1;
    const { unit, scale } = CW.timeUnit(end);
    const { sx } = axes(svg, {
      width, height, left, right, top, x: { domain: [0, end], label: `time in the round (${unit})`, tick: (v) => CW.tickText(v / scale) },
      y: { domain: [0, 1], tick: () => "", label: "" },
    });
    svg.querySelectorAll(".grid").forEach((node) => node.remove());
    const marks = [];
    data.rows.forEach((row, i) => {
      const y = top + i * (tall + gap), bar = planned ? 17 : tall;
      svg.append(text(left - 8, y + bar / 2 + 4, short(row.name, Math.floor((left - 10) / 6.6)), row.split ? "name strong" : "name", "end"));
      let at = 0;
      row.phases.forEach((seconds, p) => {
        if (seconds > 0) svg.append(rect(sx(at), y, sx(at + seconds) - sx(at), bar, CW.phaseColour(data.phases[p]), row.lost ? "lost" : ""));
        at += seconds;
      });
      if (row.planned) {
        let from = 0;
        row.planned.forEach((seconds, p) => {
          if (seconds > 0) svg.append(rect(sx(from), y + bar + 2, sx(from + seconds) - sx(from), 4, CW.phaseColour(data.phases[p]), "planned"));
          from += seconds;
        });
      }
      svg.append(text(width - 2, y + bar / 2 + 4, row.lost ? "lost" : format.seconds(at), row.lost ? "label warn" : "label", "end"));
      const parts = row.phases.map((seconds, p) => [seconds, p]).filter(([seconds]) => seconds > 0)
        .map(([seconds, p]) => `${format.phase(data.phases[p])} ${format.seconds(seconds)}${row.planned ? ` (planned ${format.seconds(row.planned[p])})` : ""}`);
      marks.push({ x: sx(at / 2), y, box: [2, y - 2, width - 4, tall + 3], text: [`${row.name}: ${format.seconds(at)}${row.planned ? `, planned ${format.seconds(sum(row.planned))}` : ""}`, ...(row.note ? [row.note] : []), ...(row.lost ? [row.lost] : []), ...parts] });
    });
    if (data.level) {
      svg.append(line(sx(data.level), 12, sx(data.level), height - 38, "level"),
        text(sx(data.level) - 6, 12, `round ${format.seconds(data.level)}`, "label strong", "end"));
    }
    return { height, legend, marks, by: "y", says: `${data.rows.length} clients; the round takes ${format.seconds(data.level || end)}.` };
  };

  /* A large fleet: clients by latency from left to right, phases stacked, neighbours averaged to what a screen can show. */
  const strata = (svg, data, width, legend) => {
    const height = 300, totals = data.rows.map((row) => sum(row.phases));
    const order = totals.map((_, k) => k).sort((a, b) => totals[a] - totals[b]);
    const columns = Math.min(order.length, Math.max(Math.floor(width / 3), 60));
    const stacks = [], ends = [];
    for (let c = 0; c < columns; c++) {
      const group = order.slice(Math.floor((c * order.length) / columns), Math.floor(((c + 1) * order.length) / columns));
      stacks.push(data.phases.map((_, p) => sum(group.map((k) => data.rows[k].phases[p])) / group.length));
      ends.push(group);
    }
    const high = most(totals, data.level || 0) * 1.04 || 1, { unit, scale } = CW.timeUnit(high);
    const y = { domain: [0, high], label: `session (${unit})`, tick: (v) => CW.tickText(v / scale) };
    const x = { domain: [0, data.rows.length], label: "clients, from the fastest to the slowest", tick: format.count };
    const { sx, sy } = axes(svg, { width, height, left: leftFor([0, high / scale]), x, y, top: 24 });
    const floor = new Float64Array(columns);
    data.phases.forEach((phase, p) => {
      let up = "", down = "";
      for (let c = 0; c < columns; c++) {
        const x0 = sx((c * order.length) / columns).toFixed(1), x1 = sx(((c + 1) * order.length) / columns).toFixed(1);
        const before = sy(floor[c]).toFixed(1);
        floor[c] += stacks[c][p];
        const after = sy(floor[c]).toFixed(1);
        up += `L${x0} ${after}L${x1} ${after}`;
        down = `L${x1} ${before}L${x0} ${before}${down}`;
      }
      svg.append(make("path", { d: `M${up.slice(1)}${down}Z`, fill: CW.phaseColour(phase) }));
    });
    if (data.level) {
      svg.append(line(sx(0), sy(data.level), width - 16, sy(data.level), "level"),
        text(sx(0) + 6, sy(data.level) - 6, `round ${format.seconds(data.level)}`, "label strong"));
    }
    const marks = stacks.map((stack, c) => {
      const group = ends[c], px = sx(((c + 0.5) * order.length) / columns);
      const who = group.length > 1 ? `${data.rows[group[0]].name} and ${group.length - 1} more` : data.rows[group[0]].name;
      return { x: px, y: sy(sum(stack)), text: [`${who}: ${format.seconds(sum(stack))}`, ...stack.map((s, p) => `${format.phase(data.phases[p])} ${format.seconds(s)}`).filter((_, p) => stack[p] > 0)] };
    });
    return { height, legend, marks, by: "x", says: `${format.count(data.rows.length)} clients; the round takes ${format.seconds(data.level)}.` };
  };

  /* The water level: {rows: [{name, alone, latency, share}], level, compute}. The server brings the slow down to it. */
  CW.level = (svg, data, width) => {
    const height = width < 400 ? 260 : 350, top = 26, bottom = 42;
    const order = data.rows.map((_, k) => k).sort((a, b) => data.rows[a].alone - data.rows[b].alone);
    const columns = Math.min(order.length, Math.max(Math.floor(width / 4), 40));
    const groups = Array.from({ length: columns }, (_, c) =>
      order.slice(Math.floor((c * order.length) / columns), Math.floor(((c + 1) * order.length) / columns)));
    const finite = data.rows.map((row) => row.alone).filter(Number.isFinite);
    const high = most(finite.concat(data.rows.map((row) => row.latency)), data.level) * (finite.length < data.rows.length ? 1.25 : 1.06);
    const { unit, scale } = CW.timeUnit(high);
    const y = { domain: [0, high], label: `session (${unit})`, tick: (v) => CW.tickText(v / scale) };
    const left = leftFor([0, high / scale]);
    const { sx, sy } = axes(svg, { width, height, left, top, bottom, x: { domain: [0, columns], tick: () => "" }, y });
    const wide = (sx(1) - sx(0)), inset = wide > 12 ? wide * 0.14 : wide > 5 ? 0.5 : 0;
    const marks = groups.map((group, c) => {
      const mean = (pick) => sum(group.map((k) => pick(data.rows[k]))) / group.length;
      const alone = mean((row) => Math.min(row.alone, high)), latency = mean((row) => row.latency);
      const share = sum(group.map((k) => data.rows[k].share)), shared = share > 0;
      const x = sx(c) + inset, w = wide - 2 * inset;
      if (shared && alone > latency) svg.append(rect(x, sy(alone), w, sy(latency) - sy(alone), undefined, "relief"));
      svg.append(rect(x, sy(latency), w, sy(0) - sy(latency), undefined, shared ? "sharing" : "whole"));
      if (shared && wide > 31) svg.append(text(sx(c + 0.5), sy(alone) - 5, `${Math.round((100 * share) / data.compute)}\u202f%`, "tick strong halo", "middle"));
      if (group.length === 1 && wide > 7 * Math.min(data.rows[group[0]].name.length, 5)) {
        svg.append(text(sx(c + 0.5), height - bottom + 15, short(data.rows[group[0]].name, Math.max(Math.floor(wide / 6.4), 2)), shared ? "tick strong" : "tick", "middle"));
      }
      const first = data.rows[group[0]];
      const without = Number.isFinite(first.alone) ? format.seconds(group.length > 1 ? alone : first.alone) : "can't: the whole model does not fit or is not allowed";
      return {
        x: sx(c + 0.5), y: sy(Math.max(alone, latency)), box: [sx(c), top, wide, sy(0) - top],
        text: [group.length > 1 ? `${first.name} and ${group.length - 1} more` : first.name, `whole model on the device: ${without}`, `as planned: ${format.seconds(latency)}`,
          shared ? `share: ${format.compute(share)}, ${format.percent(share / data.compute)} of the server` : "no share of the server"],
      };
    });
    svg.append(line(left, sy(data.level), width - 16, sy(data.level), "water"),
      text(width - 16, height - 6, "clients, by what they would take alone", "label", "end"));
    const legend = [[`level ${format.seconds(data.level)}`, "var(--accent)", "stroke"], ["shares the server", "var(--water)"], ["time the server takes off", "var(--relief)"], ["whole model on the device", "var(--slate)"]];
    return { height, legend, marks, by: "x", says: `Round level ${format.seconds(data.level)}.` };
  };

  /* Who has how much of the server: {bars: [{label, parts: [{name, share}]}], compute}. */
  CW.shares = (svg, data, width) => {
    const left = data.bars.length > 1 ? 74 : 0, tall = 30, top = 4;
    const height = top + data.bars.length * (tall + 12) + 18;
    const total = most(data.bars.map((bar) => sum(bar.parts.map((part) => part.share))), data.compute) || 1;
    const sx = CW.linear(0, total, left, width);
    const marks = [];
    data.bars.forEach((bar, b) => {
      const y = top + b * (tall + 12);
      if (left) svg.append(text(0, y + tall / 2 + 4, bar.label, "label"));
      svg.append(rect(left, y, sx(data.compute) - left, tall, undefined, "idle"));
      const few = bar.parts.filter((part) => part.share > 0).sort((a, c) => c.share - a.share);
      let at = 0;
      few.slice(0, 300).forEach((part, i) => {
        const x = sx(at), w = sx(at + part.share) - x;
        svg.append(rect(x, y, Math.max(w - 1, 0.5), tall, undefined, i % 2 ? "pour odd" : "pour"));
        const label = `${part.name} ${format.percent(part.share / data.compute)}`;
        if (w > label.length * 6.6 + 8) svg.append(text(x + 7, y + tall / 2 + 4, label, "inside"));
        else if (w > part.name.length * 6.8 + 6) svg.append(text(x + w / 2, y + tall / 2 + 4, part.name, "inside", "middle"));
        marks.push({ x: x + w / 2, y, box: [x, y, w, tall], text: [part.name, `${bar.label}: ${format.compute(part.share)}`, `${format.percent(part.share / data.compute)} of ${format.compute(data.compute)}`] });
        at += part.share;
      });
      if (few.length > 300) {
        const rest = sum(few.slice(300).map((part) => part.share));
        svg.append(rect(sx(at), y, sx(at + rest) - sx(at), tall, undefined, "pour odd"));
        at += rest;
      }
      const idle = data.compute - at;
      if (idle > data.compute * 0.005) {
        if (sx(data.compute) - sx(at) > 70) svg.append(text(sx(data.compute) - 8, y + tall / 2 + 4, `unused ${format.percent(idle / data.compute)}`, "label", "end"));
        marks.push({ x: sx(at + idle / 2), y, text: ["unused", format.compute(idle)] });
      }
    });
    svg.append(text(left, height - 4, "0", "tick"), text(width, height - 4, format.compute(total), "tick", "end"));
    return { height, marks, says: `The server's ${format.compute(data.compute)} and who has it.` };
  };

  const layerTicks = (layers, width) => {
    const inner = CW.ticks(1, layers, Math.max(width / 70, 2)).filter((tick) => Number.isInteger(tick) && tick > 1 && layers - tick > layers * 0.05);
    return [1, ...inner, layers];
  };

  /* How many clients are cut after each layer: {cuts, layers, names}. */
  CW.cuts = (svg, data, width) => {
    const height = 190, counts = new Array(data.layers).fill(0);
    for (const cut of data.cuts) counts[cut - 1]++;
    const high = most(counts) * 1.12;
    const left = leftFor([0, high]);
    const { sx, sy } = axes(svg, {
      width, height, left, top: 24, x: { domain: [0.5, data.layers + 0.5], label: "layers on the device", ticks: layerTicks(data.layers, width), tick: String },
      y: { domain: [0, high], label: "clients", tick: (v) => (Number.isInteger(v) ? format.count(v) : "") },
    });
    const wide = sx(2) - sx(1), marks = [];
    counts.forEach((count, i) => {
      if (!count) return;
      const whole = i === data.layers - 1, w = Math.max(wide * 0.78, 2);
      svg.append(rect(sx(i + 1) - w / 2, sy(count), w, sy(0) - sy(count), undefined, whole ? "whole" : "sharing"),
        text(sx(i + 1), sy(count) - 4, format.count(count), "tick strong", "middle"));
      const name = data.names?.[i] ? ` (${data.names[i]})` : "";
      marks.push({ x: sx(i + 1), y: sy(count), text: [`${format.count(count)} ${count === 1 ? "client" : "clients"}`, whole ? `whole model, ${data.layers} layers on the device` : `cut after layer ${i + 1}${name}`] });
    });
    return { height, marks, by: "x", legend: [["split", "var(--water)"], ["whole model", "var(--slate)"]], says: `Cuts of ${data.cuts.length} clients over ${data.layers} layers.` };
  };

  /* Stacked columns by round: {series: [{name, colour, values}], xs, y}. */
  CW.columns = (svg, data, width) => {
    const height = 220, totals = data.xs.map((_, i) => sum(data.series.map((one) => one.values[i])));
    const high = most(totals) * 1.06 || 1;
    const { sx, sy } = axes(svg, {
      width, height, left: leftFor([0, high], data.y.tick), top: 24,
      x: { domain: [data.xs[0] - 0.5, data.xs[data.xs.length - 1] + 0.5], label: "round", tick: (v) => (Number.isInteger(v) ? String(v) : "") }, y: { domain: [0, high], ...data.y },
    });
    const wide = Math.max((sx(2) - sx(1)) * 0.8, 0.6), marks = [];
    data.xs.forEach((x, i) => {
      let at = 0;
      for (const one of data.series) {
        svg.append(rect(sx(x) - wide / 2, sy(at + one.values[i]), wide, sy(at) - sy(at + one.values[i]), one.colour));
        at += one.values[i];
      }
      marks.push({ x: sx(x), y: sy(at), text: [`round ${x}`, ...data.series.map((one) => `${one.name}: ${data.y.show(one.values[i])}`)] });
    });
    return { height, marks, by: "x", legend: data.series.map((one) => [one.name, one.colour]), says: `${data.xs.length} rounds.` };
  };

  /* Planned against actual seconds: {points: [{x, y, text, colour}]}; on the diagonal the plan was right. */
  CW.scatter = (svg, data, width) => {
    const height = Math.min(width, 360);
    if (!data.points.length) {
      svg.append(text(width / 2, 60, data.empty, "label", "middle"));
      return { height: 110, says: data.empty };
    }
    const all = data.points.flatMap((p) => [p.x, p.y]).filter((v) => v > 0);
    const low = Math.min(...all), high = most(all), log = high / low > 30;
    const domain = log ? [low / 1.3, high * 1.3] : [0, high * 1.06], { unit, scale } = CW.timeUnit(high);
    const tick = (v) => CW.tickText(v / scale);
    const { sx, sy } = axes(svg, {
      width, height, left: leftFor([0, high / scale]) + 6, top: 24, x: { domain, log, tick, label: `planned (${unit})` }, y: { domain, log, tick, label: `actual (${unit})` },
    });
    svg.append(line(sx(domain[0]), sy(domain[0]), sx(domain[1]), sy(domain[1]), "diagonal"));
    for (const p of data.points) svg.append(make("circle", { cx: sx(p.x), cy: sy(p.y), r: data.points.length > 400 ? 2 : 3.4, fill: p.colour, class: "cloud" }));
    const marks = data.points.length > 4000 ? [] : data.points.map((p) => ({ x: sx(p.x), y: sy(p.y), text: p.text }));
    return { height, marks, legend: data.legend, says: `${data.points.length} sessions, planned against actual.` };
  };
})();
