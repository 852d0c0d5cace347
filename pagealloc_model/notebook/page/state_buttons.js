async function render({ model, el }) {
  const channel = await channelOf(model);
  const now = name => latest(model, channel, name);
  el.style.display = "flex"; el.style.flexWrap = "wrap"; el.style.gap = "4px";
  const add = (words, title, act) => {
    const made = document.createElement("button");
    made.className = "jupyter-button lm-Widget";
    made.textContent = words; made.title = title; made.style.width = "auto";
    made.addEventListener("click", async () => {
      const told = await act();
      if (!told) return;
      made.textContent = told;
      setTimeout(() => { made.textContent = words; }, 1500);
    });
    el.append(made);
  };
  const copy = async text => { await navigator.clipboard.writeText(text); return "copied"; };
  add("Copy as Python", "code that asks for what is shown", () => copy(now("python")));
  add("Save state", "a file that restores what is shown", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([now("state")], { type: "application/json" }));
    link.download = `${now("name")}.explored.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  const file = document.createElement("input");
  file.type = "file"; file.accept = ".json"; file.hidden = true;
  file.setAttribute("aria-label", "a saved state");
  file.addEventListener("change", async () => {
    model.send({ restore: await file.files[0].text() });
    file.value = "";
  });
  el.append(file);
  add("Open state", "restore what was saved", () => { file.click(); });
  if (now("served")) add("Copy link", "an address that restores what is shown", () => {
    const here = new URL(location.href);
    here.searchParams.set("state", now("state"));
    here.searchParams.delete("token");
    return copy(here.href);
  });
}
export default { render };
