"""The list of digests in a folder: which changes it finds, and how they are named."""

import hashlib
import json
import pathlib

import forked
import pytest
from etils import epath

from prism_jax.runtime.digests import check_export, check_folder, read_digests, sha256, write_digests


@pytest.fixture
def folder(tmp_path):
    path = epath.Path(tmp_path / "model")
    (path / "inner").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "inner/tokenizer.json"):
        (path / name).write_text(f"the content of {name}")
    write_digests(path)
    return path


def test_a_whole_folder_is_compared_and_the_line_says_so(folder):
    found = check_folder(folder)
    assert (found.files, found.sha256) == (3, hashlib.sha256((folder / "digests.json").read_bytes()).hexdigest())
    assert found.size == sum((folder / name).stat().length for name in read_digests(folder))
    assert str(found).startswith("compared 3 files (0.0 MiB) with digests.json in 0.0") and found.sha256 in str(found)
    assert check_folder(folder, found.sha256.upper()).sha256 == write_digests(folder) == found.sha256


def link(path, target):
    path.unlink(missing_ok=True)
    pathlib.Path(path).symlink_to(target)


def edit(change):
    def apply(folder):
        digests = json.loads((folder / "digests.json").read_text())
        change(digests)
        (folder / "digests.json").write_text(json.dumps(digests, indent=2) + "\n")

    return apply


CHANGED, MORE = "found a missing, changed or unlisted file", "found a file that digests.json does not list"
CHANGES = {
    "another byte": (lambda f: (f / "config.json").write_text("other"), f"config.json: {CHANGED}"),
    "in a folder": (lambda f: (f / "inner/tokenizer.json").write_text(""), f"inner/tokenizer.json: {CHANGED}"),
    "a lost file": (lambda f: (f / "model.safetensors").unlink(), f"model.safetensors: {CHANGED}"),
    "a device": (lambda f: link(f / "config.json", "/dev/zero"), f"config.json: {CHANGED}"),
    "a file more": (lambda f: (f / "vocab.json").write_text("{}"), f"vocab.json: {MORE}"),
    "a weight more": (lambda f: (f / "inner/x.safetensors").write_text(""), f"inner/x.safetensors: {MORE}"),
    "a folder more": (lambda f: link(f / "again", "."), f"again: {MORE}"),
    "a shorter list": (edit(lambda d: d.pop("model.safetensors")), f"model.safetensors: {MORE}"),
    "a longer list": (edit(lambda d: d.update({"x.json": "0" * 64})), f"x.json: {CHANGED}"),
    "no digest": (
        edit(lambda d: d.update({"config.json": 7})),
        "digests.json: config.json: found 7, expected a digest",
    ),
    "a path out": (edit(lambda d: d.update({"../x": "0" * 64})), "digests.json: found '../x', expected the name of a"),
    "a list": (lambda f: (f / "digests.json").write_text("[]"), "digests.json: found no object"),
    "white space": (
        lambda f: (f / "digests.json").write_bytes((f / "digests.json").read_bytes()[:-1] + b"\x0b"),
        "digests.json: found other bytes than its entries are written with",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_every_change_is_refused_and_named(folder, case):
    change, message = CHANGES[case]
    change(folder)
    with pytest.raises(ValueError, match=r"^.+$") as caught:
        check_folder(folder)
    assert str(caught.value).startswith(f"{folder}/{message}")


def test_documents_and_hidden_files_may_be_added_since_nothing_reads_them(folder):
    (folder / ".cache").mkdir()
    for name in ("README.md", "LICENSE", ".gitattributes", ".cache/x.json"):
        (folder / name).write_text("added")
    assert check_folder(folder).files == 3


def test_a_list_that_was_changed_with_its_file_is_found_by_its_own_digest_only(folder):
    before = check_folder(folder).sha256
    (folder / "config.json").write_text("other")
    write_digests(folder)
    check_folder(folder)
    with pytest.raises(ValueError, match=rf"digests.json: found the SHA-256 \w{{64}}, expected {before}: another"):
        check_folder(folder, before)


def test_weights_of_others_have_no_list_which_an_expected_digest_asks_for(folder, tmp_path):
    check_export(tmp_path)
    check_export("")
    check_export(folder)
    for path, found in ((tmp_path, f"no digests.json in {tmp_path}"), ("", "no weights")):
        with pytest.raises(ValueError, match=f"^--expect_digest: found {found}, expected a directory that"):
            check_export(path, "0" * 64)
    (folder / "digests.json").unlink()
    (folder / "prism.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"digests.json: no such file, .*: run `python -m prism_jax export`"):
        check_export(folder)


def flagged(command, config, *more):
    return forked.run("prism_jax", command, f"--config=configs/{config}", "--expect_digest=" + "0" * 64, *more)


@pytest.mark.slow
def test_commands_that_read_weights_refuse_another_export_than_expected_before_they_write(folder, tmp_path):
    (folder / "prism.json").write_text("{}")
    write_digests(folder)
    workdir = tmp_path / "run"
    for result in (
        flagged("probe", "probe_simulator.py", f"--config.states.weights={folder}", f"--workdir={workdir}"),
        flagged("evaluate", "quickstart.py", f"--config.training.start={folder}", f"--workdir={workdir}"),
    ):
        assert result.returncode == 1
        line = result.stderr.splitlines()[-1]
        assert line.startswith(f"error: {folder}/digests.json: found the SHA-256 "), line
        assert line.endswith(f"expected {'0' * 64}: another export")
    bad = forked.run("prism_jax.agent", "--model=x", "--input=-", "--expect_digest=abc")
    assert "expect_digest" in bad.stderr and "expected 64 hexadecimal digits" in bad.stderr
    assert not workdir.exists()


def test_several_files_have_the_digest_of_their_concatenation(tmp_path):
    one, two = epath.Path(tmp_path / "one"), epath.Path(tmp_path / "two")
    one.write_bytes(b"a" * 5_000_000)
    two.write_bytes(b"b")
    assert sha256(one, two) == hashlib.sha256(b"a" * 5_000_000 + b"b").hexdigest()
