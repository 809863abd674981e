"""The list of seeded faults agrees with the code and the tests that it names."""

import collections

from faults import FAULTS


def test_every_fault_changes_code_that_occurs_once(root):
    counts = {}
    for fault in FAULTS:
        path = root / "prism_jax" / fault.path
        counts[fault.name, fault.path] = path.read_text(encoding="utf-8").count(fault.old) if path.is_file() else 0
    assert [place for place, count in counts.items() if count != 1] == []


def test_every_fault_names_tests_that_exist(root):
    assert [
        (fault.name, name) for fault in FAULTS for name in fault.tests if not (root / "tests" / name).is_file()
    ] == []


def test_every_fault_has_a_name_of_its_own():
    assert collections.Counter(fault.name for fault in FAULTS).most_common(1)[0][1] == 1
