function button(words, title, act) {
  const made = document.createElement("button");
  made.className = "jupyter-button lm-Widget";
  made.textContent = words;
  made.title = title;
  made.addEventListener("click", act);
  return made;
}
function render({ model, el }) {
  const draw = () => {
    const rows = model.get("rows").map(({ name, value }) => {
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
    undo.disabled = !model.get("undoable");
    head.append(words, undo);
    el.replaceChildren(head, ...rows);
  };
  draw();
  model.on("change:rows", draw);
  model.on("change:undoable", draw);
  return () => { model.off("change:rows", draw); model.off("change:undoable", draw); };
}
export default { render };
