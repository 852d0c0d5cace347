"""Results as plain text that survives a mailing list: tables of at most 72 ASCII columns."""

from pagealloc_model.numbers.result_tables import Footer as Footer
from pagealloc_model.numbers.result_tables import comparison_table as comparison_table
from pagealloc_model.numbers.result_tables import error_table as error_table
from pagealloc_model.show.post.comparison_message import comparison_message as comparison_message
from pagealloc_model.show.post.comparison_message import posted_figures as posted_figures
from pagealloc_model.show.post.message import Message as Message
from pagealloc_model.show.post.tables import doctor_text as doctor_text
from pagealloc_model.show.post.tables import live_text as live_text
from pagealloc_model.show.post.tables import snapshot_table as snapshot_table
from pagealloc_model.show.recording_text import describe_recording as describe_recording
from pagealloc_model.show.recording_text import recording_text as recording_text
