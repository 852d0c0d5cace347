function button(words, title, act) {
  const made = document.createElement("button");
  made.className = "jupyter-button lm-Widget";
  made.textContent = words;
  made.title = title;
  made.addEventListener("click", act);
  return made;
}
async function render({ model, el }) {
  const channel = await channelOf(model);
  const draw = () => {
    const rows = latest(model, channel, "rows").map(({ name, value }) => {
      const row = document.createElement("div");
      row.className = "pagealloc-changed";
      const words = document.createElement("span");
      words.textContent = `${name} = ${value}`;
      row.append(words, button("as recorded", `give ${name} back`,
          () => model.send({ give_back: name })));
      row.lastChild.setAttribute("aria-label", `give back ${name}`);
      return row;
    });
    const head = document.createElement("div");
    head.className = "pagealloc-changed";
    const words = document.createElement("b");
    words.textContent = rows.length ? "changed" : "all as recorded";
    const undo = button("undo", "take the last change back", () => model.send({ undo: true }));
    undo.disabled = !latest(model, channel, "undoable");
    head.append(words, undo);
    el.replaceChildren(head, ...rows);
  };
  draw();
  channel.on("change:value", draw);
  return () => channel.off("change:value", draw);
}
export default { render };
