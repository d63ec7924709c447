"use strict";
/* The inverse question: the smallest server, or the cheapest mix of server and links, for a round of some time. */
(() => {
  const { el, byId, format } = CW;
  const PRICES = ["compute", "link"];

  /* `use` takes what of the scenario changes. */
  CW.sizeBox = ({ state, scenario, use, changed }) => {
    const money = (cost, unit) => (cost === null || !unit ? "" : ` for ${format.number(cost)} ${unit}`);
    const button = (id, text, change) => el("button", { type: "button", id, text, onclick: () => use(change) });
    const smallest = ({ server, round, infeasible, money: unit }) => {
      if (!server) return el("p", { class: "warn", text: `By the server alone: ${infeasible}.` });
      const text = server.compute
        ? `takes a server of ${format.compute(server.compute)} at least${money(server.cost, unit)}. `
        : "takes no server at all. ";
      const within = 1 - server.at_least / server.compute;
      const proven = `Links are shared: a server that is smaller by more than ${format.number(within)} of it is proven too small.`;
      return el(
        "p",
        {},
        `A round of ${format.seconds(round)} ${text}`,
        button("size-use", "Use it", { server: server.text }),
        ...(server.at_least < server.compute ? [el("span", { class: "note", text: ` ${proven}` })] : []),
      );
    };
    const mixed = ({ cheapest, money: unit }) => {
      const links = `${format.count(cheapest.count)} faster link${cheapest.count === 1 ? "" : "s"}`;
      const text = `The cheapest mix costs ${format.number(cheapest.cost)} ${unit}: a server of ${format.compute(cheapest.compute)} and ${links}. `;
      const rows = cheapest.links.map((one) => [
        one.name,
        format.rate(one.more),
        format.rate(one.up),
        format.rate(one.down),
        format.number(one.cost),
      ]);
      const heads = ["Link of", "Faster by", "Up", "Down", `Costs (${unit})`];
      const rest = cheapest.count - rows.length;
      return [
        el("p", {}, text, button("mix-use", "Use the mix", { server: cheapest.text, csv: cheapest.csv })),
        ...(rows.length ? [el("div", { class: "scroll" }, CW.table(heads, rows, 1))] : []),
        ...(rest > 0 ? [el("p", { class: "note", text: `… and ${format.count(rest)} more` })] : []),
      ];
    };

    for (const key of PRICES)
      byId(`price-${key}`).addEventListener("change", () => {
        CW.setIn(state(), "prices", key, byId(`price-${key}`).value.trim() || undefined);
        changed();
      });
    byId("size-form").addEventListener("submit", async (event) => {
      event.preventDefault();
      const answer = byId("size-answer");
      answer.classList.remove("warn");
      answer.textContent = "…";
      try {
        const body = { scenario: scenario(), round: byId("size-round").value.trim() };
        const found = await (await CW.post("/api/size", body)).json();
        answer.replaceChildren(smallest(found), ...(found.cheapest ? mixed(found) : []));
      } catch (error) {
        answer.classList.add("warn");
        answer.textContent = CW.sentence(error);
      }
    });
    return {
      /* What was found is of another scenario. */
      stale: () => byId("size-answer").replaceChildren(),
      show: () => {
        for (const key of PRICES) byId(`price-${key}`).value = state().prices?.[key] ?? "";
      },
    };
  };
})();
