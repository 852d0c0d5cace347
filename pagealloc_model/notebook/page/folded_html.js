function render({ model, el }) {
  const draw = () => {
    const open = [...el.querySelectorAll("details")].map(each => each.open);
    el.innerHTML = model.get("value");
    el.querySelectorAll("details").forEach((each, at) => { each.open = open[at] ?? each.open; });
  };
  draw();
  model.on("change:value", draw);
  return () => model.off("change:value", draw);
}
export default { render };
