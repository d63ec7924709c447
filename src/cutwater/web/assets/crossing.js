"use strict";
/* How the parts of a step cross the cut: in how many parts, when, and by which codecs. */
(() => {
  const { el, byId } = CW;
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
      const wire = { ...state().wire };
      if (list.join("|") === usual.join("|")) delete wire[key];
      else wire[key] = list.length === 1 ? list[0] : list;
      if (Object.keys(wire).length) state().wire = wire;
      else delete state().wire;
      changed();
    };
    const chosen = (id) => byId(id).value.split("|");
    for (const [key, id] of Object.entries(CODECS))
      byId(id).addEventListener("change", () => put(key, chosen(id), ["fp32"]));
    byId("schedule").addEventListener("change", () =>
      put("schedule", byId("schedule").value ? chosen("schedule") : start.schedules, start.schedules),
    );

    const pick = (id, value, text) => {
      const select = byId(id);
      select.querySelector("[data-own]")?.remove();
      if (![...select.options].some((one) => one.value === value))
        select.append(el("option", { value, text, "data-own": "" }));
      select.value = value;
    };
    return {
      show: () => {
        const wire = state().wire || {};
        for (const [key, id] of Object.entries(CODECS)) {
          const list = names(wire[key], ["fp32"]);
          pick(id, list.join("|"), `fastest of ${told(list).join(", ")}`);
        }
        const schedules = names(wire.schedule, start.schedules);
        pick("schedule", schedules.length > 1 ? "" : schedules[0], schedules[0]);
      },
    };
  };
})();
