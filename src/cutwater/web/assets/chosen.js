"use strict";
/* Which clients the table shows, and in which order: search, filter, a condition such as "rate < 2 MB/s", sorting. */
(() => {
  const { el, byId } = CW;
  const KEPT = {
    "": "all clients",
    last: "who is last",
    split: "who shares the server",
    whole: "who trains the whole model",
  };
  const SIGNS = {
    "<": (x, y) => x < y,
    "<=": (x, y) => x <= y,
    ">": (x, y) => x > y,
    ">=": (x, y) => x >= y,
    "=": (x, y) => x === y,
  };

  /* `table` knows the clients: count, name(k), amount(k, key), told(key) and plan(), and columns() by what they are called. */
  CW.chosenRows = ({ table, changed }) => {
    const sorting = { key: "", down: false };
    byId("fleet-filter").append(...Object.entries(KEPT).map(([key, text]) => el("option", { value: key, text })));
    for (const [id, kind] of [
      ["fleet-search", "input"],
      ["fleet-filter", "change"],
      ["fleet-where", "change"],
    ])
      byId(id).addEventListener(kind, changed);

    const byFilter = () => {
      const filter = byId("fleet-filter").value,
        plan = table.plan();
      if (!filter || !plan) return null;
      if (filter === "last") return (k) => plan.last[k] > 0;
      return (k) => (plan.cut[k] < plan.layers) === (filter === "split");
    };
    const bySearch = () => {
      const query = byId("fleet-search").value.trim().toLowerCase();
      return query ? (k) => table.name(k).toLowerCase().includes(query) : null;
    };
    const byCondition = () => {
      const field = byId("fleet-where"),
        text = field.value.trim();
      field.setCustomValidity("");
      if (!text) return null;
      const [, name, sign, limit] = /^(.+?)\s*(<=|>=|<|>|=)\s*(.+)$/.exec(text) ?? [];
      const key = table.columns().get(name?.toLowerCase()),
        bound = CW.amount(limit ?? "");
      if (!key || Number.isNaN(bound)) {
        field.setCustomValidity("Write a column, a sign and an amount, such as rate < 2 MB/s or session > 100 s.");
        field.reportValidity();
        return null;
      }
      return (k) => SIGNS[sign](table.amount(k, key), bound);
    };
    const rank = () => {
      const { key } = sorting;
      if (key === "name") return table.name;
      return key ? (k) => table.told(k, key) : null;
    };
    const sort = (order, by) => {
      const keys = new Map(order.map((k) => [k, by(k)]));
      const sign = sorting.down ? -1 : 1;
      const compare = new Intl.Collator(undefined, { numeric: true }).compare;
      order.sort((a, b) => {
        const [x, y] = [keys.get(a), keys.get(b)];
        if (typeof x === "string") return sign * compare(x, y);
        /* What says nothing comes last either way. */
        if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y) || a - b;
        return sign * (x - y) || a - b;
      });
    };
    return {
      sorting,
      order: () => {
        const tests = [bySearch(), byFilter(), byCondition()].filter(Boolean);
        const order = Array.from({ length: table.count() }, (_, k) => k).filter((k) => tests.every((test) => test(k)));
        const by = rank();
        if (by) sort(order, by);
        return order;
      },
      everybody: () => {
        for (const id of ["fleet-search", "fleet-filter", "fleet-where"]) byId(id).value = "";
      },
      /* Turn sorting by a column on, around, and off. */
      sortBy: (key) => {
        const mine = sorting.key === key;
        if (mine && sorting.down) sorting.key = "";
        else if (!mine) sorting.key = key;
        sorting.down = mine && !sorting.down;
        changed();
      },
    };
  };

  /* Pages of a long table: turned, or jumped to; how many rows each has can be chosen. */
  CW.pager = ({ turned }) => {
    const { format } = CW;
    const SIZES = [25, 100, 500];
    let page = 0,
      size = SIZES[0];
    const pages = (count) => Math.max(Math.ceil(count / size), 1);
    const go = (to) => {
      page = to;
      turned();
    };
    const turn = (text, label, to, off) =>
      el("button", { type: "button", text, "aria-label": label, disabled: off, onclick: () => go(to) });
    const sizes = () => {
      const select = el(
        "select",
        {
          "aria-label": "Rows on a page",
          id: "page-size",
          onchange: (event) => {
            page = Math.floor((page * size) / Number(event.target.value));
            size = Number(event.target.value);
            turned();
          },
        },
        ...SIZES.map((one) => el("option", { value: one, text: `${one} rows` })),
      );
      select.value = String(size);
      return select;
    };
    const jump = (last) =>
      el("input", {
        id: "page-jump",
        value: format.count(page + 1),
        size: format.count(last + 1).length + 1,
        inputmode: "numeric",
        "aria-label": "Jump to page",
        onchange: (event) => {
          const wanted = Number(event.target.value.replaceAll(",", ""));
          go(Number.isFinite(wanted) ? Math.min(Math.max(Math.round(wanted) - 1, 0), last) : page);
        },
      });
    return {
      first: () => {
        page = 0;
      },
      last: () => {
        page = Infinity;
      },
      /* The rows of the page that is shown; there may be fewer pages than before. */
      slice: (order) => {
        page = Math.min(page, pages(order.length) - 1);
        return order.slice(page * size, (page + 1) * size);
      },
      draw: (count, all) => {
        const last = pages(count) - 1,
          from = page * size,
          some = count < all ? ` (${format.count(all)} in all)` : "";
        const span = count
          ? `${format.count(from + 1)} to ${format.count(Math.min(from + size, count))} of ${format.count(count)}${some}`
          : `no client is so${some}`;
        const turning = [
          turn("«", "First page", 0, page === 0),
          turn("‹", "Page before", page - 1, page === 0),
          el("label", { class: "note" }, "page ", jump(last), ` of ${format.count(last + 1)}`),
          turn("›", "Next page", page + 1, page >= last),
          turn("»", "Last page", last, page >= last),
        ];
        byId("fleet-pager").replaceChildren(
          ...(all > SIZES[0] || count < all
            ? [...(last ? turning : []), el("span", { class: "note", id: "page-span", text: span }), sizes()]
            : []),
        );
      },
    };
  };
})();
