"use strict";
/* A run as a whole, or several side by side: what was learned, when, what it took, what went wrong. */
(() => {
  const { el, format, most } = CW;
  const MOST_LOSSES = 200;
  const colour = (i) => `var(--run-${i % 6})`;
  const known = (run, key) => run.lines.filter((line) => line[key] !== null && line[key] !== undefined);
  /* A score of a line: what is built in has a key of its own, the others are among its metrics. */
  const score = (line, key) => (key in line ? line[key] : line.metrics?.[key]) ?? null;
  const text = (measure) => (measure.percent ? format.accuracy : format.number);
  const last = (run, { key }) => score(run.lines.findLast((line) => score(line, key) !== null) || {}, key);
  const moved = ({ summary }) => format.bytes(summary.bytes_up + summary.bytes_down);
  const clock = ({ summary }) => (summary.rounds ? format.duration(summary.virtual_seconds) : "–");
  const planError = ({ summary }) => CW.orDash(summary.plan_error?.mean, format.percent);
  const wholeTick = (value) => (Number.isInteger(value) ? CW.tickText(value) : "");
  const byRound = { name: "round", label: "round", tick: wholeTick };

  /* ---- in numbers ---- */
  CW.runCards = (run, measures) => {
    const card = (value, label) =>
      el("div", { class: "card" }, el("b", { text: value }), el("span", { text: label }));
    return [
      ...measures
        .filter((one, i) => i === 0 || !["test_loss"].includes(one.key))
        .map((one) => card(CW.orDash(last(run, one), text(one)), one.title.toLowerCase())),
      ...(run.summary.best ? [card(format.count(run.summary.best.round), "round of the best model")] : []),
      card(format.count(run.summary.rounds), "rounds"),
      card(clock(run), "of training by the clock"),
      card(moved(run), "moved over the network"),
      card(planError(run), "mean error of the plan"),
      card(format.count(run.summary.lost), run.summary.lost === 1 ? "update lost" : "updates lost"),
    ];
  };

  CW.runsTable = (runs, measure, target) => {
    const named = (run, i) =>
      el(
        "span",
        { class: "named" },
        el("span", { class: "swatch", colour: colour(i) }),
        run.name,
        run.lossy ? el("span", { class: "warn", text: " (lossy)" }) : null,
      );
    const heads = [
      "Run",
      "Planner",
      "Rounds",
      measure.title,
      "Training time",
      target === null ? "Time to target" : `Time to ${text(measure)(target.value)}`,
    ];
    const rows = runs.map((run, i) => [
      named(run, i),
      run.planner,
      format.count(run.summary.rounds),
      CW.orDash(last(run, measure), text(measure)),
      clock(run),
      CW.orDash(run.summary.time_to_target?.virtual_seconds, format.duration),
      moved(run),
      planError(run),
      format.count(run.summary.lost),
    ]);
    return CW.table([...heads, "Moved", "Plan's error", "Lost"], rows);
  };

  /* ---- in figures over rounds or time ---- */
  CW.learningView = () => {
    const scores = el("div", { class: "pair" });
    const drawn = new Map();
    const scoreFigure = ({ key, title }) => {
      if (!drawn.has(key)) {
        const note = "The global model on the test set after each round.";
        drawn.set(key, CW.figure(key, title, note, CW.lines));
      }
      return drawn.get(key);
    };
    const loss = CW.figure(
      "loss",
      "Training loss",
      "Mean over the round's sessions, weighted by samples.",
      CW.lines,
    );
    const latency = CW.figure("latency", "Round latency", "As planned (dashed) and as it was.", CW.lines);
    const bytes = CW.figure("bytes", "Bytes moved", "", CW.columns);

    const timeAxis = (runs, by) => {
      const longest = most(runs.flatMap((run) => run.lines.map((line) => line[by] || 0)));
      const { unit, tick } = CW.timeUnit(longest);
      const what = by === "wall_seconds" ? "time this machine needed" : "time by the clock";
      return {
        name: "time",
        domain: [0, longest || 1],
        label: `${what} (${unit})`,
        tick,
        show: format.duration,
      };
    };

    const drawLearning = (runs, measures, by) => {
      const x = by === "round" ? byRound : timeAxis(runs, by);
      const series = (key) =>
        runs.map((run, i) => ({
          name: run.name,
          colour: colour(i),
          broad: i === 0 && by === "round" && runs.length > 1,
          points: run.lines
            .filter((line) => score(line, key) !== null && line[by] !== null)
            .map((line) => [line[by], score(line, key)]),
        }));
      const percent = (value) => CW.tickText(Number((value * 100).toPrecision(6)));
      const figures = measures.map((one) => scoreFigure(one).root);
      if (scores.children.length !== figures.length + 1) scores.replaceChildren(...figures, loss.root);
      for (const one of measures) {
        const name = one.title.replace(/^Test /, "").toLowerCase();
        const ticks = one.percent ? { tick: percent } : {};
        const label = one.percent ? `${name} (%)` : name;
        const y = { name, label, show: text(one), ...ticks };
        scoreFigure(one).update({ series: series(one.key), x, y, empty: "not evaluated yet" });
      }
      loss.update({
        series: series("loss"),
        x,
        y: { name: "loss", label: "loss", zero: true, show: format.number },
        empty: "no round has ended yet",
      });
    };

    const drawLatency = (runs) => {
      const series = runs.flatMap((run, i) =>
        ["actual", "planned"].map((kind) => ({
          name: runs.length > 1 ? `${run.name}, ${kind}` : kind,
          dash: kind === "planned",
          plain: kind === "planned",
          colour: colour(i),
          points: known(run, `${kind}_seconds`).map((line) => [line.round, line[`${kind}_seconds`]]),
        })),
      );
      const { unit, tick } = CW.timeUnit(most(series.flatMap((one) => one.points.map((point) => point[1]))));
      const y = { name: "latency", label: `round (${unit})`, zero: true, tick, show: format.seconds };
      latency.update({ series, x: byRound, y, legend: true });
    };

    const drawBytes = (run, several) => {
      bytes.root.hidden = !run.lines.length;
      if (!run.lines.length) return;
      const { unit, tick } = CW.byteUnit(
        most(run.lines.map((line) => (line.bytes_up || 0) + (line.bytes_down || 0))),
      );
      const sums = `${format.bytes(run.summary.bytes_up)} up, ${format.bytes(run.summary.bytes_down)} down`;
      bytes.note(
        `Model, smashed data and gradients of all clients${several ? ` of ${run.name}` : ""}: ${sums}.`,
      );
      const column = (name, key, tone) => ({
        name,
        colour: `var(--${tone})`,
        values: run.lines.map((line) => line[key] || 0),
      });
      bytes.update({
        xs: run.lines.map((line) => line.round),
        y: { label: unit, tick, show: format.bytes },
        series: [
          column("up", "bytes_up", "smashed-upload"),
          column("down", "bytes_down", "gradient-download"),
        ],
      });
    };

    return {
      body: [
        scores,
        el("div", { class: "pair" }, latency.root, bytes.root),
      ],
      show: (runs, measures, chosen, by) => {
        drawLearning(runs, measures, by);
        drawLatency(runs);
        drawBytes(runs[chosen], runs.length > 1);
      },
    };
  };

  /* ---- the plan against what was measured, losses, scenario and versions ---- */
  CW.runView = () => {
    const predicted = CW.figure(
      "predicted",
      "Predicted against measured",
      "Each dot is a client's session; on the line the plan was right.",
      CW.scatter,
    );
    const byPhase = el("div", { class: "scroll" }),
      losses = el("div", { class: "scroll" }),
      about = el("section", { class: "panel", id: "about" });

    const drawPredicted = (run) => {
      const dot = (client, round) => {
        const { planned_seconds: planned, actual_seconds: actual } = client;
        const seconds = [`planned ${format.seconds(planned)}`, `actual ${format.seconds(actual)}`];
        const text = [`${client.name}, round ${round}`, ...seconds];
        return { x: planned, y: actual, text, colour: client.split ? "var(--water)" : "var(--slate)" };
      };
      const points = run.rounds.flatMap((one) =>
        one.clients.filter((client) => client.counts).map((client) => dot(client, one.round)),
      );
      predicted.update({ points, legend: CW.SPLIT_OR_WHOLE, empty: "no session to compare yet" });
    };

    const phaseTable = (run) => {
      if (!run.phases.length) return el("p", { class: "note", text: "Nothing to compare yet." });
      const off = (far) => {
        const shown = format.percent(Math.abs(far));
        return shown === "0 %" ? shown : `${far > 0 ? "+" : "−"}${shown}`;
      };
      const swatch = (phase) => el("span", { class: "swatch", colour: CW.phaseColour(phase) });
      const row = (name, { planned, actual, deviation }, sign = "") => [
        name,
        sign + format.duration(planned),
        sign + format.duration(actual),
        CW.orDash(deviation, off),
      ];
      const rows = run.phases.map((one) =>
        row(el("span", {}, swatch(one.phase), format.phase(one.phase)), one),
      );
      const [overlap, total] = run.overlap;
      if (overlap) rows.push(row("at the same time", overlap, "−"), row("all sessions", total));
      return CW.table(["Phase", "Planned", "Actual", "Off"], rows);
    };

    const lossTable = (run) => {
      const failed = run.lines.filter((line) => line.failed);
      const rows = [
        ...failed.map((line) => [String(line.round), "whole round", line.failed]),
        ...run.losses.map((one) => [String(one.round), one.client, one.reason]),
      ].sort((a, b) => a[0] - b[0]);
      if (!rows.length) return [el("p", { class: "note", text: "Nobody was lost and no round failed." })];
      const more = rows.length - MOST_LOSSES;
      return [
        CW.table(["Round", "Client", "Why"], rows.slice(0, MOST_LOSSES), 3),
        ...(more > 0 ? [el("p", { class: "note", text: `… and ${more} more.` })] : []),
      ];
    };

    const facts = (run) => {
      const model = [run.model, run.input && `input ${run.input}`, run.layers && `${run.layers} layers`];
      const rows = [["Model", model.filter(Boolean).join(", ")]];
      const walk = (value, key) => {
        if (value === null || value === "" || ["format", "version"].includes(key)) return;
        if (typeof value === "object")
          Object.entries(value).forEach(([below, one]) => walk(one, key ? `${key}.${below}` : below));
        else
          rows.push([
            key,
            typeof value === "number" && key.endsWith("_compute") ? format.compute(value) : String(value),
          ]);
      };
      walk(run.info, "");
      const weights = run.summary.weights_sha256;
      if (weights) rows.push(["weights after the last round", `sha256 ${weights.slice(0, 16)}…`]);
      const name = (key) => key.replace(/^versions\./, "").replaceAll("_", " ");
      const row = ([key, value]) =>
        el("tr", {}, el("th", { text: name(key), scope: "row" }), el("td", { text: value }));
      const body = el(
        "tbody",
        {},
        ...rows
          .filter(([, value]) => value)
          .slice(0, 60)
          .map(row),
      );
      return el("div", { class: "scroll" }, el("table", { class: "facts" }, body));
    };

    const scenario = (run) =>
      run.scenario
        ? el(
            "details",
            { open: run.scenario.length < 3000 },
            el("summary", { text: "scenario.toml" }),
            el("pre", { text: run.scenario, tabindex: 0 }),
          )
        : el("p", { class: "note", text: "The run folder holds no scenario.toml." });

    return {
      body: [
        el(
          "div",
          { class: "pair" },
          predicted.root,
          el(
            "section",
            { class: "panel" },
            el("h3", { text: "By phase" }),
            el("p", { class: "note", text: "Over all sessions shown whose updates count." }),
            byPhase,
          ),
        ),
        el(
          "section",
          { class: "panel", id: "dropouts" },
          el("h2", { text: "Dropouts and failed rounds" }),
          losses,
        ),
        about,
      ],
      show: (run) => {
        drawPredicted(run);
        byPhase.replaceChildren(phaseTable(run));
        losses.replaceChildren(...lossTable(run));
        about.replaceChildren(el("h2", { text: "Scenario and versions" }), facts(run), scenario(run));
      },
    };
  };
})();
