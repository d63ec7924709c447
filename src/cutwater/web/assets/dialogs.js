"use strict";
/* Bringing clients and scenarios in, and taking scenarios, plans and links out. */
(() => {
  const { el, byId } = CW;
  const MANY = 2000; // clients that a text field need not show
  const RANGES = [
    ["compute", "50 GFLOPS", "300 GFLOPS"],
    ["rate", "2 MB/s", "12 MB/s"],
    ["samples", 361, 3578],
    ["rtt", "0 ms", "0 ms"],
  ];
  const EXPORTS = [
    ["scenario.toml", "Scenario (TOML)"],
    ["jobs.toml", "Jobs (TOML)"],
    ["plan.json", "Plan (JSON)"],
    ["plan.csv", "Plan (CSV)"],
    ["fleet.csv", "Fleet (CSV)"],
  ];

  /* A dialog that stays open, with a sentence, until what it was given is right. */
  const dialog = (id, apply) => {
    const box = byId(`${id}-dialog`),
      told = byId(`${id}-error`);
    box.querySelector("[data-close]").addEventListener("click", () => box.close());
    byId(`${id}-apply`).addEventListener("click", async () => {
      told.hidden = true;
      try {
        await apply();
        box.close();
      } catch (error) {
        told.textContent = CW.sentence(error);
        told.hidden = false;
      }
    });
    return () => {
      told.hidden = true;
      box.showModal();
    };
  };

  CW.fleetDialogs = ({ fleet, drawn, use }) => {
    const ask = async (table) => (await (await CW.post("/api/fleet", table)).json()).csv;
    const paste = dialog("csv", async () => {
      const csv = await ask({ csv: byId("csv-text").value });
      use({ csv }, csv);
    });
    byId("paste").addEventListener("click", () => {
      byId("csv-text").value = fleet.count() > MANY ? "" : fleet.csv();
      paste();
    });
    const end = (key, which) => byId(`draw-${key}-${which}`);
    const draw = dialog("draw", async () => {
      const table = {
        clients: CW.numberOrText(byId("draw-clients").value),
        seed: CW.numberOrText(byId("draw-seed").value),
      };
      for (const [key] of RANGES)
        table[key] = ["low", "high"].map((which) => CW.numberOrText(end(key, which).value));
      use({ draw: table }, await ask({ draw: table }));
    });
    byId("draw").addEventListener("click", () => {
      const table = drawn() || {};
      byId("draw-clients").value = table.clients ?? 30;
      byId("draw-seed").value = table.seed ?? 3;
      for (const [key, ...usual] of RANGES) {
        [end(key, "low").value, end(key, "high").value] = Array.isArray(table[key]) ? table[key] : usual;
      }
      draw();
    });
    byId("add").addEventListener("click", () => fleet.add());
  };

  CW.openDialog = (open) => {
    byId("toml-file").addEventListener("change", async (event) => {
      const file = event.target.files[0];
      if (file) byId("toml-text").value = await file.text();
    });
    return dialog("toml", async () =>
      open(await (await CW.post("/api/scenario", { toml: byId("toml-text").value })).json()),
    );
  };

  CW.exportMenu = ({ scenario, jobs, fail }) => {
    const save = async (kind) => {
      menu.open = false;
      try {
        const body = kind === "jobs.toml" ? jobs.body() : scenario();
        CW.download(kind, await (await CW.post(`/api/export/${kind}`, body)).blob());
      } catch (error) {
        fail(error);
      }
    };
    const entry = ([kind, text]) =>
      el("button", { type: "button", text, "data-kind": kind, onclick: () => save(kind) });
    const menu = el(
      "details",
      {
        class: "menu",
        id: "export",
        ontoggle: () => {
          menu.querySelector("[data-kind='jobs.toml']").hidden = !jobs.any();
        },
      },
      el("summary", { text: "Export" }),
      el("div", {}, ...EXPORTS.map(entry)),
    );
    document.addEventListener("click", (event) => {
      if (!menu.contains(event.target)) menu.open = false;
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") menu.open = false;
    });
    return menu;
  };

  CW.copyButton = (link, fail) => {
    const say = (text) => {
      button.textContent = text;
      setTimeout(() => {
        button.textContent = "Copy link";
      }, 2000);
    };
    const copy = async () => {
      const hash = await link();
      if (hash === null) {
        return fail(new Error("This scenario is too large for a link: export it as TOML instead."));
      }
      try {
        await navigator.clipboard.writeText(`${location.origin}/${hash}`);
        say("Copied");
      } catch {
        history.replaceState(null, "", hash);
        say("It is in the address bar");
      }
    };
    const button = el("button", { type: "button", id: "copy", text: "Copy link", onclick: copy });
    return button;
  };
})();
