"""The simulator's texts: phrases for events, by domain and kind, and texts for arrivals and responses.

All phrases of a kind mean the same; `{item}` is the item that the event is about. Different domains and personas share
hardly any words, so a student has to learn the meaning of each phrase.
"""

from __future__ import annotations

ITEMS = {
    "coding": ("parser.py", "schema.sql", "router.go", "cache.rs", "index.html"),
    "writing": ("the abstract", "chapter two", "the summary", "the cover letter", "the appendix"),
    "life": ("the oven", "the tax form", "the bike", "the flight", "the lease"),
}

PHRASES = {
    "coding": {
        "trouble": ("{item} fails two tests.", "{item} crashes."),
        "solved": ("{item} passes all tests.", "{item} works again."),
        "work": ("Extends {item}.", "Renames a variable in {item}."),
        "search": ("Searches the docs of {item}.", "Reads a thread about {item}."),
        "pause": ("Stares at {item}.", "Scrolls through {item}."),
        "undo": ("Reverts {item}.", "Deletes lines of {item}."),
        "mute": ("Mutes notifications.", "Enters focus mode."),
        "unmute": ("Unmutes notifications.", "Leaves focus mode."),
    },
    "writing": {
        "trouble": ("{item} comes back with red marks.", "{item} contradicts itself."),
        "solved": ("{item} is approved.", "{item} reads well at last."),
        "work": ("Drafts a part of {item}.", "Corrects a comma in {item}."),
        "search": ("Looks up a source for {item}.", "Consults the style guide on {item}."),
        "pause": ("Rereads {item} for minutes.", "Hovers over {item}."),
        "undo": ("Crosses out half of {item}.", "Restores an old version of {item}."),
        "mute": ("Closes the chat.", "Hangs up a sign: do not disturb."),
        "unmute": ("Reopens the chat.", "Takes the sign down."),
    },
    "life": {
        "trouble": ("{item}: a warning arrives.", "{item} goes wrong."),
        "solved": ("{item} is settled.", "{item} is ticked off."),
        "work": ("Makes a note on {item}.", "Sets a reminder for {item}."),
        "search": ("Asks the web about {item}.", "Compares reviews of {item}."),
        "pause": ("Keeps looking at {item}.", "Wonders about {item}."),
        "undo": ("Cancels a step of {item}.", "Takes back a choice on {item}."),
        "mute": ("Silences the phone.", "Starts a quiet hour."),
        "unmute": ("Turns the phone up.", "Ends the quiet hour."),
    },
}

ARRIVALS = {
    "newcomer": ("Signs up.", "Takes the guided tour."),
    "regular": ("Logs in as every day.", "Resumes the last session."),
    "expert": ("Loads custom shortcuts.", "Opens an own template library."),
}

OFFERS = {
    "coding": ("Debug {item}", "Explain the failing line of {item}"),
    "writing": ("Revise {item}", "Suggest a better order for {item}"),
    "life": ("Sort out {item}", "Draft a plan for {item}"),
}

PURPOSES = {"coding": "Code", "writing": "Text", "life": "Errand"}

WORKS = {"coding": "the code", "writing": "the text", "life": "the errand"}
"""What a user works on before any item is named."""
