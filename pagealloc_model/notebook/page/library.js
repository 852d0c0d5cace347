// promises of plotly, for which all pictures of a page wait, and of a picture that wants it
const library = (window.pageallocPlotly ??= (() => {
  let arrived, wanted;
  const ready = new Promise(resolve => { arrived = resolve; });
  const isWanted = new Promise(resolve => { wanted = resolve; });
  return { ready, arrived, isWanted, wanted };
})());
