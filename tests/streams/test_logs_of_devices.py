"""KnowU-Bench's logs of phones and ActivityWatch's exports, on made-up miniatures of their layouts."""

import json

import pytest

from prism_jax.streams.jsonl import read_streams, write_streams
from prism_jax.streams.published.activitywatch import read_activitywatch
from prism_jax.streams.published.knowu import read_knowu

CLEAN = [
    {"time": "2026-03-01T07:00:10+08:00", "location": "Mill Lane", "action": "She stops the alarm.", "label": "signal"},
    {"time": "2026-03-01T09:30:00+08:00", "location": "Bus 7", "action": "She reads the news.", "label": "signal"},
]
NOISE = {"time": "2026-03-01T08:00:00+08:00", "location": "", "action": "An advert pops up.", "label": "noise"}


def logs(tmp_path, **files):
    folder = tmp_path / "src" / "knowu_bench" / "user_logs"
    folder.mkdir(parents=True)
    for name, entries in files.items():
        (folder / f"{name}.json").write_text(json.dumps(entries))
    return tmp_path


def test_a_noisy_twin_has_the_steps_of_its_log(tmp_path):
    entries = [entry | {"category": "SECRET"} for entry in CLEAN]
    found = read_knowu(logs(tmp_path, baker=entries, baker_noise_25pct=[entries[1], NOISE, entries[0]]))
    clean, noisy = found.streams
    assert [stream.id for stream in found.streams] == ["baker", "baker_noise_25pct"]
    assert {stream.persona for stream in found.streams} == {"baker"}
    assert [event.text for event in noisy.events] == [
        "She stops the alarm. Location: Mill Lane",
        "An advert pops up.",
        "She reads the news. Location: Bus 7",
    ]
    steps = [[stream.events[step.event] for step in stream.steps] for stream in found.streams]
    assert steps[0] == steps[1] == list(clean.events)
    assert clean.events[1].time - clean.events[0].time == 8990 and clean.events[0].time_text == CLEAN[0]["time"]
    write_streams(tmp_path / "out.jsonl", found.streams)
    assert "SECRET" not in (tmp_path / "out.jsonl").read_text()
    assert not found.dropped and not found.split


def test_a_folder_without_logs_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"found no logs of KnowU-Bench, expected files USER.json"):
        read_knowu(logs(tmp_path))


def clock(minutes):
    return f"2026-03-02T{8 + int(minutes // 60):02d}:{int(minutes % 60):02d}:{round(minutes % 1 * 60):02d}.000000+00:00"


def bucket(kind, *events, host="den"):
    logged = [{"timestamp": clock(start), "duration": 60 * (end - start), "data": one} for start, end, one in events]
    return {"id": kind, "type": kind, "client": "test", "hostname": host, "created": clock(0), "events": logged}


def window(app, title):
    return {"app": app, "title": title}


def export(tmp_path, *buckets):
    path = tmp_path / "aw-buckets-export.json"
    named = {f"{one['type']}_{number}": one for number, one in enumerate(buckets)}
    path.write_text(json.dumps({"buckets": named}))
    return path


def test_windows_tabs_and_pauses_of_a_host_become_stretches_of_work(tmp_path):
    windows = bucket(
        "currentwindow",
        (50, 60, window("Editor", "notes.txt")),  # stands open while the person is away: 52 to 58
        (0, 5, window("Editor", "notes.txt")),
        (5, 5.02, window("Files", "home")),
        (5.02, 6, window("Editor", "notes.txt")),
        (6, 9, window("Browser", "Tea - Browser")),
        (9, 10, window("", "")),
        (70, 100, window("Player", "A film")),
    )
    shown = {"url": "https://me:pass@example.org/tea?token=1#top", "title": "Tea", "incognito": False}
    tabs = bucket("web.tab.current", (6, 8, shown), (8, 9, {"url": "https://other.org", "title": "Milk"}))
    away = {"status": "afk"}
    presence = bucket("afkstatus", (0, 52, {"status": "not-afk"}), (52, 58, away), (70, 95, away))
    more = bucket("currentwindow", (51, 51.5, window("Clock", "")))  # of another watcher, within a window of the first
    other = bucket("currentwindow", (51, 60, window("Phone", "")), host="phone")
    editor = bucket("app.editor.activity", (0, 1, {"file": "notes.txt"}))
    found = read_activitywatch(export(tmp_path, windows, tabs, presence, more, other, editor))
    assert {stream.id: [event.text for event in stream.events] for stream in found.streams} == {
        "den:2026-03-02T08:00:00+00:00": ["Editor: notes.txt", "Browser: Tea - Browser (example.org/tea)"],
        "den:2026-03-02T08:50:00+00:00": ["Editor: notes.txt", "Clock", "Editor: notes.txt"],
        "den:2026-03-02T09:35:00+00:00": ["Player: A film"],
        "phone:2026-03-02T08:51:00+00:00": ["Phone"],
    }
    assert sorted(found.dropped.values()) == [1, 2]
    assert all(len(stream.steps) == len(stream.events) for stream in found.streams)
    write_streams(tmp_path / "out.jsonl", found.streams)
    assert read_streams(tmp_path / "out.jsonl") == found.streams
