"use strict";
// All text goes into the page as text, never as markup.

const $ = (id) => document.getElementById(id);
let models = [];
let running = null; // the AbortController of the translation that runs
let current = []; // the results that are shown
let chosen = null; // whose maps are shown: the number of a piece, and a model

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function tell(text, isError = false) {
  $("status").textContent = text;
  $("status").classList.toggle("error", isError);
}

async function ask(path, body, signal) {
  const options = body && {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  };
  const response = await fetch(path, options);
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new Error(answer.detail || `the server answered ${response.status}`);
  }
  return response;
}

// The objects of an answer, as they come: one a line.
async function* objects(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    const lines = (rest + (value || "")).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const found = JSON.parse(line);
      if (found.detail && !found.translations) throw new Error(found.detail);
      yield found;
    }
    if (done) return;
  }
}

function infoOf(name) {
  return models.find((model) => model.name === name);
}

function selectedModels() {
  const first = $("model").value;
  const second = $("compare").checked && models.find((model) => model.name !== first);
  return second ? [first, second.name] : [first];
}

async function translateAll() {
  if (running) running.abort();
  const controller = (running = new AbortController());
  const text = $("text").value;
  chosen = null;
  current = [];
  $("inside").hidden = true;
  $("results").replaceChildren();
  if (!text.trim()) {
    running = null;
    tell("There is nothing to translate.");
    return;
  }
  $("stop").hidden = false;
  tell("Translating …");
  const results = (current = selectedModels().map((name) => new Result(name, text)));
  try {
    await Promise.all(results.map((result) => result.translate(controller.signal)));
    const problem = results.flatMap((result) => result.pieces).find((piece) => piece.problem);
    tell(problem ? `Done, but: ${problem.problem}` : "Done. Choose a word to see what it looked at.");
  } catch (error) {
    if (running === controller) {
      controller.abort();
      tell(error.name === "AbortError" ? "Stopped." : `Error: ${error.message}`, true);
    }
  }
  if (running === controller) {
    running = null;
    $("stop").hidden = true;
  }
}

// One model's translation of the text.
class Result {
  constructor(name, text) {
    this.name = name;
    this.text = text;
    this.pieces = [];
    this.translation = make("p", { class: "translation", dir: "auto", lang: infoOf(name).target_lang });
    this.details = make("div");
    this.alternatives = make("div");
    this.more = make("button", { type: "button", class: "more" }, "Alternatives");
    this.more.hidden = true;
    this.more.addEventListener("click", () => this.showAlternatives());
    $("results").append(
      make("section", { class: "result", "aria-label": `translation by ${name}` },
        make("h3", {}, name), this.translation, this.details, this.more, this.alternatives));
  }

  async translate(signal) {
    const response = await ask("api/translate", { text: this.text, model: this.name }, signal);
    for await (const piece of objects(response)) {
      this.pieces.push(piece);
      this.translation.append(piece.joint + (piece.translations[0]?.text ?? ""));
      if (piece.translations.length) this.details.append(this.words(piece, this.pieces.length - 1));
    }
    this.more.hidden = infoOf(this.name).n_best < 2 || !this.pieces.some((p) => p.translations.length);
  }

  // The words of both sides; those of the translation light up what they looked at.
  words(piece, index) {
    const best = piece.translations[0];
    const sourceWords = piece.source_words.map((word) =>
      make("span", word.unknown ? { class: "unknown" } : {}, word.text));
    const unknown = piece.source_words.filter((word) => word.unknown).map((word) => word.text);
    const note = make("p", { class: "quiet" }, `Unknown to the model: ${unknown.join(", ")}`);
    const said = make("p", { class: "quiet", "aria-live": "polite" });
    const buttons = best.words.map((word) => {
      const button = make("button", { type: "button", "aria-pressed": "false" }, word.text);
      const light = () => {
        for (const other of this.details.querySelectorAll("button[aria-pressed=true]")) {
          other.setAttribute("aria-pressed", "false");
        }
        button.setAttribute("aria-pressed", "true");
        lightUp(word, best, piece, sourceWords, said);
        this.choose(index);
      };
      button.addEventListener("click", light);
      button.addEventListener("focus", light);
      button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && light());
      return button;
    });
    return make("div", { class: "piece" },
      make("p", { class: "words target", dir: "auto", "aria-label": "words of the translation" }, ...buttons),
      make("p", { class: "words source", dir: "auto", "aria-label": "words of the text" }, ...sourceWords),
      ...(unknown.length ? [note] : []), said);
  }

  choose(index) {
    if (chosen && chosen.index === index && chosen.model === this.name) return;
    chosen = { index, model: this.name };
    showInside();
  }

  async showAlternatives() {
    this.more.disabled = true;
    this.alternatives.replaceChildren();
    try {
      const body = { text: this.text, model: this.name, n_best: infoOf(this.name).n_best };
      for await (const piece of objects(await ask("api/translate", body))) {
        const items = piece.translations.map((found) =>
          make("li", {}, make("span", { dir: "auto" }, found.text),
            make("span", { class: "quiet" }, `  ${found.score.toFixed(2)}`)));
        if (items.length) this.alternatives.append(make("ol", { class: "alternatives" }, ...items));
      }
    } catch (error) {
      tell(`Error: ${error.message}`, true);
    }
    this.more.disabled = false;
  }
}

function lightUp(word, translation, piece, sourceWords, said) {
  if (!translation.attention) {
    said.textContent = "This model has no such attention.";
    return;
  }
  // A word's weight on another: the mean over its subwords of the sum over the other's.
  const rows = word.tokens.map((token) => translation.attention[token]);
  const weights = piece.source_words.map((source) =>
    rows.reduce((sum, row) => sum + source.tokens.reduce((s, token) => s + row[token], 0), 0) / rows.length);
  const most = weights.indexOf(Math.max(...weights));
  sourceWords.forEach((element, i) => {
    element.style.setProperty("--weight", Math.max(0, Math.min(1, weights[i])).toFixed(3));
    element.classList.toggle("most", i === most);
    element.title = `${(100 * weights[i]).toFixed(0)} %`;
  });
  const percent = (100 * weights[most]).toFixed(0);
  said.textContent = `${word.text} looks most at ${piece.source_words[most].text} (${percent} %)`;
}

// Layers and heads.

function fill(select, values, wanted) {
  select.replaceChildren(...values.map(([value, text]) => make("option", { value }, text)));
  if (values.some(([value]) => value === wanted)) select.value = wanted;
}

function showInside() {
  $("inside").hidden = false;
  const attention = $("attention").value;
  const infos = current.map((result) => infoOf(result.name));
  const count = (what) => Math.max(...infos.map((info) => info[what][attention]));
  const range = (n) => Array.from({ length: n }, (_, i) => [String(i + 1), String(i + 1)]);
  fill($("layer"), range(count("layers")), $("layer").value || String(count("layers")));
  fill($("head"), [["", "mean of all"], ...range(count("heads"))], $("head").value);
  return showMaps();
}

let asked = 0;

async function showMaps() {
  if (!chosen) return;
  const mine = ++asked;
  const attention = $("attention").value;
  const layer = Number($("layer").value);
  const head = $("head").value ? Number($("head").value) : null;
  $("lower").disabled = layer <= 1;
  $("higher").disabled = layer >= $("layer").options.length;
  const figures = [];
  try {
    const sourceOf = (piece) => piece.source_words.map((word) => word.text).join(" ");
    const cut = current.find((result) => result.name === chosen.model).pieces;
    for (const result of current) {
      // A model that takes longer sentences may have cut the text elsewhere.
      const piece = result.pieces.length === cut.length ? result.pieces[chosen.index]
        : result.pieces.find((other) => sourceOf(other) === sourceOf(cut[chosen.index]));
      const info = infoOf(result.name);
      if (!piece || !piece.translations.length) continue;
      if (layer > info.layers[attention] || (head || 1) > info.heads[attention]) continue;
      const body = {
        model: result.name, attention, layer, head,
        source_tokens: piece.source_tokens, tokens: piece.translations[0].tokens,
      };
      const maps = await (await ask("api/maps", body)).json();
      if (mine !== asked) return; // another choice was made since
      for (const view of maps.views) figures.push(mapTable(result.name, view, maps));
    }
  } catch (error) {
    tell(`Error: ${error.message}`, true);
    return;
  }
  $("inside-of").textContent = `${attention} attention, layer ${layer}, ` +
    (head ? `head ${head}` : "mean of all heads");
  $("maps").replaceChildren(...figures);
}

function mapTable(model, view, maps) {
  // Fresh and evolved map have one scale; what is added has its own.
  const sameScale = maps.views.filter((other) => other.in_logits === view.in_logits);
  const numbers = sameScale.flatMap((other) => other.values.flat()).filter((value) => value !== null);
  const largest = numbers.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-9);
  const name = { fresh: "fresh map", added: "what is added", evolved: "evolved map", map: "map" }[view.name];
  const head = make("tr", {}, make("td", { class: "corner" }),
    ...maps.columns.map((token) => make("th", { scope: "col" }, make("span", {}, token))));
  const rows = maps.rows.map((token, i) => make("tr", {}, make("th", { scope: "row" }, token),
    ...view.values[i].map((value, j) => {
      if (value === null) return make("td", { class: "hidden" });
      const cell = make("td", value < 0 ? { class: "negative" } : {}, value.toFixed(2));
      cell.style.setProperty("--amount", (Math.abs(value) / largest).toFixed(3));
      cell.title = `${token} → ${maps.columns[j]}: ${value.toFixed(3)}`;
      return cell;
    })));
  const table = make("table", {}, make("caption", {}, `${model}: ${name}, darkest ${largest.toPrecision(2)}`),
    make("thead", {}, head), make("tbody", {}, ...rows));
  return make("div", {
    class: `map ${view.in_logits ? "added" : "probabilities"}`, "data-view": view.name,
    "data-model": model, tabindex: "0", role: "group", "aria-label": `${model}, ${name}`,
  }, table);
}

function step(by) {
  $("layer").value = String(Number($("layer").value) + by);
  showMaps();
}

async function start() {
  try {
    models = await (await ask("api/models")).json();
  } catch (error) {
    tell(`Error: ${error.message}`, true);
    return;
  }
  fill($("model"), models.map((model) => [model.name, model.name]));
  const showModel = () => {
    const info = infoOf($("model").value);
    $("language").textContent = `(${info.source_lang} to ${info.target_lang})`;
    $("text").lang = info.source_lang;
    const other = models.find((model) => model.name !== info.name);
    $("compare-label").hidden = !other;
    if (other) $("other").textContent = other.name;
  };
  showModel();
  $("model").addEventListener("change", showModel);
  $("form").addEventListener("submit", (event) => {
    event.preventDefault();
    translateAll();
  });
  $("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      translateAll();
    }
  });
  $("stop").addEventListener("click", () => running && running.abort());
  $("choice").addEventListener("submit", (event) => event.preventDefault());
  $("attention").addEventListener("change", showInside);
  $("layer").addEventListener("change", showMaps);
  $("head").addEventListener("change", showMaps);
  $("lower").addEventListener("click", () => step(-1));
  $("higher").addEventListener("click", () => step(1));
}

start();
