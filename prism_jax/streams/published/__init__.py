"""Readers of what others have published or recorded, one per layout, and the table of them.

Contains: `table.py`, a line per source, with layout, licence and address; a module per layout, whose reader takes a
folder or a file and returns `Published`.
May not contain: downloads, models, prompts of our own (`prompts.py` reads the benchmark's). No text of the data is kept
in the repository; tests make their own.

A new source is a module with a reader, and a line of `SOURCES` in `table.py`.
"""
