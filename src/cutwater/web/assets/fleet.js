"use strict";
/* The clients as a table that can be edited, beside what the plan gives each of them. */
(() => {
  const { el, byId, format } = CW;
  const PAGE = 25;
  const BASE = ["name", "compute", "rate", "rtt", "samples", "min_cut", "memory"];
  const NARROW = ["rtt", "samples", "min_cut", "memory"];
  const TITLES = {
    min_cut: "least cut",
    batch_size: "batch size",
    forbidden: "forbidden cuts",
    up: "rate up",
    down: "rate down",
    rtt: "round trip",
  };
  const HINTS = {
    compute: "100 GFLOPS",
    rate: "4 MB/s",
    up: "4 MB/s",
    down: "8 MB/s",
    rtt: "0 ms",
    samples: "1000",
    memory: "no limit",
    min_cut: "1",
  };

  /* CSV as the server writes it: commas, quotes where needed. */
  CW.parseCsv = (content) => {
    const rows = [];
    let row = [],
      cell = "",
      quoted = false;
    for (let i = 0; i < content.length; i++) {
      const letter = content[i];
      if (quoted) {
        if (letter !== '"') cell += letter;
        else if (content[i + 1] === '"') {
          cell += '"';
          i++;
        } else quoted = false;
      } else if (letter === '"') quoted = true;
      else if (letter === ",") {
        row.push(cell);
        cell = "";
      } else if (letter === "\n") {
        row.push(cell);
        rows.push(row);
        row = [];
        cell = "";
      } else if (letter !== "\r") cell += letter;
    }
    if (cell || row.length) {
      row.push(cell);
      rows.push(row);
    }
    return rows;
  };
  const quote = (cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  CW.writeCsv = (rows) => rows.map((row) => row.map(quote).join(",")).join("\n") + "\n";

  CW.fleetTable = ({ changed, pickClient }) => {
    let header = [],
      rows = [],
      page = 0,
      plan = null,
      cells = [];
    const shown = () => {
      const base =
        header.includes("up") && !header.includes("rate")
          ? BASE.flatMap((key) => (key === "rate" ? ["up", "down"] : [key]))
          : BASE;
      return [...base, ...header.filter((key) => !base.includes(key))];
    };
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
    /* Drawn numbers have many digits: four are shown, all are kept while nobody edits the cell. */
    const brief = (cell) =>
      cell.replace(/^(\d+\.\d{3,})(?= )/, (digits) => String(Number(Number(digits).toPrecision(4))));
    const csv = () => CW.writeCsv([header, ...rows]);
    const pages = () => Math.max(Math.ceil(rows.length / PAGE), 1);

    const draw = () => {
      page = Math.min(page, pages() - 1);
      const keys = shown(),
        from = page * PAGE;
      cells = [];
      const body = rows.slice(from, from + PAGE).map((row, i) => {
        const k = from + i,
          results = {
            cut: el("td", { class: "number result" }),
            share: el("td", { class: "number result" }),
            latency: el("td", { class: "number result latency" }),
          };
        const line = el(
          "tr",
          {},
          ...keys.map((key) =>
            el(
              "td",
              {},
              el("input", {
                value: brief(value(row, key)),
                title: value(row, key),
                placeholder: HINTS[key] || "",
                class: NARROW.includes(key) ? "narrow" : undefined,
                spellcheck: "false",
                "aria-label": `${TITLES[key] || key} of ${value(row, "name")}`,
                onchange: (event) => {
                  put(row, key, event.target.value.trim());
                  changed(csv());
                },
              }),
            ),
          ),
          results.cut,
          results.share,
          results.latency,
          el(
            "td",
            {},
            el("button", {
              type: "button",
              class: "quiet",
              text: "Step",
              "aria-label": `Show a step of ${value(row, "name")}`,
              onclick: () => pickClient(value(row, "name") || `c${k + 1}`),
            }),
            el("button", {
              type: "button",
              class: "quiet",
              text: "Remove",
              "aria-label": `Remove ${value(row, "name")}`,
              disabled: rows.length === 1,
              onclick: () => {
                rows.splice(k, 1);
                draw();
                changed(csv());
              },
            }),
          ),
        );
        cells.push({ k, line, results });
        return line;
      });
      byId("fleet-table").replaceChildren(
        el(
          "table",
          {},
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              ...keys.map((key) => el("th", { text: TITLES[key] || key, scope: "col" })),
              ...["cut", "share of the server", "session"].map((title) =>
                el("th", { class: "number", text: title, scope: "col" }),
              ),
              el("th", {}),
            ),
          ),
          el("tbody", {}, ...body),
        ),
      );
      const many = rows.length > PAGE;
      const turn = (by) => () => {
        page += by;
        draw();
      };
      byId("fleet-pager").replaceChildren(
        ...(many
          ? [
              el("button", {
                type: "button",
                text: "‹",
                "aria-label": "Page before",
                disabled: page === 0,
                onclick: turn(-1),
              }),
              el("span", {
                class: "note",
                text: `${format.count(from + 1)} to ${format.count(Math.min(from + PAGE, rows.length))} of ${format.count(rows.length)}`,
              }),
              el("button", {
                type: "button",
                text: "›",
                "aria-label": "Next page",
                disabled: page >= pages() - 1,
                onclick: turn(1),
              }),
            ]
          : []),
      );
      results();
    };

    const small = (kind, text) => el("small", { class: kind, text });
    const results = () => {
      if (!plan || plan.count !== rows.length) return;
      for (const { k, line, results: out } of cells) {
        const cut = plan.cut[k],
          whole = cut === plan.layers;
        const meter = el("span", { class: whole ? "meter all" : "meter", "aria-hidden": "true" }, el("i"));
        meter.firstChild.style.width = `${(100 * cut) / plan.layers}%`;
        out.cut.replaceChildren(
          whole ? "whole model" : `${cut} of ${plan.layers}`,
          meter,
          small("crossing", whole ? "" : plan.wires[plan.wire[k]].text),
        );
        out.share.textContent =
          plan.share[k] > 0
            ? `${format.compute(plan.share[k])} (${format.percent(plan.share[k] / plan.server_compute)})`
            : "–";
        out.latency.replaceChildren(
          format.seconds(plan.session[k]),
          small("waits", `waits for ${plan.resources[plan.waits[k]]}`),
        );
        line.classList.toggle("slowest", plan.session[k] >= plan.latency * (1 - 1e-6));
      }
    };
    return {
      load: (content) => {
        [header, ...rows] = CW.parseCsv(content);
        plan = null;
        page = 0;
        draw();
      },
      show: (fresh) => {
        plan = fresh;
        results();
      },
      csv,
      names: (most) => rows.slice(0, most).map((row, k) => value(row, "name") || `c${k + 1}`),
      name: (k) => (header.includes("name") ? value(rows[k], "name") : "") || `c${k + 1}`,
      count: () => rows.length,
      add: () => {
        const taken = new Set(rows.map((row) => value(row, "name")));
        let number = rows.length + 1;
        while (taken.has(`c${number}`)) number++;
        const fresh = [...(rows[rows.length - 1] || header.map(() => ""))];
        rows.push(fresh);
        put(fresh, "name", `c${number}`);
        page = pages() - 1;
        draw();
        changed(csv());
      },
    };
  };
})();
