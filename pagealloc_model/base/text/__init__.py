"""Plain text of at most 72 ASCII columns: tables and charts, rows in, text out."""
