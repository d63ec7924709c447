"use strict";
/* What all pages share: elements, numbers with units, scales, the frame of a figure, themes. No dependencies. */
const CW = {};
(() => {
  const SVG = "http://www.w3.org/2000/svg";

  /* ---- elements: texts are always set as text, never as markup ---- */
  const set = (node, attributes) => {
    for (const [key, value] of Object.entries(attributes)) {
      if (value === undefined || value === null || value === false) continue;
      if (key === "text") node.textContent = value;
      else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (key === "colour") node.style.setProperty("--colour", value);
      else node.setAttribute(key, value === true ? "" : value);
    }
    return node;
  };
  CW.el = (tag, attributes = {}, ...children) => {
    const node = set(document.createElement(tag), attributes);
    node.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return node;
  };
  CW.svg = (tag, attributes = {}, ...children) => {
    const node = set(document.createElementNS(SVG, tag), attributes);
    node.append(...children.filter(Boolean));
    return node;
  };
  CW.byId = (id) => document.getElementById(id);
  CW.quietButton = (text, label, onclick, more = {}) =>
    CW.el("button", { type: "button", class: "quiet", text, "aria-label": label, onclick, ...more });
  /* A bar in a table, as long as a part of the whole. */
  CW.gauge = (part, kind = "gauge") => {
    const bar = CW.el("span", { class: kind, "aria-hidden": "true" });
    bar.style.width = `${Math.min(100 * part, 100)}%`;
    return bar;
  };

  /* A table of texts and nodes; columns after the first `texts` hold numbers. */
  CW.table = (heads, rows, texts = 1) => {
    const kind = (i) => (i >= texts ? "number" : "");
    const head = heads.map((text, i) => CW.el("th", { text, class: kind(i), scope: "col" }));
    const line = (row) => CW.el("tr", {}, ...row.map((cell, i) => CW.el("td", { class: kind(i) }, cell)));
    return CW.el(
      "table",
      {},
      CW.el("thead", {}, CW.el("tr", {}, ...head)),
      CW.el("tbody", {}, ...rows.map(line)),
    );
  };
  CW.last = (list) => list[list.length - 1];
  CW.orDash = (value, show) => (value === null || value === undefined ? "–" : show(value));

  /* ---- numbers with units, as cutwater.base.units writes them ---- */
  const three = (value) => {
    if (value === 0) return "0";
    if (Math.abs(value) >= 999.5) return Math.round(value).toLocaleString("en-US");
    return String(Number(value.toPrecision(3)));
  };
  const PREFIXES = [
    ["P", 1e15],
    ["T", 1e12],
    ["G", 1e9],
    ["M", 1e6],
    ["k", 1e3],
    ["", 1],
  ];
  const prefixed = (value, unit) => {
    const [prefix, scale] = PREFIXES.find(([, one]) => Math.abs(value) >= one * 0.9995) ?? CW.last(PREFIXES);
    return `${three(value / scale)} ${prefix}${unit}`;
  };
  CW.format = {
    number: three,
    compute: (flops) => prefixed(flops, "FLOPS"),
    rate: (bits) => prefixed(bits / 8, "B/s"),
    bytes: (bytes) => prefixed(bytes, "B"),
    percent: (part) => {
      const value = part * 100;
      return `${Math.abs(value) >= 9.95 || value === 0 ? Math.round(value).toLocaleString("en-US") : Number(value.toPrecision(2))} %`;
    },
    accuracy: (part) => `${(part * 100).toFixed(1)} %`,
    seconds: (seconds) => {
      if (seconds === null || seconds === undefined) return "–";
      if (!Number.isFinite(seconds)) return "never";
      if (seconds === 0 || seconds >= 1) return `${three(seconds)} s`;
      return seconds >= 1e-3 ? `${three(seconds * 1e3)} ms` : `${three(seconds * 1e6)} µs`;
    },
    duration: (seconds) => {
      if (seconds === null || seconds === undefined) return "–";
      if (seconds < 600) return CW.format.seconds(seconds);
      const minutes = Math.round(seconds / 60);
      if (minutes < 60) return `${minutes} min`;
      const hours = Math.floor(minutes / 60);
      return hours < 48
        ? `${hours} h ${String(minutes % 60).padStart(2, "0")} min`
        : `${three(seconds / 86400)} d`;
    },
    count: (value) => value.toLocaleString("en-US"),
    phase: (name) => name.replaceAll("_", " "),
  };
  /* The unit of an axis, and its ticks in that. */
  const axisUnit = (unit, scale) => ({ unit, scale, tick: (value) => CW.tickText(value / scale) });
  /* Seconds while people count in them, hours beyond. */
  CW.timeUnit = (most) => {
    if (most >= 4 * 3600) return axisUnit("h", 3600);
    if (most >= 1 || most === 0) return axisUnit("s", 1);
    return most >= 1e-3 ? axisUnit("ms", 1e-3) : axisUnit("µs", 1e-6);
  };
  CW.byteUnit = (most) => {
    const [prefix, scale] = PREFIXES.slice(1).find(([, one]) => most >= one) ?? CW.last(PREFIXES);
    return axisUnit(`${prefix}B`, scale);
  };
  CW.phaseColour = (phase) => `var(--${phase.replaceAll("_", "-")})`;

  /* ---- scales and ticks ---- */
  CW.linear = (d0, d1, r0, r1) => {
    const k = (r1 - r0) / (d1 - d0 || 1);
    const scale = (value) => r0 + (value - d0) * k;
    scale.back = (pixel) => d0 + (pixel - r0) / k;
    scale.ticks = (count) => CW.ticks(d0, d1, count);
    return scale;
  };
  CW.log = (d0, d1, r0, r1) => {
    const inner = CW.linear(Math.log(d0), Math.log(d1), r0, r1);
    const scale = (value) => inner(Math.log(value));
    scale.back = (pixel) => Math.exp(inner.back(pixel));
    scale.ticks = (count) => {
      const steps = (Math.log10(d1) - Math.log10(d0)) * 3 > count * 1.5 ? [1] : [1, 2, 5];
      const found = [];
      for (let e = Math.floor(Math.log10(d0)); e <= Math.ceil(Math.log10(d1)); e++) {
        for (const m of steps) found.push(m * 10 ** e);
      }
      return found.filter((tick) => tick >= d0 * 0.999 && tick <= d1 * 1.001);
    };
    return scale;
  };
  CW.ticks = (low, high, count) => {
    if (!(high > low)) return [low];
    const rough = (high - low) / Math.max(count, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step || 0);
    return found;
  };
  const tickText = (value) => {
    if (value === 0) return "0";
    return Math.abs(value) >= 1000
      ? Math.round(value).toLocaleString("en-US")
      : String(Number(value.toPrecision(6)));
  };
  CW.tickText = tickText;

  /* ---- the frame of a figure: title, legend, drawing that follows its width, reading by pointer or keys ---- */
  const tip = CW.el("div", { class: "tip", role: "status", hidden: true });
  document.addEventListener("DOMContentLoaded", () => document.body.append(tip));
  const showTip = (svg, mark) => {
    const box = svg.getBoundingClientRect();
    tip.replaceChildren(...mark.text.map((line, i) => CW.el(i ? "div" : "b", { text: line })));
    tip.hidden = false;
    const wide = tip.offsetWidth;
    const left = Math.min(
      Math.max(box.left + mark.x + 14, 8),
      document.documentElement.clientWidth - wide - 8,
    );
    const over = box.left + mark.x + 14 + wide > document.documentElement.clientWidth - 8;
    tip.style.left = `${(over ? Math.max(box.left + mark.x - wide - 14, 8) : left) + window.scrollX}px`;
    tip.style.top = `${Math.max(box.top + mark.y - tip.offsetHeight - 8, 4) + window.scrollY}px`;
  };
  const hideTip = () => {
    tip.hidden = true;
  };

  CW.figure = (id, title, note, draw) => {
    const svg = CW.svg("svg", { tabindex: 0, role: "img", class: "drawing" });
    const noteNode = CW.el("p", { class: "note", text: note });
    const legend = CW.el("div", { class: "legend" });
    const save = (kind) => {
      const name = kind.toUpperCase();
      return CW.quietButton(name, `Save "${title}" as ${name}`, () => CW.save(svg, id, kind));
    };
    const root = CW.el(
      "figure",
      { class: "chart", id },
      CW.el("figcaption", {}, CW.el("h3", { text: title }), CW.el("span", { class: "tools" }, save("svg"), save("png"))),
      noteNode,
      legend,
      CW.el("div", { class: "plot" }, svg),
    );
    let data = null,
      marks = [],
      by = "both",
      at = -1,
      width = 0;

    const paint = () => {
      // Asked for once: every question about layout between two drawings would cost a layout of the page.
      if (!width) width = svg.parentNode.clientWidth;
      if (data === null || width < 40) return;
      at = -1;
      svg.replaceChildren();
      const told = draw(svg, data, width) || {};
      marks = told.marks || [];
      by = told.by || "both";
      svg.setAttribute("width", width);
      svg.setAttribute("height", told.height);
      svg.setAttribute("viewBox", `0 0 ${width} ${told.height}`);
      svg.setAttribute("aria-label", `${title}. ${told.says ?? ""} Arrow keys read the values.`);
      const keys = JSON.stringify(told.legend || []);
      if (keys === legend.dataset.keys) return;
      legend.dataset.keys = keys;
      legend.replaceChildren(
        ...(told.legend || []).map(([name, colour, kind]) =>
          CW.el("span", { class: `key ${kind || ""}`, colour, text: name }),
        ),
      );
    };
    const point = (index) => {
      svg.querySelector(".probe")?.remove();
      at = index;
      const mark = marks[index];
      if (!mark) return hideTip();
      svg.append(
        mark.box
          ? CW.svg("rect", {
              class: "probe",
              x: mark.box[0],
              y: mark.box[1],
              width: mark.box[2],
              height: mark.box[3],
              rx: 3,
            })
          : CW.svg("circle", { class: "probe", cx: mark.x, cy: mark.y, r: 5 }),
      );
      showTip(svg, mark);
    };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = event.clientX - box.left,
        y = event.clientY - box.top;
      let best = -1,
        least = Infinity;
      marks.forEach((mark, i) => {
        const dx = by === "y" ? 0 : mark.x - x,
          dy = by === "x" ? 0 : mark.y - y;
        const far = dx * dx + dy * dy;
        if (far < least) {
          least = far;
          best = i;
        }
      });
      if (best !== at) point(best);
    });
    const leave = () => {
      svg.querySelector(".probe")?.remove();
      at = -1;
      hideTip();
    };
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("blur", leave);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") return leave();
      if (!step || !marks.length) return;
      event.preventDefault();
      point(Math.min(Math.max(at + step, 0), marks.length - 1));
    });
    new ResizeObserver(() => {
      const now = svg.parentNode.clientWidth;
      if (Math.abs(now - width) >= 1) {
        width = now;
        paint();
      }
    }).observe(root);
    return {
      root,
      svg,
      update: (fresh) => {
        data = fresh;
        paint();
      },
      note: (text) => {
        noteNode.textContent = text;
      },
    };
  };

  /* ---- saving: styles are written into a copy, so that the file looks the same anywhere ---- */
  const STYLED = [
    "fill",
    "stroke",
    "stroke-width",
    "stroke-dasharray",
    "opacity",
    "font-size",
    "font-weight",
    "text-anchor",
    "font-family",
    "paint-order",
  ];
  CW.freeze = (svg) => {
    const copy = svg.cloneNode(true);
    const from = [svg, ...svg.querySelectorAll("*")],
      to = [copy, ...copy.querySelectorAll("*")];
    from.forEach((node, i) => {
      const style = getComputedStyle(node);
      for (const name of STYLED) {
        const value = style.getPropertyValue(name);
        if ((value && value !== "none") || name === "fill") to[i].setAttribute(name, value);
      }
      to[i].removeAttribute("class");
      to[i].removeAttribute("tabindex");
    });
    const paper = getComputedStyle(svg.closest("figure")).backgroundColor;
    copy.prepend(CW.svg("rect", { width: "100%", height: "100%", fill: paper }));
    copy.setAttribute("xmlns", SVG);
    return new XMLSerializer().serializeToString(copy);
  };
  CW.download = (name, content, type) => {
    const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
    const link = CW.el("a", { href: url, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  CW.save = (svg, name, kind) => {
    const text = CW.freeze(svg);
    if (kind === "svg") return CW.download(`${name}.svg`, text, "image/svg+xml");
    const image = new Image();
    image.onload = () => {
      const canvas = CW.el("canvas", { width: svg.clientWidth * 2, height: svg.clientHeight * 2 });
      const context = canvas.getContext("2d");
      context.scale(2, 2);
      context.drawImage(image, 0, 0);
      canvas.toBlob((blob) => CW.download(`${name}.png`, blob));
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  };

  /* ---- light and dark: as the system says, unless the reader chose ---- */
  const THEME = "cutwater-theme";
  const remembered = () => {
    try {
      return localStorage.getItem(THEME);
    } catch {
      return null;
    }
  };
  const remember = (value) => {
    try {
      localStorage.setItem(THEME, value);
    } catch {
      /* a page may have no storage */
    }
  };
  if (remembered()) document.documentElement.dataset.theme = remembered();
  CW.themeButton = () => {
    const dark = () =>
      (document.documentElement.dataset.theme ||
        (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    const button = CW.el("button", { class: "quiet", type: "button", id: "theme" });
    const label = () => {
      button.textContent = dark() ? "Light" : "Dark";
      button.setAttribute("aria-label", `Use the ${dark() ? "light" : "dark"} theme`);
    };
    button.addEventListener("click", () => {
      document.documentElement.dataset.theme = dark() ? "light" : "dark";
      remember(document.documentElement.dataset.theme);
      label();
    });
    label();
    return button;
  };

  /* ---- the mark of the house: a drop that a bow cuts through ---- */
  const brand = (href) => {
    const drop = CW.svg(
      "svg",
      { viewBox: "0 0 24 24", "aria-hidden": "true" },
      CW.svg("path", { d: "M12 2C9 7 5 10.6 5 15a7 7 0 0 0 14 0c0-4.4-4-8-7-13Z", fill: "var(--water)" }),
      CW.svg("path", { d: "M3 14.5c3-2 6-2 9 0s6 2 9 0v3c-3 2-6 2-9 0s-6-2-9 0Z", fill: "var(--panel)" }),
      CW.svg("path", {
        d: "M3 16c3-2 6-2 9 0s6 2 9 0",
        fill: "none",
        stroke: "var(--accent)",
        "stroke-width": "1.6",
      }),
    );
    return CW.el(href ? "a" : "span", { class: "brand", href }, drop, "Cutwater");
  };

  /* ---- from page to page, where a server offers several ---- */
  const pages = (here, runs) => {
    const link = (href, text) =>
      CW.el("a", { href, text, "aria-current": href === here ? "page" : undefined });
    const links = [link("/", "Planner"), ...(runs ? [link("/runs", "Runs")] : [])];
    return CW.el("nav", { "aria-label": "Pages" }, ...links);
  };
  /* The bar at the top: `here` is the address of the page, where there is a server. */
  CW.bar = (here, { runs = true, tools = [] } = {}) =>
    CW.byId("bar").append(
      brand(here && "/"),
      ...(here ? [pages(here, runs)] : []),
      CW.el("span", { class: "space" }),
      ...tools,
      CW.themeButton(),
    );

  /* What a server that refuses says, as an error. */
  CW.refusal = async (answer) => {
    const told = await answer.json().catch(() => ({}));
    return new Error(told.error || `The server answered ${answer.status}.`);
  };
})();
