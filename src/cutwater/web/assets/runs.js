"use strict";
/* The runs of a folder; one opens as a report that follows it, several are compared. */
(() => {
  const { el, byId, format } = CW;
  const chosen = new Set();
  const address = (names) => `/view?${names.map((name) => `run=${encodeURIComponent(name)}`).join("&")}`;
  const ago = (seconds) => (seconds < 5 ? "now" : `${format.duration(seconds)} ago`);

  const show = ({ folder, runs }) => {
    const compare = el("button", { type: "button", class: "main", text: "compare", disabled: chosen.size < 2, onclick: () => { location.href = address([...chosen]); } });
    const row = (run) => el("tr", {},
      el("td", {}, el("input", { type: "checkbox", "aria-label": `Compare ${run.name}`, checked: chosen.has(run.name), onchange: (event) => {
        if (event.target.checked) chosen.add(run.name); else chosen.delete(run.name);
        compare.disabled = chosen.size < 2;
      } })),
      el("td", {}, el("a", { href: address([run.name]), text: run.name === "." ? folder : run.name })),
      ...[run.planner || "–", format.count(run.rounds), run.accuracy === null ? "–" : format.accuracy(run.accuracy), format.duration(run.virtual_seconds), run.written ? ago(Date.now() / 1000 - run.written) : "–"]
        .map((text) => el("td", { class: "number", text })));
    byId("runs").replaceChildren(el("section", { class: "panel" },
      el("div", { class: "head" }, el("h1", { text: folder ? `Runs in ${folder}` : "Runs" }), el("span", { class: "space" }), ...(runs.length > 1 ? [el("span", { class: "note", text: "Choose two or more to" }), compare] : [])),
      runs.length ? el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, el("th", {}), el("th", { text: "Run", scope: "col" }),
        ...["Planner", "Rounds", "Accuracy", "Training time", "Last round"].map((text) => el("th", { class: "number", text, scope: "col" })))), el("tbody", {}, ...runs.map(row))))
        : el("p", { class: "note", text: folder ? "No run here yet: cutwater train SCENARIO --run DIR makes one." : "Start cutwater web with --runs DIR to see runs here." })));
  };
  const follow = async () => {
    for (;;) {
      try {
        const busy = byId("runs").contains(document.activeElement);
        const found = await (await fetch("/api/runs")).json();
        if (!busy) show(found);
      } catch { /* the next try may find the server again */ }
      await new Promise((done) => setTimeout(done, 3000));
    }
  };
  document.addEventListener("DOMContentLoaded", () => {
    byId("bar").append(CW.brand("/"), el("nav", { "aria-label": "Pages" }, el("a", { href: "/", text: "Planner" }), el("a", { href: "/runs", text: "Runs", "aria-current": "page" })), el("span", { class: "space" }), CW.themeButton());
    follow();
  });
})();
