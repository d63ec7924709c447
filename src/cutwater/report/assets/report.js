"use strict";
/* The run report. Its data stands in the page, or is asked for again and again while a run goes on. */
(() => {
  const { el, byId, format } = CW;
  const EVERY = 2000; // milliseconds between two looks at a run that goes on
  const choices = { by: "round", run: 0 };
  let data = null,
    parts = null;

  /* ---- the page, made once ---- */
  const build = () => {
    parts = {
      title: el("h1"),
      status: el("span", { class: "note", id: "status", role: "status" }),
      notices: el("div", { class: "stack" }),
      cards: el("div", { class: "cards" }),
      runs: el("div", { class: "scroll" }),
      which: el("select", {
        "aria-label": "Run",
        onchange: (event) => {
          choices.run = Number(event.target.value);
          show();
        },
      }),
      learning: CW.learningView(),
      round: CW.roundView(),
      run: CW.runView(),
      foot: el("p", { class: "foot" }),
    };
    parts.compared = el(
      "section",
      { class: "panel", id: "compared" },
      el("h2", { text: "Runs" }),
      parts.runs,
    );
    byId("report").replaceChildren(
      el("div", { class: "head" }, parts.title, parts.status),
      parts.notices,
      parts.cards,
      parts.compared,
      el("div", { class: "head" }, el("h2", { text: "Learning" }), axisChoice()),
      ...parts.learning.body,
      el("div", { class: "head" }, el("h2", { text: "Round by round" }), parts.which, parts.round.pager),
      ...parts.round.body,
      ...parts.run.body,
      parts.foot,
    );
  };
  const axisChoice = () => {
    const button = (value, text) =>
      el("button", {
        type: "button",
        text,
        "aria-pressed": String(choices.by === value),
        onclick: (event) => {
          choices.by = value;
          for (const one of event.target.parentNode.children)
            one.setAttribute("aria-pressed", String(one === event.target));
          show();
        },
      });
    return el(
      "span",
      { class: "choice", role: "group", "aria-label": "Over what" },
      button("round", "by round"),
      button("virtual_seconds", "by time"),
      button("wall_seconds", "by this machine's time"),
    );
  };

  /* ---- showing what there is ---- */
  const show = () => {
    const { runs } = data,
      several = runs.length > 1;
    parts.title.textContent = several ? `${runs.length} runs compared` : runs[0].name;
    const notes = runs.flatMap((run) => run.notes.map((note) => (several ? `${run.name}: ${note}` : note)));
    const told = (key) =>
      runs.filter((run) => run[key]).map((run) => (several ? `${run.name}: ${run[key]}` : run[key]));
    parts.notices.replaceChildren(
      ...told("lossy").map((text) => el("p", { class: "notice lossy", text })),
      ...notes.map((text) => el("p", { class: "notice", text })),
      ...told("crossing").map((text) => el("p", { class: "note crossing", text })),
    );
    parts.notices.hidden = !parts.notices.children.length;
    parts.cards.hidden = several;
    parts.compared.hidden = parts.which.hidden = !several;
    parts.cards.replaceChildren(...CW.runCards(runs[0], data.measures));
    parts.runs.replaceChildren(CW.runsTable(runs, data.measures[0], data.target));
    const option = (run, value) => el("option", { value, text: run.name, selected: value === choices.run });
    parts.which.replaceChildren(...runs.map(option));
    parts.learning.show(runs, data.measures, choices.run, choices.by);
    parts.round.show(runs[choices.run], data.phases);
    parts.run.show(runs[choices.run]);
    parts.foot.textContent = `Cutwater ${data.cutwater}`;
  };
  const receive = (fresh) => {
    data = fresh;
    if (!parts) build();
    show();
  };

  /* ---- following a run: only what is new is sent and drawn ---- */
  const say = (text) => {
    (parts?.status || byId("report")).textContent = text;
  };
  const look = async (url, seen) => {
    const answer = await fetch(url, { headers: seen.tag ? { "If-None-Match": seen.tag } : {} });
    if (answer.status === 200) {
      receive(await answer.json());
      return { tag: answer.headers.get("ETag") || "", at: Date.now() };
    }
    if (answer.status !== 304) throw await CW.refusal(answer);
    return seen;
  };
  const follow = async (url) => {
    let seen = { tag: "", at: Date.now() };
    for (;;) {
      try {
        seen = await look(url, seen);
        const quiet = Math.round((Date.now() - seen.at) / 1000);
        say(quiet < 30 ? "following" : `following; nothing new for ${format.duration(quiet)}`);
      } catch (error) {
        say(error instanceof TypeError ? "The server does not answer; trying again." : error.message);
      }
      await new Promise((done) => setTimeout(done, EVERY));
    }
  };

  document.addEventListener("DOMContentLoaded", () => {
    const { live } = byId("data").dataset;
    CW.bar(live && "/runs");
    if (live) follow(live + location.search);
    else receive(JSON.parse(byId("data").textContent));
  });
})();
