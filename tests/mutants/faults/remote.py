"""Clients of other models, files and commands, teachers and judges."""

from faults.fault import Fault

REMOTE = (
    Fault(
        "budget-forgets-what-is-under-way",
        "remote/cache.py",
        "if self.spent + reserved + wanted <= self.budget:",
        "if self.spent + wanted <= self.budget:",
        "Concurrent requests together spend more than the budget.",
        ("remote/test_cache.py", "remote/test_client.py"),
    ),
    Fault(
        "redirect-to-another-port",
        "remote/transport.py",
        "if origin != target:",
        "if request.url.host != response.next_request.url.host:",
        "A redirect sends the API key to another server of the same host.",
        ("remote/test_hostile.py", "remote/test_secrecy.py"),
    ),
    Fault(
        "prompts-unredacted",
        "remote/client.py",
        "functools.lru_cache(maxsize=64)(in_prompt) if redact else str",
        "functools.lru_cache(maxsize=64)(str)",
        "E-mail addresses and keys of users are sent to the endpoint.",
        ("remote/test_secrecy.py",),
    ),
)

RUNTIME = (
    Fault(
        "present-files-pass",
        "runtime/digests.py",
        "_refuse(folder, changed_files(folder, digests, read), EXPORT)",
        "_refuse(folder, [name for name in read if not (folder / name).exists()], EXPORT)",
        "Changed files of an export are loaded.",
        ("runtime/test_digest_lists.py", "agent/test_exported.py"),
    ),
)

TEACHER_AND_JUDGES = (
    Fault(
        "text-calibrator-sees-its-stream",
        "labelling/teacher/text_fit.py",
        "train, held_out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)",
        "train, held_out = np.arange(len(fold)), np.flatnonzero(fold == number)",
        "The teacher's calibrated probabilities are too extreme.",
        ("labelling/teacher/test_text_calibrator.py",),
        vital=True,
    ),
    Fault(
        "accepted-silence-is-need",
        "labelling/judges/labelling.py",
        "need = None if silence is None else 1.0 - silence",
        "need = silence",
        "Steps at which silence is right are labelled as needing help.",
        ("labelling/judges/test_judging.py",),
        vital=True,
    ),
)
