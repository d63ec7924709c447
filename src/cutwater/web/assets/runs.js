"use strict";
/* The runs of a folder; one opens as a report that follows it, several are compared. */
(() => {
  const { el, byId, format } = CW;
  const EVERY = 3000; // milliseconds between two looks at the folder
  const chosen = new Set();
  const address = (names) => `/view?${names.map((name) => `run=${encodeURIComponent(name)}`).join("&")}`;
  const ago = (time) => {
    const seconds = Date.now() / 1000 - time;
    if (!time) return "–";
    return seconds < 5 ? "now" : `${format.duration(seconds)} ago`;
  };

  const show = ({ folder, runs }) => {
    const compare = el("button", {
      type: "button",
      class: "main",
      text: "compare",
      disabled: chosen.size < 2,
      onclick: () => {
        location.href = address([...chosen]);
      },
    });
    const choose = (event, name) => {
      if (event.target.checked) chosen.add(name);
      else chosen.delete(name);
      compare.disabled = chosen.size < 2;
    };
    const row = (run) => [
      el("input", {
        type: "checkbox",
        "aria-label": `Compare ${run.name}`,
        checked: chosen.has(run.name),
        onchange: (event) => choose(event, run.name),
      }),
      el("a", { href: address([run.name]), text: run.name === "." ? folder : run.name }),
      run.planner || "–",
      format.count(run.rounds),
      run.score ?? "–",
      run.rounds ? format.duration(run.virtual_seconds) : "–",
      CW.orDash(run.plan_error?.mean, format.percent),
      format.count(run.lost),
      ago(run.written),
    ];
    const heads = ["", "Run", "Planner", "Rounds", "Score", "Training time", "Plan's error", "Lost", "Last round"];
    const none = folder
      ? "No run here yet: cutwater train SCENARIO --run DIR makes one."
      : "Start cutwater web with --runs DIR to see runs here.";
    const several =
      runs.length > 1 ? [el("span", { class: "note", text: "Choose two or more to" }), compare] : [];
    byId("runs").replaceChildren(
      el(
        "section",
        { class: "panel" },
        el(
          "div",
          { class: "head" },
          el("h1", { text: folder ? `Runs in ${folder}` : "Runs" }),
          el("span", { class: "space" }),
          ...several,
        ),
        runs.length
          ? el("div", { class: "scroll" }, CW.table(heads, runs.map(row), 2))
          : el("p", { class: "note", text: none }),
      ),
    );
  };

  const follow = async () => {
    for (;;) {
      try {
        const found = await (await fetch("/api/runs")).json();
        // A list that is redrawn under someone's fingers loses the focus.
        if (!byId("runs").contains(document.activeElement)) show(found);
      } catch {
        /* the next try may find the server again */
      }
      await new Promise((done) => setTimeout(done, EVERY));
    }
  };
  document.addEventListener("DOMContentLoaded", () => {
    CW.bar("/runs");
    follow();
  });
})();
