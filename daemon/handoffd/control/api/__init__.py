"""The JSON API as a table of endpoints: each is declared once, with its answer and its description."""
