async function render({ model, el }) {
  const channel = await channelOf(model);
  const draw = () => {
    const open = [...el.querySelectorAll("details")].map(each => each.open);
    el.innerHTML = latest(model, channel, "value");
    el.querySelectorAll("details").forEach((each, at) => { each.open = open[at] ?? each.open; });
  };
  draw();
  channel.on("change:value", draw);
  return () => channel.off("change:value", draw);
}
export default { render };
