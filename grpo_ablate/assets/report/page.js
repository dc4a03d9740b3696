"use strict";
// Draws the page from #data. Text from runs only ever becomes a text node, never markup.

const COLOURS = 7;  // --c0 to --c6 of the style: Okabe and Ito's, lighter on a dark ground
const DASHES = ["", "7 3", "2 3"];
const W = 480, H = 250, LEFT = 52, RIGHT = 18, TOP = 8, BOTTOM = 26;
const LEFT_KINDS = new Set(["text", "word"]);
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);
const state = { hidden: new Set(), open: new Set(), sort: null, descending: true, axis: "step", seeds: null, alarms: true, pick: {} };
let data = JSON.parse($("data").textContent);

function make(tag, attributes = {}, ...children) {
  const node = attributes.svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "svg" || value === undefined || value === null) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
const draw = (tag, attributes, ...children) => make(tag, { svg: true, ...attributes }, ...children);

function shown(value, kind) {
  if (value === null || value === undefined) return "–";
  if (Array.isArray(value)) return value[1];  // what sorts, what is shown
  if (typeof value !== "number") return String(value);
  if (kind === "signed") return (value > 0 ? "+" : "") + value.toFixed(3);
  if (kind === "share") return value.toFixed(3);
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(+value.toPrecision(4));
}

// arms: the baselines grey, the others by colour and then by dash
function style(name) {
  const others = data.arms.filter((arm) => !arm.is_baseline);
  const i = others.findIndex((arm) => arm.name === name);
  if (i < 0) return { colour: "var(--grey)", dash: "" };
  return { colour: `var(--c${i % COLOURS})`, dash: DASHES[Math.floor(i / COLOURS) % DASHES.length] };
}
function swatch(name) {
  const { colour, dash } = style(name);
  const line = draw("line", { x1: 0, y1: 5, x2: 22, y2: 5, stroke: colour, "stroke-width": 3, "stroke-dasharray": dash });
  return draw("svg", { width: 22, height: 10, "aria-hidden": "true" }, line);
}
function toggle(name) {
  const button = make("button", {
    type: "button", class: "arm", "data-arm": name, "aria-pressed": String(!state.hidden.has(name)),
    onclick: () => {
      if (!state.hidden.delete(name)) state.hidden.add(name);
      for (const other of document.querySelectorAll("button.arm"))
        other.setAttribute("aria-pressed", String(!state.hidden.has(other.dataset.arm)));
      panels();
    },
  }, swatch(name), make("span", {}, name));
  return button;
}
const visible = () => data.arms.filter((arm) => !state.hidden.has(arm.name));

function head() {
  document.title = data.study;
  $("study").textContent = data.study;
  $("summary").textContent = data.summary;
  const notices = [...data.missing, ...data.warnings];
  $("notices").hidden = notices.length === 0;
  $("notices").replaceChildren(...notices.map((text) => make("p", { class: "notice" }, text)));
}

function table() {
  const order = [...data.arms];
  if (state.sort) {
    const sign = state.descending ? -1 : 1;
    const key = (arm) => { const cell = arm.cells[state.sort] ?? null; return Array.isArray(cell) ? cell[0] : cell; };
    order.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en"));
    });
  }
  const headings = data.columns.map((column) => make("th", {
    scope: "col", class: LEFT_KINDS.has(column.kind) ? "" : "number", title: column.meaning,
    "aria-sort": state.sort !== column.key ? "none" : state.descending ? "descending" : "ascending",
  }, make("button", {
    type: "button", "data-column": column.key,
    onclick: () => {
      state.descending = state.sort === column.key ? !state.descending : !LEFT_KINDS.has(column.kind);
      state.sort = column.key;
      table();
      $("verdicts").querySelector(`button[data-column="${CSS.escape(column.key)}"]`).focus();
    },
  }, column.label)));
  const rows = order.flatMap((arm) => {
    const open = state.open.has(arm.name);
    const arrow = make("button", {
      type: "button", "aria-expanded": String(open), "aria-label": `what ${arm.name} changes`,
      onclick: () => { if (!state.open.delete(arm.name)) state.open.add(arm.name); table(); },
    }, open ? "▾" : "▸");
    const cells = data.columns.map((column) => make("td",
      { class: LEFT_KINDS.has(column.kind) ? column.kind : "number", "data-word": column.key === "verdict" ? arm.cells.verdict : null }, shown(arm.cells[column.key], column.kind)));
    const row = make("tr", { "data-row": arm.name }, make("td", {}, arrow), make("td", {}, toggle(arm.name)), ...cells);
    return open ? [row, detail(arm)] : [row];
  });
  $("verdicts").replaceChildren(
    make("thead", {}, make("tr", {}, make("th", {}, ""), make("th", { scope: "col" }, "arm"), ...headings)),
    make("tbody", {}, ...rows));
}
function detail(arm) {
  const lines = arm.delta.map(([key, before, after]) => make("tr", { class: "delta" },
    make("td", {}, key), make("td", {}, before), make("td", {}, "→"), make("td", {}, after)));
  const runs = data.runs.filter((run) => run.arm === arm.name)
    .map((run) => make("p", { class: "quiet" }, `seed ${run.seed}: ${run.state}${run.reason ? ": " + run.reason : ""}`));
  const change = lines.length
    ? make("table", {}, make("tbody", {}, ...lines))
    : make("p", {}, "no difference from its baseline: it is one");
  const notes = arm.notes.map((text) => make("p", {}, text));
  return make("tr", { class: "detail" }, make("td", { colspan: data.columns.length + 2 }, ...notes, change, ...runs));
}

// curves
function points(run, panel, name) {
  const part = run[panel.source];
  const xs = part[state.axis], ys = part.values[name];
  if (!ys) return [];
  const found = [];
  for (let i = 0; i < xs.length; i++) if (ys[i] !== null && xs[i] !== null) found.push([xs[i], ys[i], part.step[i]]);
  return found;
}
function mean(runs, panel, name) {
  // only steps that every run of the arm has: the mean of fewer seeds is another mean
  const all = runs.map((run) => new Map(points(run, panel, name).map((point) => [point[2], point])));
  if (!all.length) return [];
  return [...all[0].keys()].filter((step) => all.every((one) => one.has(step))).map((step) => {
    const at = all.map((one) => one.get(step));
    const average = (i) => at.reduce((sum, point) => sum + point[i], 0) / at.length;
    return [average(0), average(1), step];
  });
}
function ticks(low, high) {
  const raw = (high - low) / 4 || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const found = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-9; t += step) found.push(Math.abs(t) < step * 1e-9 ? 0 : t);
  return found;
}
function short(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return +(value / 1e6).toPrecision(3) + "M";
  if (size >= 1e4) return +(value / 1e3).toPrecision(3) + "k";
  return size !== 0 && size < 1e-3 ? value.toExponential(0) : String(+value.toPrecision(4));
}

function figure(panel) {
  const curves = visible().flatMap((arm) => {
    const runs = data.runs.filter((run) => run.arm === arm.name);
    const whole = runs.filter((run) => run.state !== "failed");
    return panel.series.map((name, i) => ({
      arm: arm.name, name, ...style(arm.name), second: i > 0,
      seeds: runs.map((run) => ({ seed: run.seed, points: points(run, panel, name) })),
      mean: mean(whole.filter((run) => points(run, panel, name).length), panel, name),
    }));
  });
  const all = curves.flatMap((curve) => [...curve.mean, ...(state.seeds ? curve.seeds.flatMap((seed) => seed.points) : [])]);
  const caption = make("figcaption", {}, panel.title);
  if (!all.length) return make("figure", {}, caption, make("p", { class: "quiet" }, "nothing measured yet"));
  const range = (i) => all.reduce(([a, b], point) => [Math.min(a, point[i]), Math.max(b, point[i])], [Infinity, -Infinity]);
  let [x0, x1] = range(0), [y0, y1] = range(1);
  if (x1 === x0) x1 = x0 + 1;
  const pad = (y1 - y0) * 0.05 || Math.abs(y0) * 0.05 || 0.5;
  y0 -= pad; y1 += pad;
  const X = (x) => LEFT + (x - x0) / (x1 - x0) * (W - LEFT - RIGHT);
  const Y = (y) => H - BOTTOM - (y - y0) / (y1 - y0) * (H - TOP - BOTTOM);
  const grid = [
    ...ticks(y0, y1).flatMap((t) => [
      draw("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: Y(t), y2: Y(t) }),
      draw("text", { x: LEFT - 6, y: Y(t) + 4, "text-anchor": "end" }, short(t))]),
    ...ticks(x0, x1).map((t) => draw("text", { x: X(t), y: H - 8, "text-anchor": "middle" }, short(t))),
  ];
  const marks = state.axis !== "step" ? [] : data.marks.filter((s) => s >= x0 && s <= x1)
    .map((s) => draw("line", { class: "mark", x1: X(s), x2: X(s), y1: TOP, y2: H - BOTTOM }));
  const path = (list, attributes) => list.length === 1
    ? draw("circle", { cx: X(list[0][0]), cy: Y(list[0][1]), r: 2.5, fill: attributes.stroke })
    : draw("polyline", { class: "line", points: list.map((p) => `${X(p[0]).toFixed(1)},${Y(p[1]).toFixed(1)}`).join(" "), ...attributes });
  const lines = curves.flatMap((curve) => {
    const dash = curve.second ? "1 4" : curve.dash, common = { stroke: curve.colour, "stroke-dasharray": dash, "stroke-linecap": "round" };
    const thin = state.seeds ? curve.seeds.filter((s) => s.points.length).map((s) => path(s.points, { ...common, "stroke-width": 0.8, opacity: 0.55 })) : [];
    return curve.mean.length ? [...thin, path(curve.mean, { ...common, "stroke-width": 2.2, "data-curve": curve.arm })] : thin;
  });
  const flags = alarmsOf(panel).map(({ x, arm }) => draw("path", { class: "alarm", "data-alarm": arm, d: `M${X(x).toFixed(1)} ${H - BOTTOM - 7} l4 7 h-8 z` }));
  const cursor = draw("line", { class: "cursor", y1: TOP, y2: H - BOTTOM, visibility: "hidden" });
  const svg = draw("svg", { viewBox: `0 0 ${W} ${H}`, tabindex: 0, role: "img", "aria-label": `${panel.title}; arrow keys read the values` },
    ...grid, ...marks, ...lines, ...flags, cursor);
  read(svg, cursor, panel, curves, X);
  return make("figure", { "data-panel": panel.title }, caption, svg);
}
function alarmsOf(panel) {
  if (!state.alarms) return [];
  const arms = new Set(visible().map((arm) => arm.name));
  return data.runs.filter((run) => arms.has(run.arm)).flatMap((run) => run.alarms
    .filter((alarm) => panel.series.includes(alarm.signal) || (panel.all && !data.panels.some((other) => other.series.includes(alarm.signal))))
    .map((alarm) => ({ ...alarm, arm: run.arm, seed: run.seed, x: at(run, alarm.step) }))
    .filter((alarm) => alarm.x !== null));
}
function at(run, step) {
  if (state.axis === "step") return step;
  const { step: steps, [state.axis]: xs } = run.metrics;
  const i = steps.findIndex((s) => s >= step);
  return i < 0 ? null : xs[i];
}

// reading values: pointer or arrow keys move a cursor over the steps that were logged
function read(svg, cursor, panel, curves, X) {
  const known = new Map();
  for (const curve of curves) for (const point of [...curve.mean, ...curve.seeds.flatMap((seed) => seed.points)])
    if (!known.has(point[2])) known.set(point[2], point[0]);
  const steps = [...known.keys()].sort((a, b) => a - b);
  let place = -1;
  const show = (i, left, top) => {
    place = Math.max(0, Math.min(steps.length - 1, i));
    const step = steps[place], x = X(known.get(step));
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, x);
    cursor.setAttribute("visibility", "visible");
    tip(step, panel, curves, left, top);
  };
  const hide = () => { cursor.setAttribute("visibility", "hidden"); $("tip").hidden = true; };
  const nearest = (event) => {
    const box = svg.getBoundingClientRect(), wanted = (event.clientX - box.left) / box.width * W;
    let best = 0;
    steps.forEach((step, i) => { if (Math.abs(X(known.get(step)) - wanted) < Math.abs(X(known.get(steps[best])) - wanted)) best = i; });
    show(best, event.clientX, event.clientY);
  };
  svg.addEventListener("pointermove", nearest);
  svg.addEventListener("pointerdown", nearest);
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: place < 0 ? steps.length - 1 : place - 1, ArrowRight: place + 1, Home: 0, End: steps.length - 1 };
    if (event.key === "Escape") hide();
    if (!(event.key in moves)) return;
    event.preventDefault();
    const box = svg.getBoundingClientRect();
    show(moves[event.key], box.left + box.width / 2, box.top + box.height / 3);
  });
}
function tip(step, panel, curves, left, top) {
  const rows = curves.map((curve) => {
    const found = (list) => list.find((point) => point[2] === step);
    const average = found(curve.mean);
    const seeds = curve.seeds.map((seed) => found(seed.points)).filter(Boolean).map((point) => point[1]);
    if (!average && !seeds.length) return null;
    const spread = seeds.length > 1 ? ` [${shown(Math.min(...seeds))}, ${shown(Math.max(...seeds))}]` : "";
    const label = panel.series.length > 1 ? `${curve.arm} ${curve.name.split("/").pop()}` : curve.arm;
    return make("div", { class: "row" }, swatch(curve.arm), make("span", {}, label), make("span", {}, (average ? shown(average[1]) : "–") + spread));
  }).filter(Boolean);
  const gap = data.log_every || 1;
  const alarms = alarmsOf(panel).filter((alarm) => Math.abs(alarm.step - step) < gap)
    .map((alarm) => make("div", { class: "alarm" }, `▲ ${alarm.arm} seed ${alarm.seed}, step ${alarm.step}: ${alarm.message}`));
  const box = $("tip");
  box.replaceChildren(make("strong", {}, `step ${step}`), ...rows, ...alarms);
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = Math.max(4, left + 16 + width > innerWidth ? left - width - 16 : left + 16) + "px";
  box.style.top = Math.max(4, Math.min(top + 12, innerHeight - height - 4)) + "px";
}
function panels() {
  $("panels").replaceChildren(...data.panels.map(figure));
}
function legend() {
  $("legend").replaceChildren(...data.arms.map((arm) => toggle(arm.name)));
  $("caption").textContent = data.caption;
}

// samples
function samples() {
  const having = data.runs.filter((run) => run.samples.length);
  $("samples-section").hidden = having.length === 0;
  if (!having.length) return;
  const names = having.map((run) => `${run.arm}, seed ${run.seed}`);
  const last = names.findIndex((_, i) => having[i].arm !== having[0].arm && having[i].seed === having[0].seed);
  const pick = state.pick;
  pick.left ??= names[0];
  pick.right ??= names[Math.max(last, 0)];
  pick.step ??= "last";
  const choose = (key, label, options) => make("label", {}, label + " ", make("select", {
    "data-pick": key, onchange: (event) => { pick[key] = event.target.value; samples(); },
  }, ...options.map((text) => make("option", pick[key] === text ? { value: text, selected: "" } : { value: text }, text))));
  $("sample-controls").replaceChildren(choose("left", "left", names), choose("right", "right", names), choose("step", "evaluation", ["first", "last"]));
  const sides = [pick.left, pick.right].map((name) => {
    const run = having[Math.max(0, names.indexOf(name))];
    return run.samples[pick.step === "first" ? 0 : run.samples.length - 1];
  });
  const answers = new Map(sides[1].rows.map((row) => [row.prompt, row]));
  $("samples").replaceChildren(...sides[0].rows.map((row) => {
    const other = answers.get(row.prompt);
    const side = (found, name, step) => make("div", {}, make("p", { class: "quiet" }, `${name}, step ${step}`),
      found ? make("pre", { class: found.reward > 0.5 ? "right" : "wrong", dir: "auto" }, found.completion) : make("p", {}, "not asked"));
    return make("article", { class: "sample" },
      make("div", { class: "question" }, make("pre", { dir: "auto" }, row.prompt), make("p", { class: "quiet" }, `right answer: ${row.answer}`)),
      make("div", { class: "answers" }, side(row, pick.left, sides[0].step), side(other, pick.right, sides[1].step)));
  }));
}

function tables() {
  const cells = (tag, values) => make("tr", {}, ...values.map((value) => make(tag, {}, value)));
  $("tables").replaceChildren(...data.tables.map((table) => make("section", { "aria-label": table.title },
    make("h2", {}, table.title), make("p", { class: "quiet" }, table.note),
    make("div", { class: "scroll" }, make("table", {}, make("thead", {}, cells("th", table.columns)),
      make("tbody", {}, ...table.rows.map((row) => cells("td", row))))))));
}

// differences from the baseline with their intervals, the most helpful on top
function forest() {
  const plot = data.forest;
  if (!plot) return $("forest").replaceChildren();
  const rows = [...plot.rows].sort((a, b) => b.delta - a.delta);
  const values = rows.flatMap((row) => [row.lo, row.hi, ...row.seeds, row.resolves ?? 0, -(row.resolves ?? 0)]);
  const [x0, x1] = [Math.min(...values, -plot.margin) * 1.05, Math.max(...values, plot.margin) * 1.05];
  const longest = Math.max(...rows.map((row) => Math.min(row.arm.length, 34)));
  const width = innerWidth < 700 ? 420 : 760, left = 20 + 6.6 * longest, step = 26, height = rows.length * step + 34;
  const X = (x) => left + (x - x0) / (x1 - x0) * (width - left - 16);
  const floor = height - 24;
  const band = draw("rect", { class: "band", x: X(-plot.margin), width: X(plot.margin) - X(-plot.margin), y: 0, height: floor });
  const axis = ticks(x0, x1).flatMap((t) => [
    draw("line", { class: t === 0 ? "zero" : "grid", x1: X(t), x2: X(t), y1: 0, y2: floor }),
    draw("text", { x: X(t), y: height - 8, "text-anchor": "middle" }, (t > 0 ? "+" : "") + short(t))]);
  const marks = rows.flatMap((row, i) => {
    const y = i * step + step / 2 + 4, { colour } = style(row.arm);
    const line = (from, to, size) => draw("line", { x1: X(from), x2: X(to), y1: y, y2: y, stroke: colour, "stroke-width": size });
    const end = (x, size) => draw("line", { class: "resolves", x1: X(x), x2: X(x), y1: y - size, y2: y + size });
    return [
      draw("text", { class: "name", x: left - 10, y: y + 4, "text-anchor": "end" }, row.arm.length > 34 ? row.arm.slice(0, 33) + "…" : row.arm,
        draw("title", {}, `${row.arm}: ${row.verdict}`)),
      line(row.lo, row.hi, 3),
      ...(row.resolves ? [end(row.resolves, 5), end(-row.resolves, 5)] : []),
      ...row.seeds.map((x) => draw("circle", { cx: X(x), cy: y, r: 2.5, fill: "var(--ground)", stroke: colour })),
      draw("circle", { cx: X(row.delta), cy: y, r: 5, fill: colour }),
    ];
  });
  const told = rows.map((row) => `${row.arm}: ${row.delta.toFixed(1)}, from ${row.lo.toFixed(1)} to ${row.hi.toFixed(1)}`).join("; ");
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": told }, band, ...axis, ...marks);
  $("forest").replaceChildren(make("figure", { class: "forest" }, make("figcaption", {}, "Differences from the baseline"),
    make("div", { class: "scroll" }, svg), make("p", { class: "quiet" }, plot.caption)));
}

function theme() {
  const order = ["auto", "light", "dark"], signs = { auto: "◐", light: "☀", dark: "☾" };
  let now = "auto";
  $("theme").addEventListener("click", () => {
    now = order[(order.indexOf(now) + 1) % 3];
    if (now === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = now;
    $("theme").textContent = `${signs[now]} ${now}`;
    $("theme").setAttribute("aria-label", `Colours: ${now === "auto" ? "as the system" : now}`);
  });
}
function show() {
  state.seeds ??= data.arms.length <= 6;
  $("seeds").checked = state.seeds;
  head(); table(); forest(); legend(); panels(); samples(); tables();
}
$("axis").addEventListener("change", (event) => { state.axis = event.target.value; panels(); });
$("seeds").addEventListener("change", (event) => { state.seeds = event.target.checked; panels(); });
$("alarms").addEventListener("change", (event) => { state.alarms = event.target.checked; panels(); });
theme();
show();
if (data.live) {
  let last = $("data").textContent;
  setInterval(async () => {
    const answer = await fetch("data.json").catch(() => null);  // a server that was stopped: the page stays
    if (!answer || !answer.ok) return;
    const text = await answer.text();
    if (text === last) return;
    last = text; data = JSON.parse(text);
    show();
  }, 2000);
}
