"use strict";
/* Lines, columns, dots. Each takes (svg, data, width), draws, and returns height, legend and marks to read. */
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
      svg.append(
        line(left, sy(tick), width - right, sy(tick), "grid"),
        text(left - 8, sy(tick) + 4, (y.tick || CW.tickText)(tick), "tick", "end"),
      );
    }
    let free = -Infinity;
    for (const tick of x.ticks || sx.ticks(Math.max((width - left - right) / 90, 2))) {
      const label = (x.tick || CW.tickText)(tick),
        half = label.length * 3.4;
      const at = Math.min(Math.max(sx(tick), left), width - half - 1);
      if (at - half < free) continue;
      free = at + half + 6;
      svg.append(
        line(sx(tick), height - bottom, sx(tick), height - bottom + 4, "axis"),
        text(at, height - bottom + 18, label, "tick", "middle"),
      );
    }
    svg.append(line(left, height - bottom, width - right, height - bottom, "axis"));
    if (x.label) svg.append(text(width - right, height - 4, x.label, "label", "end"));
    if (y.label) svg.append(text(0, 10, y.label, "label"));
    return { sx, sy };
  };

  const leftFor = (domain, tick = CW.tickText) =>
    14 +
    6.6 *
      most(
        CW.ticks(domain[0], domain[1], 6).map((value) => tick(value).length),
        2,
      );

  CW.SPLIT_OR_WHOLE = [
    ["split", "var(--water)"],
    ["whole model", "var(--slate)"],
  ];
  CW.draw = { text, rect, line, short, axes, leftFor };

  /* Lines over a common x: {series: [{name, colour, points, dash}], x, y, levels, stops}. */
  CW.lines = (svg, data, width) => {
    const height = data.height || (width < 480 ? 230 : 270);
    const points = data.series.flatMap((one) => one.points);
    if (!points.length) {
      svg.append(text(width / 2, 60, data.empty || "nothing to show yet", "label", "middle"));
      return { height: 110, says: "Nothing to show yet." };
    }
    const xs = points.map((p) => p[0]),
      ys = points.map((p) => p[1]).concat((data.levels || []).map((l) => l.y));
    const low = Math.min(...ys),
      high = most(ys, -Infinity);
    const x = { domain: [Math.min(...xs), most(xs, -Infinity)], ...data.x };
    if (x.domain[0] === x.domain[1]) x.domain = [x.domain[0] - 0.5, x.domain[1] + 0.5];
    const pad = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
    const y = { domain: [data.y.zero ? 0 : low - pad, high + pad], ...data.y };
    const left = leftFor(y.domain, y.tick);
    const { sx, sy } = axes(svg, { width, height, left, top: 24, x, y });
    for (const level of data.levels || []) {
      svg.append(
        line(left, sy(level.y), width - 16, sy(level.y), "level"),
        text(width - 18, sy(level.y) - 5, level.text, "label", "end"),
      );
    }
    for (const stop of data.stops || []) {
      svg.append(line(sx(stop.x), sy(stop.y), sx(stop.x), sy(y.domain[0]), `stop ${stop.kind || ""}`));
    }
    const marks = [];
    for (const one of data.series) {
      const path = one.points
        .map(([a, b], i) => `${i ? "L" : "M"}${sx(a).toFixed(1)} ${sy(b).toFixed(1)}`)
        .join("");
      const drawn = make("path", { d: path, class: `line ${one.dash ? "dash" : ""}`, stroke: one.colour });
      // Runs that agree lie on each other: the first is drawn broader, so that both are seen.
      if (one.broad) drawn.style.strokeWidth = "5.5px";
      svg.append(drawn);
      if (one.points.length <= 40 && !one.plain) {
        for (const [a, b] of one.points)
          svg.append(make("circle", { cx: sx(a), cy: sy(b), r: 2.6, fill: one.colour }));
      }
      for (const [a, b] of one.points) {
        marks.push({
          x: sx(a),
          y: sy(b),
          text: [
            one.name,
            `${data.x.name}: ${(data.x.show || CW.tickText)(a)}`,
            `${data.y.name}: ${(data.y.show || CW.tickText)(b)}`,
          ],
        });
      }
    }
    for (const stop of data.stops || []) {
      const px = sx(stop.x),
        wide = stop.text.length * 6.8 + 6;
      const after = stop.left ? px - wide < left : px + wide < width;
      svg.append(
        make("circle", { cx: px, cy: sy(stop.y), r: 5, class: `dot ${stop.kind || ""}` }),
        text(
          px + (after ? 4 : -4),
          sy(stop.y) + (stop.below ? 22 : -12),
          stop.text,
          "halo strong",
          after ? "start" : "end",
        ),
      );
    }
    const legend =
      data.series.length > 1 || data.legend
        ? data.series.map((one) => [one.name, one.colour, one.dash ? "dashed" : "stroke"])
        : [];
    return {
      height,
      legend,
      marks,
      scales: { sx, sy },
      says: `${data.series.length} lines of ${data.y.name} by ${data.x.name}.`,
    };
  };

  /* Stacked columns by round: {series: [{name, colour, values}], xs, y}. */
  CW.columns = (svg, data, width) => {
    const height = 220,
      totals = data.xs.map((_, i) => sum(data.series.map((one) => one.values[i])));
    const high = most(totals) * 1.06 || 1;
    const { sx, sy } = axes(svg, {
      width,
      height,
      left: leftFor([0, high], data.y.tick),
      top: 24,
      x: {
        domain: [data.xs[0] - 0.5, data.xs[data.xs.length - 1] + 0.5],
        label: "round",
        tick: (v) => (Number.isInteger(v) ? String(v) : ""),
      },
      y: { domain: [0, high], ...data.y },
    });
    const wide = Math.max((sx(2) - sx(1)) * 0.8, 0.6),
      marks = [];
    data.xs.forEach((x, i) => {
      let at = 0;
      for (const one of data.series) {
        svg.append(
          rect(sx(x) - wide / 2, sy(at + one.values[i]), wide, sy(at) - sy(at + one.values[i]), one.colour),
        );
        at += one.values[i];
      }
      marks.push({
        x: sx(x),
        y: sy(at),
        text: [`round ${x}`, ...data.series.map((one) => `${one.name}: ${data.y.show(one.values[i])}`)],
      });
    });
    return {
      height,
      marks,
      by: "x",
      legend: data.series.map((one) => [one.name, one.colour]),
      says: `${data.xs.length} rounds.`,
    };
  };

  /* Planned against actual seconds: {points: [{x, y, text, colour}]}; on the diagonal the plan was right. */
  CW.scatter = (svg, data, width) => {
    const height = Math.min(width, 360);
    if (!data.points.length) {
      svg.append(text(width / 2, 60, data.empty, "label", "middle"));
      return { height: 110, says: data.empty };
    }
    const all = data.points.flatMap((p) => [p.x, p.y]).filter((v) => v > 0);
    const low = Math.min(...all),
      high = most(all),
      log = high / low > 30;
    const domain = log ? [low / 1.3, high * 1.3] : [0, high * 1.06],
      { unit, scale, tick } = CW.timeUnit(high);
    const { sx, sy } = axes(svg, {
      width,
      height,
      left: leftFor([0, high / scale]) + 6,
      top: 24,
      x: { domain, log, tick, label: `planned (${unit})` },
      y: { domain, log, tick, label: `actual (${unit})` },
    });
    svg.append(line(sx(domain[0]), sy(domain[0]), sx(domain[1]), sy(domain[1]), "diagonal"));
    for (const p of data.points)
      svg.append(
        make("circle", {
          cx: sx(p.x),
          cy: sy(p.y),
          r: data.points.length > 400 ? 2 : 3.4,
          fill: p.colour,
          class: "cloud",
        }),
      );
    const marks =
      data.points.length > 4000 ? [] : data.points.map((p) => ({ x: sx(p.x), y: sy(p.y), text: p.text }));
    return {
      height,
      marks,
      legend: data.legend,
      says: `${data.points.length} sessions, planned against actual.`,
    };
  };
})();
