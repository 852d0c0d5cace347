"""Results as plain text that survives a mailing list: tables of at most 72 ASCII columns."""

from pagealloc_model.base.charts import ASCII, UTF8, Glyphs, bar_chart, histogram, time_series
from pagealloc_model.base.result_tables import Footer, comparison_table, error_table
from pagealloc_model.show.post.comparison_message import comparison_message, posted_figures
from pagealloc_model.show.post.message import Message
from pagealloc_model.show.post.tables import (
    choice_table,
    doctor_text,
    live_text,
    longest_hold_table,
    miss_list,
    snapshot_table,
    traffic_table,
)
from pagealloc_model.show.recording_text import describe_recording, recording_text, rule_table

__all__ = [
    "ASCII",
    "UTF8",
    "Footer",
    "Glyphs",
    "Message",
    "bar_chart",
    "choice_table",
    "comparison_message",
    "comparison_table",
    "describe_recording",
    "doctor_text",
    "error_table",
    "histogram",
    "live_text",
    "longest_hold_table",
    "miss_list",
    "posted_figures",
    "recording_text",
    "rule_table",
    "snapshot_table",
    "time_series",
    "traffic_table",
]
