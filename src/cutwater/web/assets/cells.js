"use strict";
/* The cells of the fleet's table: CSV as the server writes it, and how large what a cell says is. */
(() => {
  const PREFIX = { k: 1e3, K: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };
  const UNITS = { B: 8, "B/s": 8, ms: 1e-3, us: 1e-6, µs: 1e-6, min: 60, h: 3600 };

  /* To sort, to choose by and to place a slider; NaN where a cell says nothing. What a text means in a plan is for the server to say. */
  CW.amount = (cell) => {
    const found = /^\s*([\d.,_]+(?:[eE][+-]?\d+)?)\s*([kKMGTP]?)i?(.*)$/.exec(cell);
    if (!found) return NaN;
    const [, digits, prefix, unit] = found;
    const seconds = prefix === "" || !/^(FLOP|b|B)/.test(unit);
    const number = Number(digits.replaceAll(/[,_]/g, ""));
    return seconds ? number * (UNITS[prefix + unit] || 1) : number * PREFIX[prefix] * (UNITS[unit] || 1);
  };
  /* Drawn numbers have many digits: four are shown, all are kept while nobody edits the cell. */
  CW.brief = (cell) => {
    const show = { FLOPS: CW.format.compute, "bit/s": CW.format.rate }[/^\d{7,}(?:\.\d+)? (FLOPS|bit\/s)$/.exec(cell)?.[1]];
    if (show) return show(CW.amount(cell));
    return cell.replace(/^(\d+\.\d{3,})(?= )/, (digits) => String(Number(Number(digits).toPrecision(4))));
  };

  /* Commas, and quotes where they are needed. */
  CW.parseCsv = (content) => {
    if (!content.includes('"'))
      return content
        .replaceAll("\r", "")
        .split("\n")
        .filter((line) => line)
        .map((line) => line.split(","));
    return parseQuoted(content);
  };
  const parseQuoted = (content) => {
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
})();
