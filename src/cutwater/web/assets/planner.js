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
    size = null,
    jobs = null,
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

  /* ---- asking: one state at a time, always the newest; all panels of an answer change in one frame ---- */
  let wanted = null,
    running = false,
    serial = 0,
    fleets = 0, // grows with the table, under which no plan of another one may be shown
    pending = null; // what the table will hold once its plan is there
  const refresh = (began = performance.now()) => {
    wanted = began;
    serial++;
    updateLink();
    if (!running) run();
  };
  const run = async () => {
    running = true;
    byId("working").textContent = "Planning…";
    const slow = setTimeout(() => busy(true), 120);
    const patience = setTimeout(() => {
      byId("working").textContent = "Planning… the cuts of a new model are counted first";
    }, 2500);
    while (wanted !== null) {
      const began = wanted,
        asked = serial,
        table = fleets;
      wanted = null;
      try {
        const answer = await ask();
        if (table !== fleets) continue;
        show(answer);
        await painted();
        performance.measure("drag-to-paint", { start: began, end: performance.now() });
        document.documentElement.dataset.settled = String(asked);
      } catch (error) {
        if (table !== fleets) continue;
        takeTable(); // so that what is wrong with it can be mended there
        fleet.failed();
        fail(error);
      }
    }
    clearTimeout(slow);
    clearTimeout(patience);
    running = false;
    busy(false);
  };
  /* What the page plans now; jobs are scenarios beside it. */
  const scenario = () => {
    const { jobs: _, objective, ...rest } = state;
    return rest;
  };
  const ask = async () => {
    const range = controls.ends(),
      planner = state.planner;
    const [plan, details, shared] = await Promise.all([
      CW.post("/api/plan", scenario()).then(async (answer) => CW.decodePlan(await answer.arrayBuffer())),
      CW.post("/api/details", { scenario: scenario(), range }).then((answer) => answer.json()),
      jobs.ask(),
    ]);
    return { plan, details, shared, range, planner };
  };
  const takeTable = () => {
    if (pending !== null) fleet.load(pending.csv, pending.keep);
    pending = null;
    noteFleet();
  };
  const busy = (on) => {
    byId("working").hidden = !on;
    document.querySelector("main").setAttribute("aria-busy", String(on));
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

  const show = (answer) => {
    plan = answer.plan;
    byId("error").textContent = remark;
    byId("error").hidden = !remark;
    remark = "";
    byId("plan").classList.remove("stale");
    size.stale();
    takeTable();
    view.show(answer);
    fleet.show(plan);
    jobs.show(answer.shared);
    controls.layers(plan.layers);
  };
  const fail = (error) => {
    byId("error").textContent = CW.sentence(error);
    byId("error").hidden = false;
    byId("plan").classList.add("stale");
    if (!plan) byId("latency").textContent = "–";
  };

  /* ---- a scenario into the page ---- */
  const open = async (fresh) => {
    const table = { planner: "exact", ...fresh };
    const { csv } = table.fleet;
    const plain = typeof csv === "string" && !/[\t;]/.test(csv); // as this page and the server write it
    busy(true);
    let read = csv;
    try {
      if (!plain) read = (await (await CW.post("/api/fleet", table.fleet)).json()).csv;
    } catch {
      read = null; // the plan's own complaint says why
    }
    state = table;
    plan = null;
    controls.show(state);
    size.show();
    changeFleet(read === null ? null : { csv: read });
  };
  const changeFleet = (table) => {
    fleets++;
    pending = table;
    refresh();
  };
  /* Another fleet, of which the table knows already unless it is given here. */
  const useFleet = (table, csv) => {
    state.fleet = table;
    changeFleet(csv === undefined ? null : { csv });
  };
  /* What the size box found: a server, and perhaps faster links, in which the sliders are counted already. */
  const useSize = ({ server, csv }) => {
    if (csv === undefined) return controls.typeServer(server);
    const { rates, devices, min_cut, ...rest } = state;
    open({ ...rest, server, fleet: { csv } });
  };
  const openJob = (job) => {
    const { jobs: list, objective, server, planner } = state;
    open({ ...structuredClone(job), server, planner, jobs: list, objective });
  };
  /* Some clients' values times a factor, which the server works out. */
  const scale = async (group) => {
    busy(true);
    try {
      const { csv } = await (await CW.post("/api/fleet", { csv: fleet.csv(), scale: group })).json();
      state.fleet = { csv };
      changeFleet({ csv, keep: true });
    } catch (error) {
      busy(false);
      fail(error);
    }
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
    fleet = CW.fleetTable({ changed: (csv) => useFleet({ csv }), scale, pickClient });
    controls = CW.controls({ start, changed: refresh });
    view = CW.planView({
      phases: start.phases,
      fleet,
      pickClient,
      pickPlanner: controls.setPlanner,
      pickCompute: controls.setServer,
    });
    size = CW.sizeBox({ state: () => state, scenario, use: useSize, changed: refresh });
    jobs = CW.jobsBox({ start, state: () => state, scenario, open: openJob, changed: refresh });
    CW.fleetDialogs({ fleet, drawn: () => state.fleet.draw, use: useFleet });
    const tools = [
      el("button", { type: "button", id: "open", text: "Open", onclick: CW.openDialog(open) }),
      CW.exportMenu({ scenario, jobs, fail }),
      CW.copyButton(makeLink, fail),
    ];
    CW.bar("/", { runs: start.runs, tools });
    byId("foot").textContent =
      `Cutwater ${start.version}. Plans are computed by the machine that serves this page.`;
    window.addEventListener("hashchange", async () => {
      const found = location.hash === linked ? null : await readLink();
      if (found) open(found);
    });
    await open((await readLink()) || start.scenario);
  });
})();
