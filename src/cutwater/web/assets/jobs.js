"use strict";
/* Several jobs on the page's server: a list of scenarios, and the table of how it is shared out among them. */
(() => {
  const { el, byId, format } = CW;
  const OBJECTIVES = {
    slowdown: "the largest slowdown",
    slowest: "the slowest round",
    sum: "the sum of rounds",
  };

  /* `state` holds jobs and an objective; `scenario` is what the page plans now, without them. */
  CW.jobsBox = ({ start, state, scenario, open, changed }) => {
    byId("objective").append(...start.objectives.map((key) => el("option", { value: key, text: OBJECTIVES[key] })));
    byId("objective").addEventListener("change", () => {
      state().objective = byId("objective").value;
      changed();
    });
    const jobs = () => state().jobs ?? [];
    const body = () => ({ server: state().server, objective: state().objective ?? "slowdown", jobs: jobs() });
    byId("job-add").addEventListener("click", () => {
      const { server, planner, client, ...rest } = structuredClone(scenario());
      const taken = new Set(jobs().map((job) => job.name)),
        base = rest.model?.name ?? rest.profile ?? "job";
      let name = base;
      for (let number = 2; taken.has(name); number++) name = `${base} ${number}`;
      state().jobs = [...jobs(), { name, weight: 1, scenario: rest }];
      changed();
    });

    const field = (job, key, size) =>
      el("input", {
        value: job[key],
        size,
        spellcheck: "false",
        "aria-label": `${key} of job ${job.name}`,
        onchange: (event) => {
          const text = event.target.value.trim();
          job[key] = key === "weight" ? CW.numberOrText(text) : text;
          changed();
        },
      });
    const row = (job, told, server) => [
      field(job, "name", Math.max(job.name.length, 6)),
      field(job, "weight", 4),
      CW.orDash(told?.clients, format.count),
      CW.orDash(told?.split, format.count),
      told
        ? [
            format.compute(told.part),
            ...(server ? [el("small", { text: `${format.percent(told.part / server)} of it` })] : []),
          ]
        : "–",
      CW.orDash(told?.latency, format.seconds),
      CW.orDash(told?.alone, format.seconds),
      CW.orDash(told?.slowdown, (times) => `× ${times.toFixed(3)}`),
      CW.orDash(told?.saved_by_more, format.seconds),
      el(
        "span",
        { class: "acts" },
        CW.quietButton("Open", `Open job ${job.name}`, () => open(job.scenario)),
        CW.quietButton("×", `Remove job ${job.name}`, () => {
          state().jobs = jobs().filter((one) => one !== job);
          changed();
        }),
      ),
    ];

    return {
      body,
      any: () => jobs().length > 0,
      ask: async () => {
        if (!jobs().length) return null;
        try {
          return await (await CW.post("/api/jobs", body())).json();
        } catch (error) {
          return { error: CW.sentence(error) };
        }
      },
      show: (answer) => {
        byId("objective").value = state().objective ?? "slowdown";
        byId("objective-label").hidden = !answer;
        byId("jobs-note").hidden = Boolean(answer);
        byId("jobs-told").textContent = answer?.error ?? answer?.explanation ?? "";
        byId("jobs-told").classList.toggle("warn", Boolean(answer?.error));
        const saved = `Saved by ${format.percent(answer?.more ?? 0)} more`;
        const heads = ["Job", "Weight", "Clients", "Split", "Server", "Round", "Alone", "Slowdown", saved, ""];
        const rows = jobs().map((job, i) => row(job, answer?.jobs?.[i], answer?.server_compute));
        byId("jobs-table").replaceChildren(...(answer ? [CW.table(heads, rows, 1)] : []));
        byId("jobs-more").hidden = !answer?.jobs;
      },
    };
  };
})();
