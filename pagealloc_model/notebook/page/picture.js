// colours on white -> colours on a dark ground; of maps too, whose faint blocks are nearly the ground
const ON_DARK = COLOURS_BY_LIGHT_ONE;
const NO_COLOURS = new Set(["x", "y", "z", "customdata", "text", "ticktext"]);
const OF_A_MAP = /^(map|marks)\//;
let is_printed = false;

function recoloured(value, pairs) {
  if (typeof value === "string") return pairs[value] ?? value;
  if (Array.isArray(value)) return value.map(each => recoloured(each, pairs));
  if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
  return Object.fromEntries(Object.entries(value).map(
      ([name, each]) => [name, NO_COLOURS.has(name) ? each : recoloured(each, pairs)]));
}

// a figure in the colours of the page's theme; paper is white
function inTheme({ data, layout }) {
  if (is_printed || document.body.dataset.jpThemeLight !== "false") return { data, layout };
  const traces = data.map(
      each => recoloured(each, OF_A_MAP.test(each.meta) ? ON_DARK.map : ON_DARK.figure));
  return { data: traces, layout: recoloured(layout, ON_DARK.figure) };
}

// calls back when the theme changes, and before and after the page is printed
function onTheme(redraw) {
  const theme = new MutationObserver(redraw);
  theme.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  const before = () => { is_printed = true; redraw(); };
  const after = () => { is_printed = false; redraw(); };
  window.addEventListener("beforeprint", before);
  window.addEventListener("afterprint", after);
  return () => {
    theme.disconnect();
    window.removeEventListener("beforeprint", before);
    window.removeEventListener("afterprint", after);
  };
}

const NOW = {
  mode: "immediate",
  transition: { duration: 0 },
  frame: { duration: 0, redraw: false },
};
// an axis stays as it is while what it shows takes up this share of it
const ROOMY = 0.6;

// a copy in which plotly finds coordinates as arrays; maps stay in its binary form
function unpacked(value) {
  if (Array.isArray(value)) return value.map(unpacked);
  if (value === null || typeof value !== "object") return value;
  if (value.bdata !== undefined && value.shape === undefined)
    return new Float64Array(Uint8Array.from(atob(value.bdata), each => each.charCodeAt(0)).buffer);
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, unpacked(each)]));
}

// keeps what is drawn up to date; what a page that starts late has missed is asked for as a whole
async function initialize({ model }) {
  const channel = await channelOf(model);
  const drawn = model.get("drawn");
  const ask = () => channel.send({ have: drawn.number });
  channel.on("msg:custom", told => {
    const { number, moves, notes, whole } = told;
    told.isMissed = !whole && number !== drawn.number + 1;
    if (told.isMissed) ask();
    else if (whole) Object.assign(drawn, whole);
    else {
      drawn.number = number;
      for (const [trace, moved] of moves) Object.assign(drawn.data[trace], moved);
      if (notes) drawn.layout.annotations = notes;
    }
  });
  ask();
}

// the least and the greatest number of traces along "x" or "y", as their axis has them
function reach(traces, letter, axis) {
  let [least, most] = [Infinity, -Infinity];
  for (const trace of traces)
    for (const each of trace[letter] ?? []) {
      if (typeof each !== "number" || Number.isNaN(each)) continue;
      const at = axis.type === "log" ? Math.log10(each) : each;
      if (!Number.isFinite(at)) continue;
      least = Math.min(least, at);
      most = Math.max(most, at);
    }
  return [least, most];
}

// whether an axis cuts off what its traces have, or has become far too long for it
function isLeft(plot, name) {
  const axis = plot.layout[name];
  if (axis.autorange === false || !axis.range) return false;  // set, or zoomed by the user
  const id = name.replace("axis", "");
  const on = plot.data.filter(trace => (trace[`${name[0]}axis`] ?? name[0]) === id);
  const [least, most] = reach(on, name[0], axis);
  const [begin, end] = [...axis.range].sort((one, other) => one - other);
  if (!(least <= most) || typeof begin !== "number") return false;
  // decades of counts, and what begins at zero, are shown from their axis's bottom on
  const isLog = axis.type === "log";
  const bottom = isLog || axis.rangemode === "tozero" ? Math.min(begin, least) : least;
  const isCut = most > end || (!isLog && least < begin);
  return isCut || most - bottom < ROOMY * (end - begin);
}

// what plotly has to be told of: what moved, and with it all bars of a panel; of other panels one
// trace of each type, as plotly empties those of which a frame names none
function named(plot, moved) {
  const numbers = plot.data.map((_, number) => number);
  const place = number => [plot.data[number].type, plot.data[number].xaxis].join();
  const size = number => plot.data[number].y?.length ?? 0;
  const chosen = new Set(moved);
  const touched = new Set(moved.map(place));
  for (const number of [...numbers].sort((one, other) => size(one) - size(other))) {
    if (plot.data[number].type === "scatter" && touched.has(place(number))) continue;
    touched.add(place(number));
    chosen.add(number);
  }
  return numbers.filter(number => chosen.has(number));
}

// lines and bars alone, the axes that they left, and notes
async function moveTraces(Plotly, plot, moves, notes) {
  if (moves.length) await moveAlone(Plotly, plot, moves);
  const axes = new Set(moves.flatMap(([number]) => ["x", "y"].map(
      letter => plot.data[number][`${letter}axis`]?.replace(letter, `${letter}axis`))));
  const left = [...axes].filter(name => name && plot.layout[name] && isLeft(plot, name));
  const changes = Object.fromEntries(left.map(name => [`${name}.autorange`, true]));
  if (notes) changes.annotations = notes;
  if (Object.keys(changes).length) await Plotly.relayout(plot, changes);
}

async function moveAlone(Plotly, plot, moves) {
  const moved_by_number = new Map(moves);
  const traces = named(plot, [...moved_by_number.keys()]);
  const frame = { data: traces.map(number => moved_by_number.get(number) ?? {}), traces };
  // the promise that animate returns waits for one more frame
  const moved = new Promise(resolve => plot.once("plotly_transitioned", resolve));
  Plotly.animate(plot, frame, NOW);
  await moved;
}

async function render({ model, el }) {
  const plot = document.createElement("div");
  const words = document.createElement("div");
  words.setAttribute("role", "status");
  words.textContent = "The picture is on its way ...";
  el.append(words, plot);
  const fail = error => {
    el.prepend(words);
    words.setAttribute("role", "alert");
    words.textContent = `The picture could not be drawn (${error}). Run the cell again.`;
  };
  try {
    const end = await draw({ model, plot, fail });
    words.remove();
    return end;
  } catch (error) { fail(error); }
}

async function draw({ model, plot, fail }) {
  const channel = await channelOf(model);
  library.wanted();
  const Plotly = await library.ready;
  const whole = () => inTheme(unpacked(model.get("drawn")));
  const { data, layout } = whole();
  let last = Plotly.newPlot(plot, data, layout);
  plot.on("plotly_selected", selected => {
    if (!selected?.range?.x) return;
    model.set("brushed", selected.range.x);
    model.save_changes();
  });
  const then = step => {
    performance.mark("pagealloc-picture-received");
    last = last.then(step).then(() => performance.mark("pagealloc-picture-drawn")).catch(fail);
  };
  const drawWhole = () => {
    const { data, layout } = whole();
    return Plotly.react(plot, data, layout);
  };
  const redraw = () => then(drawWhole);
  const move = ({ moves, notes, in_place, isMissed }) => {
    if (isMissed) return;
    const isAnyHidden = plot.data.some(trace => trace.visible === "legendonly");
    const inColours = notes && whole().layout.annotations;
    if (!in_place || isAnyHidden) redraw();
    else then(() => moveTraces(Plotly, plot, unpacked(moves), inColours));
  };
  channel.on("msg:custom", move);
  const room = new ResizeObserver(() => {
    const width = plot.clientWidth;
    if (width && plot._fullLayout && width !== plot._fullLayout.width)
      last = last.then(() => Plotly.Plots.resize(plot));
  });
  room.observe(plot);
  await last;
  const forgetTheme = onTheme(drawWhole);  // at once: a printer does not wait
  return () => {
    forgetTheme();
    room.disconnect();
    channel.off("msg:custom", move);
    Plotly.purge(plot);
  };
}
export default { initialize, render };
