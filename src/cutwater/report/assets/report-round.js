"use strict";
/* One round of a run: who did what when, who had how much of the server, where the model was cut. */
(() => {
  const { el, format } = CW;

  const NOTE =
    "Each phase summed over the session; a bar is as long as the session, and the thin bar below is the plan.";

  CW.roundView = () => {
    let run = null,
      phases = [],
      number = null,
      following = true;

    /* ---- choosing the round ---- */
    const button = (text, label, by) =>
      el("button", { type: "button", text, "aria-label": label, onclick: () => pick(place() + by) });
    const slider = el("input", {
      type: "range",
      min: 0,
      step: 1,
      "aria-label": "Round",
      id: "round",
      oninput: (event) => pick(Number(event.target.value)),
    });
    const before = button("‹", "Round before", -1);
    const after = button("›", "Next round", 1);
    const label = el("b", { id: "round-number" });
    const told = el("p", { class: "note", id: "told" });
    const place = () => run.rounds.findIndex((one) => one.round === number);
    const pick = (at) => {
      if (!run.rounds[at]) return;
      number = run.rounds[at].round;
      following = at === run.rounds.length - 1;
      draw();
    };

    /* ---- its figures ---- */
    const gantt = CW.figure("gantt", "Phases of each client", "", CW.sessions);
    const level = CW.figure(
      "level",
      "Water level",
      "What each client would take alone, and what the server's compute takes off, as planned.",
      CW.level,
    );
    const shares = CW.figure("shares", "The server's compute", "", CW.shares);
    const cuts = CW.figure("cuts", "Cuts", "How many layers stay on the device.", CW.cuts);

    const draw = () => {
      const at = place(),
        one = run.rounds[at];
      for (const figure of [gantt, level, shares, cuts]) figure.root.hidden = !one;
      slider.max = Math.max(run.rounds.length - 1, 0);
      slider.value = at;
      before.disabled = at <= 0;
      after.disabled = at >= run.rounds.length - 1;
      label.textContent = one ? `round ${one.round}` : "";
      told.textContent = one ? sentence(one) : "No round has been written yet.";
      if (!one) return;
      const rows = sessions(one);
      gantt.update({ rows, phases, level: one.actual_seconds });
      gantt.note(`${NOTE} ${CW.overlapNote(rows)}`);
      drawShares(one);
      drawLevel(one);
      drawCuts(one);
    };

    const sentence = (one) => {
      const slow = run.lines.find((line) => line.round === one.round)?.bottleneck;
      return [
        `Planned${one.planner ? ` by ${one.planner}` : ""}: ${format.seconds(one.planned_seconds)}.`,
        `It took ${format.seconds(one.actual_seconds)}${slow ? `, waiting for ${slow}` : ""}.`,
        `${one.sharing} of ${one.clients.length} clients share the server${one.lost ? `; ${one.lost} lost` : ""}.`,
        one.failed ? `The round failed: ${one.failed}.` : "",
      ].join(" ");
    };

    const sessions = (one) =>
      one.clients.map((client) => ({
        name: client.name,
        split: client.split,
        lost: client.lost,
        phases: client.actual,
        seconds: client.actual_seconds,
        overlap: client.actual_overlap,
        planned: {
          phases: client.planned,
          seconds: client.planned_seconds,
          overlap: client.planned_overlap,
        },
        note: CW.crossingNote(client, run.wires[client.wire]),
      }));

    const drawShares = (one) => {
      const sharing = one.clients.filter((client) => client.share > 0);
      const bar = (name, pick) => ({
        label: name,
        parts: sharing.map((client) => ({ name: client.name, share: pick(client) })),
      });
      const promised = bar("promised", (client) => client.share);
      const delivered = bar("delivered", (client) => client.delivered ?? 0);
      const measured = one.delivered !== null;
      let note = "As promised by the plan; what was delivered is not measured in this engine.";
      if (measured) note = `Delivered ${format.percent(one.delivered)} of what was promised.`;
      if (!sharing.length) note = "Nobody shares the server in this round.";
      shares.note(note);
      shares.update({ bars: measured ? [promised, delivered] : [promised], compute: one.server_compute });
    };

    const drawLevel = (one) => {
      const rows = one.clients
        .filter((client) => client.alone !== null)
        .map(({ name, alone, planned_seconds, share }) => ({ name, alone, latency: planned_seconds, share }));
      level.root.hidden = !rows.length;
      if (rows.length) level.update({ rows, level: one.planned_seconds, compute: one.server_compute });
    };

    const drawCuts = (one) => {
      const known = one.clients.map((client) => client.cut).filter((cut) => cut >= 1);
      const layers = Math.max(run.layers || 1, ...known);
      cuts.update({ cuts: known, layers });
    };

    return {
      pager: el("span", { class: "pager" }, before, slider, after, label),
      body: [
        told,
        gantt.root,
        el("div", { class: "pair" }, level.root, el("div", { class: "stack" }, shares.root, cuts.root)),
      ],
      /* Shows the newest round, and goes on doing so until another one is chosen. */
      show: (fresh, names) => {
        if (run && fresh.name !== run.name) following = true;
        [run, phases] = [fresh, names];
        if (following || place() < 0) number = CW.last(run.rounds)?.round ?? null;
        draw();
      },
    };
  };
})();
