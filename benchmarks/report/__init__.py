"""Shows results: lines with their targets, tables, charts, the page."""
