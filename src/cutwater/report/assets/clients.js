"use strict";
/* What clients do, drawn: their sessions, the water level, shares of the server, cuts. As in charts.js. */
(() => {
  const { svg: make, format, sum, most } = CW;
  const { text, rect, line, short, axes, leftFor } = CW.draw;

  /* How a session is cut, for its bar: {split, cut, second_cut, share}, and how it crosses the cut in words. */
  CW.crossingNote = ({ split, cut, second_cut: second, share }, wire) =>
    split
      ? `cut after layer ${cut}${second ? ` and ${second}` : ""}, share ${format.compute(share)}; ${wire}`
      : "whole model on the device";

  /* Sessions as bars of phases: {rows: [{name, phases, seconds, overlap, planned, note, lost, split}],
   * phases: names, level}; planned has phases, seconds and overlap, too. */
  CW.sessions = (svg, data, width) => {
    const many = data.rows.length > CW.MOST_BARS;
    /* Lanes of an overlapped session have no room for what nobody works on. */
    const waits = (p) => data.rows.some((row) => row.phases[p] > 0 && (many || !(row.overlap > 0)));
    const legend = data.phases
      .filter((phase, p) => phase !== "round_trips" || waits(p))
      .map((phase) => [format.phase(phase), CW.phaseColour(phase)]);
    if (many) return strata(svg, data, width, legend);
    const planned = data.rows.some((row) => row.planned);
    const tall = planned ? 26 : 20,
      gap = data.rows.length > 30 ? 4 : 7,
      top = 22;
    const left = Math.min(
        26 +
          6.8 *
            most(
              data.rows.map((row) => row.name.length),
              2,
            ),
        width * 0.3,
      ),
      right = 64;
    const height = top + data.rows.length * (tall + gap) + 40;
    const end =
      most(
        data.rows.map((row) => Math.max(row.seconds, row.planned?.seconds || 0)),
        data.level || 0,
      ) || 1;
    const { unit, tick } = CW.timeUnit(end);
    const { sx } = axes(svg, {
      width,
      height,
      left,
      right,
      top,
      x: { domain: [0, end], label: `time in the round (${unit})`, tick },
      y: { domain: [0, 1], tick: () => "", label: "" },
    });
    svg.querySelectorAll(".grid").forEach((node) => node.remove());
    const marks = [];
    data.rows.forEach((row, i) => {
      const y = top + i * (tall + gap),
        bar = planned ? 17 : tall;
      svg.append(
        text(
          left - 8,
          y + bar / 2 + 4,
          short(row.name, Math.floor((left - 10) / 6.6)),
          row.split ? "name strong" : "name",
          "end",
        ),
      );
      CW.sessionBar(svg, row, data.phases, { sx, y, tall: bar, kind: row.lost ? "lost" : "" });
      if (row.planned)
        CW.sessionBar(svg, row.planned, data.phases, { sx, y: y + bar + 2, tall: 4, kind: "planned" });
      svg.append(
        text(
          width - 2,
          y + bar / 2 + 4,
          row.lost ? "lost" : format.seconds(row.seconds),
          row.lost ? "label warn" : "label",
          "end",
        ),
      );
      const parts = row.phases
        .map((seconds, p) => [seconds, p])
        .filter(([seconds]) => seconds > 0)
        .map(
          ([seconds, p]) =>
            `${format.phase(data.phases[p])} ${format.seconds(seconds)}${row.planned ? ` (planned ${format.seconds(row.planned.phases[p])})` : ""}`,
        );
      marks.push({
        x: sx(row.seconds / 2),
        y,
        box: [2, y - 2, width - 4, tall + 3],
        text: [
          `${row.name}: ${format.seconds(row.seconds)}${row.planned ? `, planned ${format.seconds(row.planned.seconds)}` : ""}`,
          ...(row.note ? [row.note] : []),
          ...(row.lost ? [row.lost] : []),
          ...parts,
          ...(row.overlap > 0 ? [`of these at the same time ${format.seconds(row.overlap)}`] : []),
        ],
      });
    });
    if (data.level) {
      svg.append(
        line(sx(data.level), 12, sx(data.level), height - 38, "level"),
        text(sx(data.level) - 6, 12, `round ${format.seconds(data.level)}`, "label strong", "end"),
      );
    }
    return {
      height,
      legend,
      marks,
      by: "y",
      says: `${data.rows.length} clients; the round takes ${format.seconds(data.level || end)}.`,
    };
  };

  /* Clients in order, neighbours together where a screen has no room for each. */
  const groups = (rows, by, most) => {
    const order = rows.map((_, k) => k).sort((a, b) => by(rows[a]) - by(rows[b]));
    const count = Math.min(order.length, most);
    return Array.from({ length: count }, (_, c) => {
      const [from, to] = [c, c + 1].map((at) => Math.floor((at * order.length) / count));
      const places = order.slice(from, to),
        total = (pick) => sum(places.map((k) => pick(rows[k], k)));
      return {
        first: rows[places[0]],
        many: places.length > 1,
        name: `${rows[places[0]].name}${places.length > 1 ? ` and ${places.length - 1} more` : ""}`,
        total,
        mean: (pick) => total(pick) / places.length,
      };
    });
  };

  /* A large fleet: clients by latency from left to right, phases stacked, neighbours averaged to what a screen can show.
   * A stack is as high as the session is long: where phases overlap, each is drawn at its part of the busy time. */
  const strata = (svg, data, width, legend) => {
    const height = 300,
      scales = data.rows.map((row) => (row.overlap > 0 ? row.seconds / sum(row.phases) : 1));
    const together = groups(data.rows, (row) => row.seconds, Math.max(Math.floor(width / 3), 60)),
      columns = together.length;
    const stacks = together.map((group) => data.phases.map((_, p) => group.mean((row, k) => row.phases[p] * scales[k])));
    const seconds = data.rows.map((row) => row.seconds);
    const high = most(seconds, data.level || 0) * 1.04 || 1,
      { unit, scale, tick } = CW.timeUnit(high);
    const y = { domain: [0, high], label: `session (${unit})`, tick };
    const x = {
      domain: [0, data.rows.length],
      label: "clients, from the fastest to the slowest",
      tick: format.count,
    };
    const { sx, sy } = axes(svg, { width, height, left: leftFor([0, high / scale]), x, y, top: 24 });
    const at = (c) => sx((c * data.rows.length) / columns);
    const floor = new Float64Array(columns);
    data.phases.forEach((phase, p) => {
      let up = "",
        down = "";
      for (let c = 0; c < columns; c++) {
        const x0 = at(c).toFixed(1),
          x1 = at(c + 1).toFixed(1);
        const before = sy(floor[c]).toFixed(1);
        floor[c] += stacks[c][p];
        const after = sy(floor[c]).toFixed(1);
        up += `L${x0} ${after}L${x1} ${after}`;
        down = `L${x1} ${before}L${x0} ${before}${down}`;
      }
      svg.append(make("path", { d: `M${up.slice(1)}${down}Z`, fill: CW.phaseColour(phase) }));
    });
    if (data.level) {
      svg.append(
        line(sx(0), sy(data.level), width - 16, sy(data.level), "level"),
        text(sx(0) + 6, sy(data.level) - 6, `round ${format.seconds(data.level)}`, "label strong"),
      );
    }
    const marks = stacks.map((stack, c) => {
      const group = together[c],
        overlap = group.mean((row) => row.overlap);
      return {
        x: at(c + 0.5),
        y: sy(sum(stack)),
        text: [
          `${group.name}: ${format.seconds(sum(stack))}`,
          ...data.phases
            .map((phase, p) => `${format.phase(phase)} ${format.seconds(group.mean((row) => row.phases[p]))}`)
            .filter((_, p) => stack[p] > 0),
          ...(overlap > 0 ? [`of these at the same time ${format.seconds(overlap)}`] : []),
        ],
      };
    });
    return {
      height,
      legend,
      marks,
      by: "x",
      says: `${format.count(data.rows.length)} clients; the round takes ${format.seconds(data.level)}.`,
    };
  };

  /* The water level: {rows: [{name, alone, latency, share}], level, compute}. The server brings the slow down to it. */
  CW.level = (svg, data, width) => {
    const height = width < 400 ? 260 : 350,
      top = 26,
      bottom = 42;
    const together = groups(data.rows, (row) => row.alone, Math.max(Math.floor(width / 4), 40));
    const finite = data.rows.map((row) => row.alone).filter(Number.isFinite);
    const high =
      most(finite.concat(data.rows.map((row) => row.latency)), data.level) *
      (finite.length < data.rows.length ? 1.25 : 1.06);
    const { unit, scale, tick } = CW.timeUnit(high);
    const y = { domain: [0, high], label: `session (${unit})`, tick };
    const left = leftFor([0, high / scale]);
    const { sx, sy } = axes(svg, {
      width,
      height,
      left,
      top,
      bottom,
      x: { domain: [0, together.length], tick: () => "" },
      y,
    });
    const wide = sx(1) - sx(0),
      inset = wide > 12 ? wide * 0.14 : wide > 5 ? 0.5 : 0;
    const marks = together.map(({ first, many, name, mean, total }, c) => {
      const alone = mean((row) => Math.min(row.alone, high)),
        latency = mean((row) => row.latency);
      const share = total((row) => row.share),
        shared = share > 0;
      const x = sx(c) + inset,
        w = wide - 2 * inset;
      if (shared && alone > latency)
        svg.append(rect(x, sy(alone), w, sy(latency) - sy(alone), undefined, "relief"));
      svg.append(rect(x, sy(latency), w, sy(0) - sy(latency), undefined, shared ? "sharing" : "whole"));
      if (shared && wide > 31)
        svg.append(
          text(
            sx(c + 0.5),
            sy(alone) - 5,
            `${Math.round((100 * share) / data.compute)}\u202f%`,
            "tick strong halo",
            "middle",
          ),
        );
      if (!many && wide > 7 * Math.min(name.length, 5)) {
        svg.append(
          text(
            sx(c + 0.5),
            height - bottom + 15,
            short(name, Math.max(Math.floor(wide / 6.4), 2)),
            shared ? "tick strong" : "tick",
            "middle",
          ),
        );
      }
      const without = Number.isFinite(first.alone)
        ? format.seconds(many ? alone : first.alone)
        : "can't: the whole model does not fit or is not allowed";
      return {
        x: sx(c + 0.5),
        y: sy(Math.max(alone, latency)),
        box: [sx(c), top, wide, sy(0) - top],
        text: [
          name,
          `whole model on the device: ${without}`,
          `as planned: ${format.seconds(latency)}`,
          shared
            ? `share: ${format.compute(share)}, ${format.percent(share / data.compute)} of the server`
            : "no share of the server",
        ],
      };
    });
    svg.append(
      line(left, sy(data.level), width - 16, sy(data.level), "water"),
      text(width - 16, height - 6, "clients, by what they would take alone", "label", "end"),
    );
    const legend = [
      [`level ${format.seconds(data.level)}`, "var(--accent)", "stroke"],
      ["shares the server", "var(--water)"],
      ["time the server takes off", "var(--relief)"],
      ["whole model on the device", "var(--slate)"],
    ];
    return { height, legend, marks, by: "x", says: `Round level ${format.seconds(data.level)}.` };
  };

  /* Who has how much of the server: {bars: [{label, parts: [{name, share}]}], compute}. */
  CW.shares = (svg, data, width) => {
    const left = data.bars.length > 1 ? 74 : 0,
      tall = 30,
      top = 4;
    const height = top + data.bars.length * (tall + 12) + 18;
    const total =
      most(
        data.bars.map((bar) => sum(bar.parts.map((part) => part.share))),
        data.compute,
      ) || 1;
    const sx = CW.linear(0, total, left, width);
    const marks = [];
    data.bars.forEach((bar, b) => {
      const y = top + b * (tall + 12);
      if (left) svg.append(text(0, y + tall / 2 + 4, bar.label, "label"));
      svg.append(rect(left, y, sx(data.compute) - left, tall, undefined, "idle"));
      const few = bar.parts.filter((part) => part.share > 0).sort((a, c) => c.share - a.share);
      let at = 0;
      few.slice(0, 300).forEach((part, i) => {
        const x = sx(at),
          w = sx(at + part.share) - x;
        svg.append(rect(x, y, Math.max(w - 1, 0.5), tall, undefined, i % 2 ? "pour odd" : "pour"));
        const label = `${part.name} ${format.percent(part.share / data.compute)}`;
        if (w > label.length * 6.6 + 8) svg.append(text(x + 7, y + tall / 2 + 4, label, "inside"));
        else if (w > part.name.length * 6.8 + 6)
          svg.append(text(x + w / 2, y + tall / 2 + 4, part.name, "inside", "middle"));
        marks.push({
          x: x + w / 2,
          y,
          box: [x, y, w, tall],
          text: [
            part.name,
            `${bar.label}: ${format.compute(part.share)}`,
            `${format.percent(part.share / data.compute)} of ${format.compute(data.compute)}`,
          ],
        });
        at += part.share;
      });
      if (few.length > 300) {
        const rest = sum(few.slice(300).map((part) => part.share));
        svg.append(rect(sx(at), y, sx(at + rest) - sx(at), tall, undefined, "pour odd"));
        at += rest;
      }
      const idle = data.compute - at;
      if (idle > data.compute * 0.005) {
        if (sx(data.compute) - sx(at) > 70)
          svg.append(
            text(
              sx(data.compute) - 8,
              y + tall / 2 + 4,
              `unused ${format.percent(idle / data.compute)}`,
              "label",
              "end",
            ),
          );
        marks.push({ x: sx(at + idle / 2), y, text: ["unused", format.compute(idle)] });
      }
    });
    svg.append(
      text(left, height - 4, "0", "tick"),
      text(width, height - 4, format.compute(total), "tick", "end"),
    );
    return { height, marks, says: `The server's ${format.compute(data.compute)} and who has it.` };
  };

  const layerTicks = (layers, width) => {
    const inner = CW.ticks(1, layers, Math.max(width / 70, 2)).filter(
      (tick) => Number.isInteger(tick) && tick > 1 && layers - tick > layers * 0.05,
    );
    return [1, ...inner, layers];
  };

  /* How many clients are cut after each layer: {cuts, layers, names}. */
  CW.cuts = (svg, data, width) => {
    const height = 190,
      counts = new Array(data.layers).fill(0);
    for (const cut of data.cuts) counts[cut - 1]++;
    const high = most(counts) * 1.12;
    const left = leftFor([0, high]);
    const { sx, sy } = axes(svg, {
      width,
      height,
      left,
      top: 24,
      x: {
        domain: [0.5, data.layers + 0.5],
        label: "layers on the device",
        ticks: layerTicks(data.layers, width),
        tick: String,
      },
      y: { domain: [0, high], label: "clients", tick: (v) => (Number.isInteger(v) ? format.count(v) : "") },
    });
    const wide = sx(2) - sx(1),
      marks = [];
    counts.forEach((count, i) => {
      if (!count) return;
      const whole = i === data.layers - 1,
        w = Math.max(wide * 0.78, 2);
      svg.append(
        rect(sx(i + 1) - w / 2, sy(count), w, sy(0) - sy(count), undefined, whole ? "whole" : "sharing"),
        text(sx(i + 1), sy(count) - 4, format.count(count), "tick strong", "middle"),
      );
      const name = data.names?.[i] ? ` (${data.names[i]})` : "";
      marks.push({
        x: sx(i + 1),
        y: sy(count),
        text: [
          `${format.count(count)} ${count === 1 ? "client" : "clients"}`,
          whole ? `whole model, ${data.layers} layers on the device` : `cut after layer ${i + 1}${name}`,
        ],
      });
    });
    return {
      height,
      marks,
      by: "x",
      legend: CW.SPLIT_OR_WHOLE,
      says: `Cuts of ${data.cuts.length} clients over ${data.layers} layers.`,
    };
  };
})();
