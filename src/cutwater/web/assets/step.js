"use strict";
/* One client from near: a step as a chart of lanes, who is busy for how long, and bytes beside those of fp32. */
(() => {
  const { el, format } = CW;
  const { text, rect, line } = CW.draw;
  const [TALL, GAP, TOP] = [28, 12, 10];
  const COLOURS = 6; // of parts, again and again; a legend names no more
  const MOST_NAMES = 300; // clients that a list can hold
  const partColour = (part) => `var(--run-${part % COLOURS})`;
  const stage = (stay) => format.phase(stay.station);

  /* {seconds, sizes, lanes, stays: [{part, station, lane, begin, end, arrives, critical}], says}. */
  CW.stepChart = (svg, step, width) => {
    const left = 74,
      height = TOP + step.lanes.length * (TALL + GAP) + 34;
    const { unit, scale } = CW.timeUnit(step.seconds);
    const { sx } = CW.draw.axes(svg, {
      width,
      height,
      left,
      top: TOP,
      right: 12,
      x: {
        domain: [0, step.seconds || 1],
        label: `time in the step (${unit})`,
        tick: (value) => CW.tickText(Number((value / scale).toPrecision(6))),
      },
      y: { domain: [0, 1], tick: () => "" },
    });
    svg.querySelectorAll(".grid").forEach((node) => node.remove());
    const top = (lane) => TOP + step.lanes.indexOf(lane) * (TALL + GAP);
    for (const lane of step.lanes) {
      svg.append(
        rect(left, top(lane), width - 12 - left, TALL, undefined, "track"),
        text(left - 8, top(lane) + TALL / 2 + 4, lane, "name", "end"),
      );
    }
    /* What is on its way for half a round trip goes from lane to lane. */
    const follower = { "link up": "server", "link down": "client" };
    for (const stay of step.stays) {
      if (stay.arrives > stay.end)
        svg.append(
          line(
            sx(stay.end),
            top(stay.lane) + TALL / 2,
            sx(stay.arrives),
            top(follower[stay.lane]) + TALL / 2,
            "transit",
          ),
        );
    }
    const marks = step.stays.filter((stay) => stay.end > stay.begin).map((stay) => block(stay, step, sx, top));
    for (const mark of marks) svg.append(...mark.nodes);
    const parts =
      step.sizes.length <= COLOURS
        ? step.sizes.map((_, part) => [`part ${part + 1}`, partColour(part)])
        : [];
    const trips = step.stays.some((stay) => stay.arrives > stay.end);
    return {
      height,
      marks,
      legend: [
        ...parts,
        ["backward on the client", "var(--soft)", "hollow"],
        ["longest path", "var(--ink)", "stroke"],
        ...(trips ? [["half a round trip", "var(--soft)", "dashed"]] : []),
      ],
      says: step.says,
    };
  };
  const block = (stay, step, sx, top) => {
    const [x, y] = [sx(stay.begin), top(stay.lane)],
      wide = sx(stay.end) - x;
    const hollow = stay.station === "client_backward";
    const box = rect(x, y, Math.max(wide - 1, 0.5), TALL, partColour(stay.part), hollow ? "part hollow" : "part");
    if (hollow) box.style.setProperty("--colour", partColour(stay.part));
    box.dataset.part = stay.part;
    box.dataset.station = stay.station;
    const nodes = [box];
    if (stay.critical) nodes.push(rect(x, y + TALL + 2, Math.max(wide, 1), 3, undefined, "critical"));
    if (wide > 16)
      nodes.push(text(x + wide / 2, y + TALL / 2 + 4, String(stay.part + 1), hollow ? "strong" : "on-part", "middle"));
    const samples = `${step.sizes[stay.part]} samples`;
    return {
      x: x + wide / 2,
      y: y + TALL / 2,
      box: [x, y, wide, TALL],
      nodes,
      text: [
        `part ${stay.part + 1} of ${step.sizes.length}, ${samples}`,
        `${stage(stay)}: ${format.seconds(stay.begin)} to ${format.seconds(stay.end)}`,
        ...(stay.arrives > stay.end ? [`arrives at ${format.seconds(stay.arrives)}`] : []),
        ...(stay.critical ? ["on the longest path"] : []),
      ],
    };
  };

  /* The same as text, part by part. */
  const stepTable = (step) => {
    const stations = [...new Set(step.stays.map((stay) => stay.station))];
    const cell = (part, station) => {
      const stay = step.stays.find((one) => one.part === part && one.station === station);
      return `${format.seconds(stay.begin)} – ${format.seconds(stay.end)}`;
    };
    const rows = step.sizes.map((size, part) => [
      `${part + 1} (${size} samples)`,
      ...stations.map((station) => cell(part, station)),
    ]);
    return CW.table(["Part", ...stations.map(format.phase)], rows);
  };
  const busyTable = (client) => {
    const rows = client.busy
      .filter((one) => one.seconds > 0)
      .map(({ name, seconds, part }) => [
        name,
        CW.gauge(part ?? 0),
        format.seconds(seconds),
        CW.orDash(part, format.percent),
      ]);
    const table = CW.table(["Busy", "", "in a session", "of it"], rows, 2);
    table.id = "busy";
    table.querySelectorAll("tbody tr").forEach((row) => {
      row.classList.toggle("chosen", row.firstChild.textContent === client.waits_for);
    });
    return table;
  };
  const bytesTable = (client) => {
    const rows = client.bytes.map((one) => [
      one.way,
      one.codec ?? "model alone",
      format.bytes(one.bytes),
      format.bytes(one.fp32),
      CW.orDash(one.part, format.percent),
    ]);
    const table = CW.table(["A round", "crosses as", "bytes", "as fp32", "of that"], rows, 2);
    table.id = "client-bytes";
    return table;
  };
  const sentence = (client) => {
    const where = client.wire ? client.wire.text : "whole model on the device";
    const overlap =
      client.overlap > 0 ? `; ${format.seconds(client.overlap)} of what is busy goes on at the same time` : "";
    return `${where}. Its session takes ${format.seconds(client.seconds)} and waits for ${client.waits_for}${overlap}.`;
  };

  CW.stepView = ({ names, pick }) => {
    const figure = CW.figure("step", "One step", "", CW.stepChart);
    const select = el("select", {
      id: "step-client",
      "aria-label": "Whose step is shown",
      onchange: () => pick(select.value),
    });
    const told = el("p", { class: "note", id: "step-told" });
    const table = el("details", { class: "alternative" });
    const tables = el("div", { class: "tables" });
    figure.root.querySelector(".tools").prepend(select);
    figure.root.append(table, tables);
    figure.root.querySelector(".note").after(told);
    const choices = (client) => {
      const known = names(MOST_NAMES);
      const listed = known.includes(client.name) ? known : [client.name, ...known];
      const key = JSON.stringify(listed);
      if (select.dataset.key !== key) {
        select.dataset.key = key;
        select.replaceChildren(...listed.map((name) => el("option", { value: name, text: name })));
      }
      select.value = client.name;
    };
    return {
      root: figure.root,
      show: (client) => {
        choices(client);
        const { step } = client;
        figure.svg.parentNode.hidden = !step;
        figure.note(step ? step.says : "A step in so many parts is not drawn.");
        told.textContent = `A round: ${sentence(client)}`;
        if (step) figure.update(step);
        const open = table.open;
        table.replaceChildren(
          el("summary", { text: "The same as a table" }),
          ...(step ? [el("div", { class: "scroll" }, stepTable(step))] : []),
        );
        table.hidden = !step;
        table.open = open;
        tables.replaceChildren(
          el("div", { class: "scroll" }, busyTable(client)),
          el("div", { class: "scroll" }, bytesTable(client)),
        );
      },
    };
  };
})();
