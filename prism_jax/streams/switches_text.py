"""The texts of the population of switches: settings, and phrases for events, by domain and kind.

All phrases of a kind mean the same; `{setting}` is what is switched.
"""

from __future__ import annotations

SETTINGS = {
    "coding": ("client", "server", "worker"),
    "writing": ("glossary", "layout", "index"),
    "life": ("thermostat", "calendar", "alarm"),
}

PHRASES = {
    "coding": {
        "switch": ("The {setting} is switched.", "The {setting} is toggled."),
        "try": ("Runs the tests.", "Opens the app."),
        "rest": ("Goes to lunch.", "Locks the screen."),
    },
    "writing": {
        "switch": ("The {setting} is swapped.", "The {setting} is exchanged."),
        "try": ("Exports the draft.", "Prints a page."),
        "rest": ("Makes tea.", "Waters the plants."),
    },
    "life": {
        "switch": ("The {setting} is flipped.", "The {setting} is turned over."),
        "try": ("Checks the plan.", "Sets out for town."),
        "rest": ("Takes a nap.", "Reads a novel."),
    },
}
