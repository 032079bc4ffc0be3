"use strict";

const SAMPLES = [
  "The cat sleeps on the sofa.",
  "Die Katze schläft auf dem Sofa.",
  "猫がソファで寝ている。",
  "القطة نائمة على الأريكة.",
  "बिल्ली सोफ़े पर सो रही है।",
  "Поезд отправляется в семь часов.",
];
const SAMPLE_QUERY = "Where does the cat sleep?";
const STAGES = ["parse", "tokenize", "queue", "compute", "select", "serialize"];
const PAUSE_MS = 350;
const MOST_TEXTS = 24;
const MOST_TOKENS_SHOWN = 600;
// Darker shades would swallow the letters.
const DARKEST = 62;

const state = {
  model: null,
  key: "",
  cards: [],
  made: 0,
  query: null,
  // Milliseconds of each stage, of the total, and of the whole round trip, since the page opened.
  samples: new Map([...STAGES, "total", "round trip"].map((name) => [name, []])),
  running: null,
  timer: 0,
};

const $ = (id) => document.getElementById(id);

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/* Requests. Paths are relative, so that a proxy may put the server behind a prefix. */

class Refusal extends Error {
  constructor(answer, { message, param }) {
    super(message);
    const retryAfter = Number(answer.headers.get("retry-after"));
    Object.assign(this, { status: answer.status, param, retryAfter });
  }
}

async function ask(path, body, signal) {
  const headers = state.key ? { authorization: `Bearer ${state.key}` } : {};
  if (body) headers["content-type"] = "application/json";
  const content = body ? { method: "POST", body: JSON.stringify(body) } : {};
  const start = performance.now();
  const answer = await fetch(path, { headers, signal, cache: "no-store", ...content });
  const text = await answer.text();
  const took = performance.now() - start;
  if (!answer.ok) {
    let error = { message: `the server answered ${answer.status}` };
    try { error = JSON.parse(text).error; } catch { /* It is no answer of duovec's. */ }
    throw new Refusal(answer, error);
  }
  $("key-form").hidden = true;
  return { json: JSON.parse(text), timing: answer.headers.get("server-timing") ?? "", took };
}

/** The request for vectors: without a sparse head there are dense vectors alone. */
function request(texts, inputType) {
  const body = { input: texts };
  if (inputType) body.input_type = inputType;
  if (!state.model.sparse) return ["v1/embeddings", body];
  return ["v1/embeddings/both", { ...body, offsets: true }];
}

async function embed(texts, inputType, signal) {
  const [path, body] = request(texts, inputType);
  const [vectors, tokens] = await Promise.all([
    ask(path, { ...body, encoding_format: "base64" }, signal),
    ask("v1/tokenize", body, signal),
  ]);
  const most = tokens.json.max_input_tokens;
  const results = vectors.json.data.map((item, index) => ({
    text: texts[index],
    dense: floats(item.embedding),
    weights: weights(item.sparse_values),
    places: item.occurrences ?? [],
    tokens: tokens.json.data[index],
    most,
  }));
  return { results, timing: vectors.timing, took: vectors.took };
}

async function embedQuery(text, signal) {
  try {
    return await embed([text], "query", signal);
  } catch (fault) {
    // Some models have prompts, and none for queries.
    if (fault.param === "input_type") return embed([text], "", signal);
    throw fault;
  }
}

function floats(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 4 }, (_, at) => view.getFloat32(4 * at, true));
}

function weights(values) {
  return new Map(values ? values.indices.map((id, at) => [id, values.values[at]]) : []);
}

/* Similarities. */

function denseSimilarity(one, other) {
  return one.dense.reduce((sum, value, at) => sum + value * other.dense[at], 0);
}

function lexicalSimilarity(one, other) {
  let sum = 0;
  for (const [id, weight] of one.weights) sum += weight * (other.weights.get(id) ?? 0);
  return sum;
}

function shade(weight, heaviest) {
  return heaviest > 0 ? Math.round((DARKEST * weight) / heaviest) : 0;
}

/* Cards: a text to edit, its shades, its tokens. */

function makeCard(name, text, remove) {
  const id = `text-${state.made += 1}`;
  const card = { result: null, shown: null };
  card.shades = element("div", { className: "shades", dir: "auto" });
  card.shades.setAttribute("aria-hidden", "true");
  card.area = element("textarea", { id, rows: 1, value: text, dir: "auto", spellcheck: false });
  card.name = element("label", { className: "name", htmlFor: id, textContent: name });
  card.count = element("summary");
  card.tokens = element("ol", { className: "tokens", dir: "ltr" });
  card.long = element("span", { className: "long" });
  const details = element("details", {}, card.count, card.tokens);
  details.addEventListener("toggle", () => showTokens(card));
  card.details = details;
  const facts = element("div", { className: "facts" }, card.name, details, card.long);
  if (remove) {
    card.remove = element("button", { type: "button", textContent: "Remove" });
    card.remove.addEventListener("click", () => remove(card));
    facts.append(card.remove);
  } else {
    card.name.remove();
  }
  const field = element("div", { className: "field" }, card.shades, card.area);
  card.item = element("li", { className: "card" }, field, facts);
  card.area.addEventListener("input", () => {
    card.shades.replaceChildren();
    fit(card);
    schedule();
  });
  return card;
}

function fit({ area }) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight}px`;
}

function textOf(card) {
  // Half a character, which some input methods leave behind, is not UTF-8.
  const text = card.area.value;
  return text.toWellFormed ? text.toWellFormed() : text;
}

function addText(text) {
  const card = makeCard("", text, removeText);
  state.cards.push(card);
  $("texts").append(card.item);
  nameTexts();
  fit(card);
  return card;
}

function removeText(card) {
  const at = state.cards.indexOf(card);
  state.cards.splice(at, 1);
  card.item.remove();
  nameTexts();
  (state.cards[Math.min(at, state.cards.length - 1)]?.area ?? $("add")).focus();
  schedule();
}

function nameTexts() {
  state.cards.forEach((card, at) => {
    card.name.textContent = `Text ${at + 1}`;
    card.remove.setAttribute("aria-label", `Remove text ${at + 1}`);
    card.remove.disabled = state.cards.length === 1;
  });
  $("add").disabled = state.cards.length >= MOST_TEXTS;
}

/** Where a text is cut, in code points: at its end when it is not. */
function cutAt({ tokens, most }, end) {
  return tokens.ids.length > most ? (tokens.offsets[most - 2]?.[1] ?? 0) : end;
}

function showCard(card, heaviest, shared) {
  const { result } = card;
  const count = result.tokens.ids.length;
  const left = count - result.most;
  card.count.textContent = `${count} tokens`;
  card.long.textContent = left > 0 ? `cut: ${left} tokens are not run` : "";
  card.heaviest = heaviest;
  if (card.details.open) showTokens(card);
  if (textOf(card) !== result.text) return;
  const points = Array.from(result.text);
  const pieces = [];
  let done = 0;
  const put = (start, end, properties, weight) => {
    if (start > done) pieces.push(points.slice(done, start).join(""));
    const mark = element("mark", { ...properties, textContent: points.slice(start, end).join("") });
    if (weight !== undefined) mark.style.setProperty("--shade", shade(weight, heaviest));
    pieces.push(mark);
    done = end;
  };
  for (const { id, start, end, weight } of result.places) {
    // Tokens of one character that became several share it; the first one stands for all.
    if (start === end || start < done) continue;
    put(start, end, { className: shared?.has(id) ? "shared" : "" }, weight);
  }
  const cut = cutAt(result, points.length);
  if (cut < points.length) put(Math.max(cut, done), points.length, { className: "cut" });
  // A line break at the end is a line of the field only with something behind it.
  pieces.push(points.slice(done).join(""), "\u200b");
  card.shades.replaceChildren(...pieces);
}

/** The tokens of a card whose list is open. */
function showTokens(card) {
  if (!card.details.open || !card.result || card.shown === card.result) return;
  card.shown = card.result;
  const { ids, pieces, offsets } = card.result.tokens;
  const { places, most } = card.result;
  let next = 0;
  const items = ids.slice(0, MOST_TOKENS_SHOWN).map((id, at) => {
    const item = element("li", { className: "token", title: `id ${id}` }, pieces[at]);
    const place = offsets[at];
    item.style.setProperty("--shade", 0);
    if (!place) item.classList.add("around");
    else if (at >= most - 1) item.classList.add("cut");
    if (place && places[next]?.id === id && places[next].start === place[0]) {
      const { weight } = places[next];
      next += 1;
      item.append(element("small", { textContent: weight.toFixed(3) }));
      item.style.setProperty("--shade", shade(weight, card.heaviest));
    }
    return item;
  });
  const left = ids.length - items.length;
  card.tokens.replaceChildren(...items, left > 0 ? element("li", {}, `and ${left} more`) : "");
}

function show() {
  const { query } = state;
  const cards = state.cards.filter((card) => card.result);
  const all = query.result ? [query, ...cards] : cards;
  const weighed = all.flatMap(({ result }) => result.places.map((place) => place.weight));
  const heaviest = weighed.reduce((most, weight) => Math.max(most, weight), 0);
  for (const card of all) {
    showCard(card, heaviest, card === query ? null : query.result?.weights);
  }
  showNearest();
  showMatrix($("dense-matrix"), "Dense", denseSimilarity, cards);
  showMatrix($("lexical-matrix"), "Lexical", lexicalSimilarity, cards);
}

function showMatrix(table, caption, similarity, cards) {
  const values = cards.map((row) => cards.map((column) =>
    row === column ? null : similarity(row.result, column.result)));
  const others = values.flat().filter((value) => value !== null);
  const [least, most] = [Math.min(...others), Math.max(...others)];
  const heading = (scope) => (_, at) => element("th", { scope, textContent: at + 1 });
  const rowHeads = cards.map(heading("row"));
  const rows = values.map((row, at) => {
    const cells = row.map((value) => {
      const cell = element("td", { textContent: value === null ? "·" : value.toFixed(2) });
      const part = value === null || most <= least ? 0 : (value - least) / (most - least);
      cell.style.setProperty("--shade", Math.round(DARKEST * part));
      return cell;
    });
    return element("tr", {}, rowHeads[at], ...cells);
  });
  const head = element("tr", {}, element("td"), ...cards.map(heading("col")));
  const [top, body] = [element("thead", {}, head), element("tbody", {}, ...rows)];
  table.replaceChildren(element("caption", { textContent: caption }), top, body);
}

function ranksOf(values) {
  const sorted = [...values].sort((one, other) => other - one);
  return values.map((value) => sorted.indexOf(value) + 1);
}

function showNearest() {
  const share = state.model.sparse ? Number($("share").value) : 0;
  const [d, l] = [1 - share, share].map((part) => part.toFixed(2));
  $("formula").textContent = `score = ${d} · dense + ${l} · lexical`;
  const query = state.query.result;
  const cards = state.cards.filter((card) => card.result);
  if (!query) return $("nearest").replaceChildren(element("li", {}, "Write a query."));
  const dense = cards.map(({ result }) => denseSimilarity(query, result));
  const lexical = cards.map(({ result }) => lexicalSimilarity(query, result));
  const [denseRank, lexicalRank] = [ranksOf(dense), ranksOf(lexical)];
  const found = cards.map((card, at) => {
    const parts = [(1 - share) * dense[at], share * lexical[at]];
    return { card, at, parts, score: parts[0] + parts[1] };
  });
  const best = Math.max(...found.map(({ score }) => score), Number.MIN_VALUE);
  found.sort((one, other) => other.score - one.score);
  $("nearest").replaceChildren(...found.map(({ card, at, parts, score }) => {
    const bars = parts.map((part, kind) => {
      const bar = element("i", { className: "dl"[kind] });
      bar.style.width = `${(100 * Math.max(0, part)) / best}%`;
      return bar;
    });
    let ranks = `dense ${dense[at].toFixed(3)}, rank ${denseRank[at]}`;
    if (state.model.sparse) {
      ranks += lexical[at] > 0
        ? ` · lexical ${lexical[at].toFixed(3)}, rank ${lexicalRank[at]}`
        : " · lexical 0, no shared word";
    }
    const text = card.result.text || "(empty)";
    return element("li", {},
      element("span", { className: "text", dir: "auto", textContent: text }),
      element("span", { className: "score", textContent: score.toFixed(3) }),
      element("span", { className: "parts", ariaHidden: "true" }, ...bars),
      element("span", { className: "ranks", textContent: ranks }));
  }));
}

/** Of at least one value: the smallest one that so many are not above. */
function quantile(values, part) {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.max(0, Math.ceil(part * sorted.length) - 1)];
}

function millis(value) {
  return value === undefined ? "" : value.toFixed(value < 10 ? 2 : 1);
}

function showTimes(timing, took) {
  const now = new Map([["round trip", took]]);
  for (const [, name, ms] of timing.matchAll(/([a-z]+);dur=([\d.]+)/g)) now.set(name, Number(ms));
  for (const [name, values] of state.samples) {
    if (now.has(name)) values.push(now.get(name));
  }
  $("bar").replaceChildren(...STAGES.map((name, at) => {
    const part = element("i");
    part.style.flexGrow = now.get(name) ?? 0;
    part.style.setProperty("--stage", `var(--stage-${at})`);
    return part;
  }));
  const head = element("tr", {}, ...["", "now", "p50", "p99"].map((text) =>
    element(text ? "th" : "td", { textContent: text })));
  const rows = [...state.samples].map(([name, values], at) => {
    const title = element("th", { scope: "row" }, element("i"), name);
    title.firstChild.style.setProperty("--stage", `var(--stage-${at}, transparent)`);
    const cells = [now.get(name), quantile(values, 0.5), quantile(values, 0.99)];
    const row = element("tr", { className: name === "total" ? "sum" : "" }, title);
    cells.forEach((value) => row.append(element("td", { textContent: millis(value) })));
    return row;
  });
  $("times").replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  const count = state.samples.get("total").length;
  $("count").textContent = `Requests since the page opened: ${count}.`;
}

/* Code. */

function showCode() {
  const [path, body] = request(state.cards.map(textOf), $("input-type").value);
  const url = new URL(path, document.baseURI).href;
  const isCurl = document.querySelector('[name="language"]:checked').value === "curl";
  $("code").textContent = isCurl ? curl(url, body) : python(url, body);
}

function curl(url, body) {
  const json = JSON.stringify(body, null, 1).replaceAll("'", "'\\''");
  const key = state.key ? ` -H "authorization: Bearer $DUOVEC_API_KEY" \\\n   ` : "";
  return `curl -s ${url} \\\n   ${key} -H 'content-type: application/json' -d '${json}'`;
}

function python(url, body) {
  const texts = body.input.map((text) => `        ${JSON.stringify(text)},\n`).join("");
  const type = body.input_type ? `    "input_type": ${JSON.stringify(body.input_type)},\n` : "";
  const offsets = body.offsets ? `    "offsets": True,\n` : "";
  const key = `{"authorization": f"Bearer {os.environ['DUOVEC_API_KEY']}"}`;
  return `${state.key ? "import os\n\n" : ""}import httpx

body = {
    "input": [
${texts}    ],
${type}${offsets}}
answer = httpx.post("${url}", json=body${state.key ? `, headers=${key}` : ""})
for item in answer.raise_for_status().json()["data"]:
    print(item["index"], len(item["embedding"])${body.offsets ? `, item["sparse_values"]` : ""})
`;
}

async function copy() {
  const button = $("copy");
  try {
    await navigator.clipboard.writeText($("code").textContent);
  } catch {
    // Without HTTPS there is no such clipboard; a selection can be copied everywhere.
    getSelection().selectAllChildren($("code"));
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

/* Running. */

function say(textContent, className = "") {
  Object.assign($("status"), { textContent, className });
}

function schedule(pause = PAUSE_MS) {
  clearTimeout(state.timer);
  state.timer = setTimeout(run, pause);
}

async function run() {
  clearTimeout(state.timer);
  state.running?.abort();
  const running = state.running = new AbortController();
  try {
    if (!state.model) await start(running.signal);
    showCode();
    const { query } = state;
    // Those of now: some may be gone when the answer comes.
    const cards = [...state.cards];
    const question = textOf(query);
    const [found, asked] = await Promise.all([
      embed(cards.map(textOf), $("input-type").value, running.signal),
      question.trim() ? embedQuery(question, running.signal) : null,
    ]);
    cards.forEach((card, at) => { card.result = found.results[at]; });
    query.result = asked?.results[0] ?? null;
    show();
    showTimes(found.timing, found.took);
    say("");
  } catch (fault) {
    if (fault.name === "AbortError") return;
    failed(fault);
  }
}

function failed(fault) {
  if (fault.status === 401) {
    $("key-form").hidden = false;
    $("key").focus();
    say(state.key ? "This key is not one of the server's." : "", "fault");
  } else if (fault.retryAfter > 0) {
    say(`${fault.message} (trying again in ${fault.retryAfter} s)`, "fault");
    schedule(1000 * fault.retryAfter);
  } else {
    const isAnswer = fault instanceof Refusal;
    say(isAnswer ? fault.message : `The server cannot be reached: ${fault.message}`, "fault");
  }
}

async function start(signal) {
  say("Asking the server for its model …");
  const { json } = await ask("v1/models", null, signal);
  const [model] = json.data;
  state.model = model;
  document.body.classList.toggle("no-lexical", !model.sparse);
  $("model").textContent =
    `${model.id} · ${model.dimensions.at(-1)} dimensions · up to ${model.max_input_tokens} tokens`;
}

state.query = makeCard("Query", SAMPLE_QUERY, null);
state.query.area.id = "query";
$("query-list").append(state.query.item);
fit(state.query);
SAMPLES.forEach(addText);
$("add").addEventListener("click", () => { addText("").area.focus(); schedule(); });
$("input-type").addEventListener("change", run);
$("share").addEventListener("input", () => state.model && showNearest());
$("copy").addEventListener("click", copy);
document.querySelectorAll('[name="language"]').forEach((choice) =>
  choice.addEventListener("change", () => state.model && showCode()));
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  state.key = $("key").value;
  run();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
});
addEventListener("resize", () => [state.query, ...state.cards].forEach(fit));
run();
