// promises of plotly, for which all pictures of a page wait, and of a picture that wants it
const library = (window.pageallocPlotly ??= (() => {
  let arrived, failed, wanted;
  const ready = new Promise((resolve, reject) => { [arrived, failed] = [resolve, reject]; });
  const isWanted = new Promise(resolve => { wanted = resolve; });
  return { ready, arrived, failed, isWanted, wanted };
})());
