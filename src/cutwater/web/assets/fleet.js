"use strict";
/* The clients as a table that can be edited, beside what the plan gives each of them. */
(() => {
  const { el, byId, format } = CW;
  const BASE = ["name", "compute", "rate", "rtt", "samples", "min_cut", "memory"];
  const TITLES = {
    min_cut: "least cut",
    batch_size: "batch size",
    forbidden: "forbidden cuts",
    up: "rate up",
    down: "rate down",
    rtt: "round trip",
  };
  const UNSET = { rtt: "0 ms", samples: "–", memory: "no limit", min_cut: "1" };
  const RESULTS = { cut: "cut", share: "share", session: "session" };
  const RATES = { rate_up: "gets up", rate_down: "gets down" };
  const LONGEST = 40; // letters of a name in one line
  const title = (key) => TITLES[key] || key;
  const small = (kind, text) => el("small", { class: kind, text });

  /* `changed` takes a table that was edited, `scale` a factor for some clients, which the server multiplies by. */
  CW.fleetTable = ({ changed, scale, pickClient }) => {
    let header = [],
      rows = [],
      order = [],
      plan = null,
      edited = false, // since the plan was made: then it is not of these rows
      stale = false, // rows came or went since the table was drawn
      drawn = "",
      cells = [];
    const value = (row, key) => {
      const at = header.indexOf(key);
      return at < 0 ? "" : row[at];
    };
    const put = (row, key, content) => {
      if (!header.includes(key)) {
        header.push(key);
        rows.forEach((one) => one.push(""));
      }
      row[header.indexOf(key)] = content;
    };
    /* Where some have rates up and down, everybody has: one pair of columns, not three. */
    const splitRates = () => {
      if (!header.includes("rate") || !header.includes("up") || !header.includes("down")) return;
      const [rate, up, down] = ["rate", "up", "down"].map((key) => header.indexOf(key));
      for (const row of rows) {
        if (row[rate]) row[up] = row[down] = row[rate];
        row.splice(rate, 1);
      }
      header.splice(rate, 1);
    };
    const nameOf = (k) => value(rows[k], "name") || `c${k + 1}`;
    const csv = () => CW.writeCsv([header, ...rows]);
    const known = () => (plan && !edited && plan.count === rows.length ? plan : null);
    /* What a group is changed to is drawn with its plan, in one frame; a cell shows already what was typed. */
    const edit = (typed = false) => {
      edited = true;
      stale ||= !typed;
      changed(csv());
    };

    /* ---- columns ---- */
    const shown = () => {
      const base =
        header.includes("up") && !header.includes("rate")
          ? BASE.flatMap((key) => (key === "rate" ? ["up", "down"] : [key]))
          : BASE;
      return [...base, ...header.filter((key) => !base.includes(key))];
    };
    /* What the plan says of each client: where lines are shared, its rates, too. */
    const told = () => (known() && (plan.band.up || plan.band.down) ? { ...RESULTS, ...RATES } : RESULTS);
    const says = (k, key) => {
      if (key in RESULTS || key in RATES) return known() ? plan[key][k] : NaN;
      const row = rows[k];
      /* The rate of a link that is not the same both ways is that of its slower way. */
      if (key === "rate" && !value(row, "rate")) return Math.min(says(k, "up"), says(k, "down"));
      return CW.amount(value(row, key));
    };
    const amount = (k, key) => {
      const found = says(k, key);
      if (!Number.isNaN(found) || value(rows[k], key)) return found;
      return key === "memory" ? Infinity : CW.amount(UNSET[key] ?? "");
    };
    const columns = () => {
      const keys = ["rate", ...shown(), ...Object.keys(told())].filter((key) => key !== "name");
      const called = keys.flatMap((key) => [
        [key, key],
        [title(key), key],
        [told()[key] ?? key, key],
      ]);
      return new Map(called.map(([text, key]) => [text.toLowerCase(), key]));
    };

    const pager = CW.pager({ turned: () => draw() });
    const chosen = CW.chosenRows({
      table: { count: () => rows.length, name: nameOf, amount, told: says, plan: known, columns },
      changed: () => {
        pager.first();
        refresh();
      },
    });
    const refresh = () => {
      order = chosen.order();
      draw();
    };

    /* ---- drawing ---- */
    const heading = (key, text, kind) => {
      const { sorting } = chosen,
        mine = sorting.key === key;
      const empty = !(key in told()) && rows.every((row) => !value(row, key));
      const note = empty && key in UNSET ? small("unset", `all ${UNSET[key]}`) : empty ? small("unset", "none") : "";
      return el(
        "th",
        { scope: "col", class: kind, "aria-sort": mine ? (sorting.down ? "descending" : "ascending") : "none" },
        el("button", {
          type: "button",
          class: "quiet sort",
          text: `${text}${mine ? (sorting.down ? " ↓" : " ↑") : ""}`,
          onclick: () => chosen.sortBy(key),
        }),
        note,
      );
    };
    /* A name of more letters than a line has gets more lines. */
    const field = (row, key, width) => {
      const content = value(row, key),
        long = key === "name" && content.length > LONGEST;
      return el(long ? "textarea" : "input", {
        ...(long ? { text: content, rows: 1, cols: LONGEST } : { value: CW.brief(content), size: width }),
        title: content,
        spellcheck: "false",
        "aria-label": `${title(key)} of ${value(row, "name")}`,
        onkeydown: (event) => {
          if (long && event.key === "Enter") event.target.blur(); // a name has no second line of its own
        },
        onchange: (event) => {
          put(row, key, event.target.value.trim());
          edit(true);
        },
      });
    };
    const line = (k, keys, widths, outcomes) => {
      const row = rows[k],
        name = value(row, "name"),
        results = Object.fromEntries(outcomes.map((key) => [key, el("td", { class: `number result ${key}` })]));
      const remove = () => {
        if (rows.length === 1 || !rows.includes(row)) return;
        rows.splice(rows.indexOf(row), 1);
        edit();
      };
      const node = el(
        "tr",
        {},
        ...keys.map((key) => el("td", {}, field(row, key, widths.get(key)))),
        ...Object.values(results),
        el(
          "td",
          { class: "acts" },
          CW.quietButton("Step", `Show a step of ${name}`, () => pickClient(name || nameOf(k))),
          CW.quietButton("×", `Remove ${name}`, remove, { title: "Remove", disabled: rows.length === 1 }),
        ),
      );
      cells.push({ k, node, results });
      return node;
    };
    const draw = () => {
      const keys = shown(),
        here = pager.slice(order),
        outcomes = Object.keys(told());
      const widest = (key) => Math.max(4, ...here.map((k) => CW.brief(value(rows[k], key)).length));
      const widths = new Map(keys.map((key) => [key, Math.min(widest(key), key === "name" ? LONGEST : 24)]));
      drawn = outcomes.join();
      cells = [];
      const body = here.map((k) => line(k, keys, widths, outcomes));
      const heads = [
        ...keys.map((key) => heading(key, title(key))),
        ...Object.entries(told()).map(([key, text]) => heading(key, text, "number")),
        el("th", {}),
      ];
      const focused = byId("fleet-table").contains(document.activeElement) && document.activeElement.ariaLabel;
      byId("fleet-table").replaceChildren(
        el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...body)),
      );
      if (focused) byId("fleet-table").querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
      showWhole();
      pager.draw(order.length, rows.length);
      byId("group-count").textContent = `of the ${format.count(order.length)} clients in the table`;
      results();
    };
    /* Letters differ in width: no name is cut off by a pixel. */
    const showWhole = () => {
      for (const { node } of cells) {
        const name = node.querySelector("input, textarea");
        if (name.tagName === "TEXTAREA") name.style.height = `${name.scrollHeight + 2}px`;
        else if (name.scrollWidth > name.clientWidth) name.style.width = `${name.scrollWidth + 4}px`;
      }
    };
    const results = () => {
      if (!known()) return;
      for (const { k, node, results: out } of cells) {
        const cut = plan.cut[k],
          whole = cut === plan.layers;
        const meter = el("span", { class: whole ? "meter all" : "meter", "aria-hidden": "true" }, el("i"));
        meter.firstChild.style.width = `${(100 * cut) / plan.layers}%`;
        out.cut.replaceChildren(
          whole ? "whole model" : `${cut}${plan.second_cut[k] ? `-${plan.second_cut[k]}` : ""} of ${plan.layers}`,
          meter,
          small("crossing", whole ? "" : plan.wires[plan.wire[k]].text),
        );
        out.share.replaceChildren(
          ...(plan.share[k] > 0
            ? [
                format.compute(plan.share[k]),
                small("part", `${format.percent(plan.share[k] / plan.server_compute)} of it`),
              ]
            : ["–"]),
        );
        for (const key of Object.keys(RATES)) out[key]?.replaceChildren(format.rate(plan[key][k]));
        out.session.replaceChildren(
          format.seconds(plan.session[k]),
          small("waits", `waits for ${plan.resources[plan.waits[k]]}`),
        );
        node.classList.toggle("slowest", plan.last[k] > 0);
      }
    };

    /* ---- groups of clients edited at once ---- */
    byId("group-key").append(
      ...BASE.filter((key) => key !== "name").map((key) => el("option", { value: key, text: title(key) })),
    );
    byId("group").addEventListener("submit", (event) => {
      event.preventDefault();
      if (edited) return; // who is in the table is known when the plan of the change before is there
      const key = byId("group-key").value,
        content = byId("group-value").value.trim(),
        factor = /^[x×*]\s*(.+)$/i.exec(content);
      if (factor) return scale({ key, factor: CW.numberOrText(factor[1]), clients: [...order] });
      const keys = key === "rate" && header.includes("up") ? ["up", "down"] : [key];
      for (const k of order) for (const one of keys) put(rows[k], one, content);
      edit();
    });
    byId("group-remove").addEventListener("click", () => {
      const gone = new Set(order);
      if (edited || gone.size === rows.length) return;
      rows = rows.filter((_, k) => !gone.has(k));
      chosen.everybody();
      edit();
    });

    return {
      load: (content, keep) => {
        [header, ...rows] = CW.parseCsv(content);
        splitRates();
        edited = stale = true;
        if (!keep) pager.first();
      },
      /* These rows have no plan. */
      failed: () => {
        if (!edited) return;
        plan = null;
        edited = stale = false;
        refresh();
      },
      /* The plan of these rows. */
      show: (fresh) => {
        const anew = stale || chosen.sorting.key || byId("fleet-filter").value || byId("fleet-where").value;
        plan = fresh;
        edited = stale = false;
        if (anew) refresh();
        else if (drawn !== Object.keys(told()).join()) draw();
        else results();
      },
      csv,
      names: (most) => rows.slice(0, most).map((_, k) => nameOf(k)),
      name: nameOf,
      count: () => rows.length,
      add: () => {
        const taken = new Set(rows.map((row) => value(row, "name")));
        let number = rows.length + 1;
        while (taken.has(`c${number}`)) number++;
        const fresh = [...(rows[rows.length - 1] || header.map(() => ""))];
        rows.push(fresh);
        put(fresh, "name", `c${number}`);
        pager.last();
        edit();
      },
    };
  };
})();
