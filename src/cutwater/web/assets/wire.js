"use strict";
/* Talking to the server, and packing a scenario into a link. */
(() => {
  const decoder = new TextDecoder();

  /* The answer to a POST, or an error with the server's sentence. */
  CW.post = async (path, body) => {
    const answer = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    if (answer.ok) return answer;
    throw await CW.refusal(answer);
  };
  CW.sentence = (error) =>
    error instanceof TypeError ? "The server does not answer: is cutwater web still running?" : error.message;

  /* A plan: a line of JSON, then its columns as float64, one number for each client. */
  CW.decodePlan = (buffer) => {
    const bytes = new Uint8Array(buffer);
    const end = bytes.indexOf(10) + 1;
    const plan = JSON.parse(decoder.decode(bytes.subarray(0, end)));
    plan.columns.forEach((name, i) => {
      plan[name] = new Float64Array(buffer, end + 8 * i * plan.count, plan.count);
    });
    return plan;
  };

  /* ---- links: JSON, deflated, in the letters that an address may hold ---- */
  const through = async (stream, bytes) =>
    new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
  CW.pack = async (value) => {
    const plain = new TextEncoder().encode(JSON.stringify(value));
    const bytes = await through(new CompressionStream("deflate-raw"), plain);
    let letters = "";
    for (let i = 0; i < bytes.length; i += 32768) {
      letters += String.fromCharCode(...bytes.subarray(i, i + 32768));
    }
    return btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  };
  CW.unpack = async (text) => {
    const letters = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
    return JSON.parse(decoder.decode(await through(new DecompressionStream("deflate-raw"), bytes)));
  };
})();
