"use strict";
/* The controls beside the plan: sliders and fields, each of which changes one part of the scenario. */
(() => {
  const { el, byId } = CW;
  const FACTORS = ["rates", "devices"];

  /* A number where it is one, else the text, so that the server can name what is wrong with it. */
  CW.numberOrText = (text) => (text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text);

  /* Put a key into a table of the scenario, or take it out; no table is empty. */
  CW.setIn = (state, table, key, value) => {
    const fresh = { ...state[table] };
    if (value === undefined) delete fresh[key];
    else fresh[key] = value;
    if (Object.keys(fresh).length) state[table] = fresh;
    else delete state[table];
  };

  CW.controls = ({ start, changed }) => {
    let state = null,
      ends = [1e11, 1e14];
    const value = (id) => byId(id).value.trim();
    const on = (id, kind, act) => byId(id).addEventListener(kind, act);
    /* What stands at 1 changes nothing, so the scenario does not hold it. */
    const put = (key, number) => {
      if (number === 1) delete state[key];
      else state[key] = number;
    };

    /* ---- the server's compute: a slider over three decades, and a text ---- */
    const place = (compute) => Math.round((1000 * Math.log(compute / ends[0])) / Math.log(ends[1] / ends[0]));
    const showServer = () => {
      const compute = CW.amount(state.server); // only to place the slider
      if (compute > 0 && !(compute >= ends[0] && compute <= ends[1])) {
        const low = 10 ** (Math.floor(Math.log10(compute)) - 1);
        ends = [low, low * 1000];
      }
      byId("server-text").value = state.server;
      byId("server").value = compute > 0 ? place(compute) : 0;
      byId("server").setAttribute("aria-valuetext", state.server);
    };
    const setServer = (compute, began) => {
      const [unit, scale] = compute >= 1e12 ? ["TFLOPS", 1e12] : ["GFLOPS", 1e9];
      state.server = `${Number((compute / scale).toPrecision(3))} ${unit}`;
      showServer();
      changed(began);
    };
    on("server", "input", (event) =>
      setServer(ends[0] * (ends[1] / ends[0]) ** (event.target.value / 1000), performance.now()),
    );
    const typeServer = (text) => {
      state.server = text;
      showServer();
      changed();
    };
    on("server-text", "change", () => typeServer(value("server-text")));

    /* ---- factors of all rates and devices, and a least cut ---- */
    const showFactor = (id) => {
      byId(id).value = Math.round(100 * Math.log10(state[id] || 1));
      byId(`${id}-text`).textContent = `× ${state[id] || 1}`;
    };
    const slider = (id, key, number, show) =>
      on(id, "input", (event) => {
        const began = performance.now();
        put(key, number(event.target.value));
        show(id);
        changed(began);
      });
    for (const id of FACTORS)
      slider(id, id, (place) => Number((10 ** (place / 100)).toPrecision(3)), showFactor);
    const showLeastCut = () => {
      byId("min-cut").value = state.min_cut || 1;
      byId("min-cut-text").textContent = state.min_cut || 1;
    };
    slider("min-cut", "min_cut", Number, showLeastCut);

    /* ---- model, session, planner ---- */
    const showKind = () => {
      const saved = Boolean(state.profile);
      for (const node of document.querySelectorAll(".zoo")) node.hidden = saved;
      byId("kappa-label").hidden = saved || value("count") !== "paper";
    };
    const readModel = () => {
      const chosen = byId("model").selectedOptions[0];
      const optimizer = state.model?.optimizer;
      delete state.model;
      delete state.profile;
      if (chosen.dataset.profile) state.profile = chosen.dataset.profile;
      else {
        state.model = { name: chosen.value, input: value("input"), count: value("count") };
        if (optimizer) state.model.optimizer = optimizer;
        if (value("classes")) state.model.classes = CW.numberOrText(value("classes"));
        if (value("count") === "paper" && value("kappa")) state.model.kappa = CW.numberOrText(value("kappa"));
      }
      showKind();
      changed();
    };
    for (const id of ["model", "input", "classes", "count", "kappa"]) on(id, "change", readModel);
    const showAmount = () => {
      byId("session-label").textContent = value("session") === "epochs" ? "Epochs" : "Steps";
    };
    const readSession = () => {
      const { epochs, steps, ...rest } = state.session || {};
      state.session = {
        ...rest,
        [value("session")]: CW.numberOrText(value("amount")),
        batch_size: CW.numberOrText(value("batch")),
        micro_batches: CW.numberOrText(value("parts")),
      };
      showAmount();
      crossing.fit();
      changed();
    };
    for (const id of ["session", "amount", "batch", "parts"]) on(id, "change", readSession);
    const setPlanner = (name) => {
      state.planner = name;
      byId("planner").value = name;
      changed();
    };
    on("planner", "change", () => setPlanner(value("planner")));
    const crossing = CW.crossingControls({ start, state: () => state, changed });
    on("controls", "submit", (event) => event.preventDefault());

    /* ---- what can be chosen ---- */
    const option = (name) => el("option", { value: name, text: name });
    const saved = [
      ...(start.given ? [[start.given.key, start.given.label]] : []),
      ...start.profiles.map((name) => [name, name]),
    ].map(([key, text]) => el("option", { value: `profile:${key}`, "data-profile": key, text }));
    byId("planner").append(...start.planners.map(option));
    byId("model").append(el("optgroup", { label: "Models" }, ...start.models.map(option)));
    if (saved.length) byId("model").append(el("optgroup", { label: "Saved profiles" }, ...saved));

    const isChosen = (one) =>
      state.profile ? one.dataset.profile === state.profile : one.value === state.model?.name;

    return {
      setServer,
      typeServer,
      setPlanner,
      ends: () => ends,
      layers: (count) => {
        byId("min-cut").max = count;
        showLeastCut();
      },
      /* A scenario into the controls. */
      show: (fresh) => {
        state = fresh;
        const model = state.model || {},
          session = state.session || {};
        const chosen = [...byId("model").options].find(isChosen);
        if (chosen) chosen.selected = true;
        byId("planner").value = state.planner;
        byId("input").value = model.input || "1x28x28";
        byId("classes").value = model.classes ?? "10";
        byId("count").value = model.count || "exact";
        byId("kappa").value = model.kappa ?? "4.7";
        byId("session").value = "steps" in session ? "steps" : "epochs";
        byId("amount").value = session.steps ?? session.epochs ?? "";
        byId("batch").value = session.batch_size ?? 32;
        byId("parts").value = session.micro_batches ?? 1;
        crossing.show();
        byId("min-cut").max = Math.max(byId("min-cut").max, state.min_cut || 1);
        showKind();
        showAmount();
        showServer();
        showLeastCut();
        FACTORS.forEach(showFactor);
      },
    };
  };
})();
