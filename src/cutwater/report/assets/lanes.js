"use strict";
/* The bar of one session, exactly as long as the session takes, whether its phases overlap or not. */
(() => {
  const { rect } = CW.draw;
  const LANES = [
    ["client_forward", "client_backward"],
    ["smashed_upload"],
    ["server_forward", "server_backward"],
    ["gradient_download"],
  ];
  const LEAST = 12; // pixels that four lanes need
  CW.MOST_BARS = 60; // clients that have a bar each; more are stacked side by side
  const FEW =
    "Where parts overlap, a bar has four lanes: how long client, link up, server and link down are busy in the same time.";
  const MANY = "Where parts overlap, each phase is drawn at its part of all that is busy.";
  CW.overlapNote = (rows) => {
    if (!rows.some((row) => row.overlap > 0 || row.planned?.overlap > 0)) return "";
    return rows.length > CW.MOST_BARS ? MANY : FEW;
  };

  /* One after the other: {phases: seconds, seconds, overlap} with their names; what steps wait for before the model goes. */
  const inTurn = (put, { phases }, names) => {
    const last = names.indexOf("model_upload");
    const order = names.map((_, p) => p).sort((a, b) => (a === last) - (b === last));
    let at = 0;
    for (const p of order) {
      put(at, phases[p], 0, 1, CW.phaseColour(names[p]));
      at += phases[p];
    }
  };
  /* The model comes and goes by itself; between that, each lane is filled as far as it is busy. */
  const overlapped = (put, { phases, seconds }, names, tall) => {
    const of = (name) => phases[names.indexOf(name)] || 0;
    const [before, after] = [of("model_download"), of("model_upload")];
    const long = seconds - before - after;
    put(0, before, 0, 1, CW.phaseColour("model_download"));
    if (tall < LEAST) put(before, long, 0, 1, "var(--slate)");
    else {
      put(before, long, 0, 1, undefined, "track");
      LANES.forEach((lane, i) => {
        let at = before;
        for (const name of lane) {
          put(at, of(name), i / LANES.length, 1 / LANES.length, CW.phaseColour(name));
          at += of(name);
        }
      });
    }
    put(seconds - after, after, 0, 1, CW.phaseColour("model_upload"));
  };
  CW.sessionBar = (svg, row, names, { sx, y, tall, kind = "" }) => {
    const put = (from, seconds, top, part, fill, more = "") => {
      if (seconds <= 0) return;
      const gap = part < 1 ? 0.5 : 0;
      const drawn = rect(
        sx(from),
        y + top * tall,
        sx(from + seconds) - sx(from),
        part * tall - gap,
        fill,
        `${kind} ${more}`.trim(),
      );
      svg.append(drawn);
    };
    (row.overlap > 0 ? overlapped : inTurn)(put, row, names, tall);
  };
})();
