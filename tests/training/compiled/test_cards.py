"""Each card is described as XLA's compiler expects, and its peaks are those of the data sheets."""

import re

import pytest

from prism_jax.training.compiled.cards import CARDS, PEAKS, UNDESCRIBED, card, peak

# Dense bfloat16 FLOP/s, bytes per second of memory and of NVLink in one direction, streaming multiprocessors, and
# compute capability, from NVIDIA's data sheets of the A100, the H100 SXM and the H200 SXM.
SHEETS = {
    "a100-40gb": (312e12, 1_555e9, 300e9, 108, (8, 0), 40),
    "a100-80gb": (312e12, 2_039e9, 300e9, 108, (8, 0), 80),
    "h100": (989e12, 3.35e12, 450e9, 132, (9, 0), 80),
    "h200": (989e12, 4.8e12, 450e9, 132, (9, 0), 141),
}


def fields(text):
    """Reads protocol-buffer text into nested dicts; fails for anything else, and for a field that occurs twice."""
    tokens = re.findall(r'"[^"]*"|\w+:|[{}]|[^\s{}:"]+', text)
    assert "".join(tokens) == re.sub(r'\s(?=(?:[^"]*"[^"]*")*[^"]*$)', "", text)

    def block(place, depth):
        found = {}
        while place < len(tokens) and tokens[place] != "}":
            name = tokens[place].removesuffix(":")
            assert re.fullmatch(r"[a-z_0-9]+", name) and name not in found, name
            if tokens[place + 1] == "{":
                found[name], place = block(place + 2, depth + 1)
            else:
                assert tokens[place].endswith(":"), name
                found[name], place = tokens[place + 1], place + 2
        assert (place < len(tokens)) == (depth > 0), "unbalanced braces"
        return found, place + 1

    return block(0, 0)[0]


def test_the_reader_of_descriptions_refuses_what_is_not_balanced():
    assert fields('a: 1 b { c: "x {y}" }') == {"a": "1", "b": {"c": '"x {y}"'}}
    for text in ("a: 1 b { c: 2", "a: 1 }", "a: 1 a: 2"):
        with pytest.raises(AssertionError):
            fields(text)


@pytest.mark.parametrize("target", CARDS)
def test_a_card_is_found_by_its_name_and_described_as_on_its_data_sheet(target):
    chip = card(target)
    assert chip is CARDS[target] and CARDS.keys() == SHEETS.keys()
    found = fields(chip.described(50 * 2**30))
    assert found["platform_name"] == '"CUDA"' and found["device_description_str"] == f'"{chip.name}"'
    device = found["gpu_device_info"]
    assert int(device["core_count"]) == SHEETS[target][3] and int(device["fpus_per_core"]) == chip.lanes
    assert int(device["memory_bandwidth"]) == chip.bandwidth and int(device["l2_cache_size"]) == chip.cache
    assert float(device["clock_rate_ghz"]) == chip.clock
    per_core, optional = int(device["shared_memory_per_core"]), int(device["shared_memory_per_block_optin"])
    assert per_core - optional == 1024 and optional > int(device["shared_memory_per_block"])  # CUDA reserves 1 KiB
    capability = device["cuda_compute_capability"]
    assert (int(capability["major"]), int(capability["minor"])) == SHEETS[target][4]
    assert capability["feature_extension"] == {8: "NONE", 9: "ACCELERATED_FEATURES"}[chip.capability[0]]
    rate, bandwidth, link, _, _, size = SHEETS[target]
    assert chip.flops == peak(chip.name) == rate and chip.link == link
    assert chip.bandwidth == pytest.approx(bandwidth, rel=1e-3)
    assert size * 10**9 < chip.memory <= size * 2**30  # the sizes that are sold are between these two units
    assert chip.name.startswith(f"NVIDIA {target.split('-')[0].upper()}")


@pytest.mark.parametrize("target", CARDS)
@pytest.mark.parametrize("limit", [2**30, 64 * 2**30 + 1, 85_100_068_864])
def test_four_fifths_of_the_described_memory_are_the_limit(target, limit):
    size = int(fields(CARDS[target].described(limit))["gpu_device_info"]["device_memory_size"])
    assert abs(size * 4 / 5 - limit) <= 1


@pytest.mark.parametrize("target", UNDESCRIBED)
def test_a_card_without_a_description_is_refused_with_another_way_to_plan_for_it(target):
    with pytest.raises(ValueError) as error:
        card(target)
    message = str(error.value)
    assert message.startswith(f"target: found {target!r}, which is not available: XLA has no description of this card")
    assert "--device_memory" in message and all(name in message for name in CARDS) and "\n" not in message
    assert target not in CARDS


@pytest.mark.parametrize("target", ["b200", "", "H100", "NVIDIA H100 80GB HBM3"])
def test_an_unknown_card_is_refused_with_the_known_ones(target):
    with pytest.raises(ValueError) as error:
        card(target)
    assert str(error.value) == f"target: found {target!r}, expected one of a100-40gb, a100-80gb, h100, h200"


def test_the_longest_matching_name_gives_the_peak():
    assert peak("NVIDIA A100-SXM4-80GB") == 312e12
    assert peak("NVIDIA H100 PCIe") == PEAKS["NVIDIA H100 PCIe"] != peak("NVIDIA H100 80GB HBM3")
    assert peak("TPU v5 lite") == PEAKS["TPU v5 lite"]
    assert peak("cpu") is None
