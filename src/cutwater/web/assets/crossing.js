"use strict";
/* How the parts of a step cross the cut: when, by which codecs, and over which shared lines. */
(() => {
  const { el, byId } = CW;
  const LINKS = ["uplink", "downlink"];
  const CODECS = { up: "codec-up", down: "codec-down" };
  const names = (value, usual) => (value === undefined ? usual : [value].flat());

  CW.crossingControls = ({ start, state, changed }) => {
    const all = start.codecs.map((codec) => codec.name);
    /* One select for each: a name, several names with "|" between them, or "" for what a scenario has by default. */
    const option = (value, text) => el("option", { value, text });
    const told = (list) => list.map((name) => start.codecs.find((codec) => codec.name === name)?.text ?? name);
    byId("schedule").append(
      option("", "as is faster"),
      ...start.schedules.map((schedule) => option(schedule, schedule)),
    );
    for (const id of Object.values(CODECS))
      byId(id).append(
        ...start.codecs.map((codec) => option(codec.name, codec.text)),
        option(all.join("|"), "fastest of all (may be lossy)"),
      );

    /* What stands at its default, the scenario does not hold. */
    const put = (key, list, usual) => {
      const said = list.join("|") === usual.join("|") ? undefined : list.length === 1 ? list[0] : list;
      CW.setIn(state(), "wire", key, said);
    };
    const chosen = (id) => byId(id).value.split("|");
    for (const [key, id] of Object.entries(CODECS))
      byId(id).addEventListener("change", () => {
        put(key, chosen(id), ["fp32"]);
        changed();
      });
    byId("schedule").addEventListener("change", () => {
      put("schedule", byId("schedule").value ? chosen("schedule") : start.schedules, start.schedules);
      fit();
      changed();
    });

    /* Rates of shared lines are planned for parts in turn: that is chosen for whoever has not chosen. */
    let fitted = false;
    const fit = () => {
      const needed = LINKS.some((key) => key in state()) && Number(state().session?.micro_batches) > 1;
      const usual = state().wire?.schedule === undefined;
      if (needed && usual) put("schedule", ["in turn"], start.schedules);
      else if (!needed && fitted && state().wire?.schedule === "in turn")
        put("schedule", start.schedules, start.schedules);
      fitted = needed && (usual || fitted);
      showSchedule();
    };
    for (const key of LINKS)
      byId(key).addEventListener("change", () => {
        const capacity = byId(key).value.trim();
        if (capacity) state()[key] = { capacity };
        else delete state()[key];
        fit();
        changed();
      });

    const pick = (id, value, text) => {
      const select = byId(id);
      select.querySelector("[data-own]")?.remove();
      if (![...select.options].some((one) => one.value === value))
        select.append(el("option", { value, text, "data-own": "" }));
      select.value = value;
    };
    const showSchedule = () => {
      const schedules = names(state().wire?.schedule, start.schedules);
      pick("schedule", schedules.length > 1 ? "" : schedules[0], schedules[0]);
    };
    return {
      fit,
      show: () => {
        fitted = false;
        for (const key of LINKS) byId(key).value = state()[key]?.capacity ?? "";
        const wire = state().wire || {};
        for (const [key, id] of Object.entries(CODECS)) {
          const list = names(wire[key], ["fp32"]);
          pick(id, list.join("|"), `fastest of ${told(list).join(", ")}`);
        }
        showSchedule();
      },
    };
  };
})();
