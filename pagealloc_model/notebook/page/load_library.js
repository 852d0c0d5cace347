async function load(text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  await import(address).finally(() => URL.revokeObjectURL(address));
  return window.Plotly;
}
function initialize({ model }) {
  const text = model.get("source");
  // not waited for, and not before a picture's own code is there: anywidget gives up on what takes
  // two seconds, as plotly does on a busy machine. What fails once is asked for once more
  library.isWanted.then(() => load(text)).catch(() => load(text))
      .then(library.arrived, library.failed);
}
export default { initialize };
