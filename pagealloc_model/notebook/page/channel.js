// the model by which a widget is told of changes: anywidget drops what is sent to a late one of its own
function channelOf(model) {
  return model.widget_manager.get_model(model.get("channel").replace("IPY_MODEL_", ""));
}
// a trait as it is now
function latest(model, channel, name) {
  const told = channel.get("value");
  return told ? JSON.parse(told)[name] : model.get(name);
}
