"use strict";
/* A plan on the screen: the verdict, the figures, the curve over server compute, the table of planners. */
(() => {
  const { el, byId, format } = CW;
  const LONGEST = 4; // times the optimum: a hopeless planner must not squeeze the others' bars

  CW.planView = ({ phases, fleet, pickPlanner, pickCompute, pickClient }) => {
    let plan = null,
      details = null,
      ends = null,
      scales = null;
    const sessions = CW.figure("phases", "Phases of each client", "", CW.sessions);
    const step = CW.stepView({ names: fleet.names, pick: pickClient });
    const level = CW.figure(
      "level",
      "Water level",
      "What each client would take alone, and what the server's compute takes off.",
      CW.level,
    );
    const shares = CW.figure("shares", "Who has the server's compute", "", CW.shares);
    const cuts = CW.figure("cuts", "Cuts", "How many layers stay on the device.", CW.cuts);
    const curve = CW.figure("curve", "Round against server compute", "", (svg, data, width) => {
      const told = CW.lines(svg, data, width);
      scales = told.scales;
      return told;
    });
    byId("figures").append(
      sessions.root,
      step.root,
      el("div", { class: "pair" }, level.root, el("div", { class: "stack" }, shares.root, cuts.root)),
      curve.root,
    );

    /* The curve is a slider, too. */
    const along = (event) => {
      if (!scales || !(event.buttons & 1)) return;
      const value = scales.sx.back(event.clientX - curve.svg.getBoundingClientRect().left);
      pickCompute(Math.min(Math.max(value, ends[0]), ends[1]), performance.now());
    };
    curve.svg.addEventListener("pointerdown", (event) => {
      curve.svg.setPointerCapture(event.pointerId);
      along(event);
    });
    curve.svg.addEventListener("pointermove", along);

    const verdict = () => {
      const { gap, speed_up: gain } = plan;
      const parts = [];
      if (gap !== null)
        parts.push(gap < 1e-9 ? "no plan is faster" : `${format.percent(gap)} above the optimum`);
      if (gain > 1.005) parts.push(`${format.number(gain)} × faster than FedAvg`);
      return parts.join("; ");
    };
    const client = (k) => {
      const split = plan.cut[k] < plan.layers;
      const one = { split, cut: plan.cut[k], second_cut: plan.second_cut[k], share: plan.share[k] };
      return {
        ...one,
        name: fleet.name(k),
        phases: phases.map((phase) => plan[phase][k]),
        seconds: plan.session[k],
        overlap: plan.overlap[k],
        alone: plan.alone[k],
        latency: plan.session[k],
        note: CW.crossingNote(one, plan.wires[plan.wire[k]].text),
      };
    };

    const drawCurve = () => {
      const { compute, latency } = details.curve;
      const { unit, tick } = CW.timeUnit(CW.most(latency));
      curve.update({
        series: [
          {
            name: "optimum",
            colour: "var(--accent)",
            points: compute.map((x, i) => [x, latency[i]]),
            plain: true,
          },
        ],
        stops: stops(),
        levels: plan.fedavg ? [{ y: plan.fedavg, text: `FedAvg ${format.seconds(plan.fedavg)}` }] : [],
        height: 280,
        x: {
          name: "server",
          label: "server compute",
          log: true,
          domain: ends,
          tick: format.compute,
          show: format.compute,
        },
        y: {
          name: "round",
          label: `round (${unit})`,
          zero: true,
          tick,
          show: format.seconds,
        },
      });
      curve.note(
        details.knee
          ? `The knee: with ${format.compute(details.knee.compute)} a server saves 90 % of what any server could. Drag along the curve.`
          : "Drag along the curve. There is no knee in this range.",
      );
    };
    const stops = () => {
      const here = {
        x: Math.min(Math.max(plan.server_compute, ends[0]), ends[1]),
        y: plan.latency,
        text: `${format.compute(plan.server_compute)}: ${format.seconds(plan.latency)}`,
      };
      if (!details.knee) return [here];
      const { compute, latency } = details.knee;
      const text = `knee ${format.compute(compute)}`;
      return [here, { x: compute, y: latency, text, kind: "faint", below: true, left: compute < here.x }];
    };

    const drawPlanners = (chosen) => {
      const longest = LONGEST * Math.min(...details.planners.map((row) => row.latency ?? Infinity));
      const heads = ["Planner", "", "Round", "Above the optimum", "Sharing", "Planned in"];
      const table = CW.table(
        heads,
        details.planners.map((row) => plannerRow(row, longest)),
        2,
      );
      table.querySelectorAll("tbody tr").forEach((line, i) => {
        line.classList.toggle("chosen", details.planners[i].planner === chosen);
      });
      byId("planner-table").replaceChildren(table);
    };
    const plannerRow = (row, longest) => {
      const pick = el("button", {
        type: "button",
        class: "quiet",
        text: row.planner,
        onclick: () => pickPlanner(row.planner),
      });
      if (row.latency === null)
        return [pick, el("span", { class: "note", text: row.error }), "–", "–", "–", "–"];
      return [
        pick,
        CW.gauge(row.latency / longest, row.latency > longest ? "gauge over" : "gauge"),
        format.seconds(row.latency),
        row.gap === null ? "–" : row.gap < 1e-9 ? "0 %" : format.percent(row.gap),
        format.count(row.sharing),
        format.seconds(row.seconds),
      ];
    };

    return {
      show: (answer) => {
        ({ plan, details, range: ends } = answer);
        byId("latency").textContent = format.seconds(plan.latency);
        byId("verdict").textContent = verdict();
        byId("explanation").replaceChildren(...plan.explanation.slice(1).map((text) => el("p", { text })));
        const rows = Array.from({ length: plan.count }, (_, k) => client(k));
        sessions.update({ rows, phases, level: plan.latency });
        sessions.note(
          `Each phase summed over the session; a bar is as long as the session. ${CW.overlapNote(rows)}`,
        );
        byId("lossy").textContent = plan.lossy ?? "";
        byId("lossy").hidden = !plan.lossy;
        step.show(plan.client);
        level.update({ rows, level: plan.latency, compute: plan.server_compute });
        shares.update({ bars: [{ label: "share", parts: rows }], compute: plan.server_compute || 1 });
        shares.note(plan.server_compute ? "" : "The server has no compute to share.");
        cuts.update({ cuts: plan.cut, layers: plan.layers, names: details.layer_names });
        drawCurve();
        drawPlanners(answer.planner);
      },
    };
  };
})();
