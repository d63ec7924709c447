"use strict";
/* The planner page. All it asks for is in `state`, which the link holds, too; plans come from the server. */
(() => {
  const { el, byId, format } = CW;
  const LONGEST_LINK = 1_500_000; // letters that browsers still take
  let start = null,
    state = null,
    plan = null,
    fleet = null,
    controls = null,
    view = null,
    remark = "";

  /* ---- the link ---- */
  let linking = 0,
    linked = "";
  const makeLink = async () => {
    const hash = `#s=${await CW.pack({ v: 1, ...state })}`;
    return hash.length < LONGEST_LINK ? hash : null;
  };
  const updateLink = () => {
    clearTimeout(linking);
    linking = setTimeout(async () => {
      linked = (await makeLink()) ?? "";
      if (linked) history.replaceState(null, "", linked);
    }, 300);
  };
  const readLink = async () => {
    if (!location.hash.startsWith("#s=")) return null;
    try {
      const { v, ...found } = await CW.unpack(location.hash.slice(3));
      if (v !== 1 || typeof found.fleet !== "object") throw new Error("unknown");
      return found;
    } catch {
      remark =
        "This link is damaged or of another version: this is the scenario that the page was started with.";
      return null;
    }
  };

  /* ---- asking for a plan: one request at a time, always for the newest state ---- */
  let wanted = null,
    running = false,
    settling = 0,
    serial = 0;
  const refresh = (began = performance.now()) => {
    wanted = began;
    serial++;
    updateLink();
    if (!running) run();
  };
  const run = async () => {
    running = true;
    const patience = setTimeout(() => {
      byId("verdict").textContent = "counting the model's cuts…";
    }, 900);
    while (wanted !== null) {
      const began = wanted;
      wanted = null;
      try {
        plan = CW.decodePlan(await (await CW.post("/api/plan", state)).arrayBuffer());
        show();
        await painted();
        performance.measure("drag-to-paint", { start: began, end: performance.now() });
      } catch (error) {
        fail(error);
      }
    }
    clearTimeout(patience);
    running = false;
    clearTimeout(settling);
    settling = setTimeout(askDetails, 40);
  };
  const askDetails = async () => {
    const asked = serial;
    try {
      const body = { scenario: state, range: controls.ends() };
      const details = await (await CW.post("/api/details", body)).json();
      if (asked !== serial) return;
      view.showDetails(details, state.planner);
      document.documentElement.dataset.settled = String(asked);
    } catch {
      /* the plan's own complaint stands already */
    }
  };
  /* A message that a frame's callback sends arrives once the frame is on the screen. */
  const painted = () =>
    new Promise((done) => {
      requestAnimationFrame(() => {
        const channel = new MessageChannel();
        channel.port1.onmessage = done;
        channel.port2.postMessage(0);
      });
    });

  const show = () => {
    byId("error").textContent = remark;
    byId("error").hidden = !remark;
    remark = "";
    byId("plan").classList.remove("stale");
    view.show(plan, controls.ends());
    fleet.show(plan);
    controls.layers(plan.layers);
  };
  const fail = (error) => {
    byId("error").textContent = CW.sentence(error);
    byId("error").hidden = false;
    byId("plan").classList.add("stale");
    byId("verdict").textContent = "";
    if (!plan) byId("latency").textContent = "–";
  };

  /* ---- a scenario into the page ---- */
  const open = async (fresh) => {
    state = { planner: "exact", ...fresh };
    plan = null;
    controls.show(state);
    try {
      const { csv } = state.fleet;
      const plain = typeof csv === "string" && !/[\t;]/.test(csv); // as this page and the server write it
      fleet.load(plain ? csv : (await (await CW.post("/api/fleet", state.fleet)).json()).csv);
    } catch (error) {
      fail(error);
    }
    noteFleet();
    refresh();
  };
  const useFleet = (table, csv) => {
    state.fleet = table;
    if (csv !== undefined) fleet.load(csv);
    noteFleet();
    refresh();
  };
  const pickClient = (name) => {
    state.client = name;
    refresh();
  };
  const noteFleet = () => {
    const { draw } = state.fleet;
    const how = draw ? `, drawn with seed ${draw.seed ?? 0}` : "";
    byId("fleet-note").textContent = `${format.count(fleet.count())} clients${how}`;
  };

  document.addEventListener("DOMContentLoaded", async () => {
    try {
      start = await (await fetch("/api/start")).json();
    } catch (error) {
      return fail(error);
    }
    fleet = CW.fleetTable({ changed: (csv) => useFleet({ csv }), pickClient });
    controls = CW.controls({ start, changed: refresh });
    view = CW.planView({
      phases: start.phases,
      fleet,
      pickClient,
      pickPlanner: controls.setPlanner,
      pickCompute: controls.setServer,
    });
    CW.fleetDialogs({ fleet, drawn: () => state.fleet.draw, use: useFleet });
    byId("bar").append(
      CW.brand("/"),
      CW.pages("/", start.runs),
      el("span", { class: "space" }),
      el("button", { type: "button", id: "open", text: "Open", onclick: CW.openDialog(open) }),
      CW.exportMenu(() => state, fail),
      CW.copyButton(makeLink, fail),
      CW.themeButton(),
    );
    byId("foot").textContent =
      `Cutwater ${start.version}. Plans are computed by the machine that serves this page.`;
    window.addEventListener("hashchange", async () => {
      const found = location.hash === linked ? null : await readLink();
      if (found) open(found);
    });
    await open((await readLink()) || start.scenario);
  });
})();
