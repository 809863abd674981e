"""Bitcasts, in-place updates and asynchronous copies: what only looks like an array of its own is not counted."""

import pytest

from prism_jax.training.compiled.accounting import collectives, kernels, largest
from prism_jax.training.compiled.hlo import parse

ROW, ARRAY = 512 * 4, 512 * 512 * 4

SLICED = """\
%c (s: f32[512,512], n: s32[]) -> f32[1,512] {
  %s = f32[512,512]{1,0} parameter(0)
  %n = s32[] parameter(1)
  %b = f32[512,1,512]{2,1,0} bitcast(%s)
  %d = f32[1,1,512]{2,1,0} dynamic-slice(%b, %n, %n, %n), dynamic_slice_sizes={1,1,512}
  ROOT %e = f32[1,512]{1,0} bitcast(%d)
}
"""
UPDATED = """\
%c (s: f32[512,512], r: f32[1,512], n: s32[]) -> f32[512,512] {
  %s = f32[512,512]{1,0} parameter(0)
  %r = f32[1,512]{1,0} parameter(1)
  %n = s32[] parameter(2)
  %b = f32[512,1,512]{2,1,0} bitcast(%s)
  %q = f32[1,1,512]{2,1,0} bitcast(%r)
  %d = f32[512,1,512]{2,1,0} dynamic-update-slice(%b, %q, %n, %n, %n)
  ROOT %e = f32[512,512]{1,0} bitcast(%d)
}
"""
BOTH = UPDATED.replace("ROOT %e = f32[512,512]{1,0} bitcast(%d)", "ROOT %e = (f32[512,512], f32[1,512]) tuple(%d, %r)")


def program(*lines, others=""):
    body = "\n".join(f"  {line}" for line in lines)
    return parse(f"""{others}
ENTRY %main (x: f32[512,512]) -> f32[] {{
  %x = f32[512,512]{{1,0}} parameter(0)
  %n = s32[] parameter(1)
  %y = f32[1,512]{{1,0}} parameter(2)
{body}
  ROOT %z = f32[] constant(0)
}}
""")


def test_a_slice_of_a_bitcast_reads_a_row():
    (kernel,) = kernels(program("%f = f32[1,512]{1,0} fusion(%x, %n), kind=kLoop, calls=%c", others=SLICED))
    assert kernel.bytes == 2 * ROW + 4


def test_an_update_of_a_bitcast_writes_a_row_and_allocates_nothing():
    update = program("%f = f32[512,512]{1,0} fusion(%x, %y, %n), kind=kLoop, calls=%c", others=UPDATED)
    (kernel,) = kernels(update)
    assert kernel.bytes == 2 * ROW + 4
    assert largest(update) == []


def test_of_several_results_only_those_that_are_no_update_are_allocated():
    line = "%f = (f32[512,512]{1,0}, f32[1,512]{1,0}) fusion(%x, %y, %n), kind=kLoop, calls=%c"
    assert largest(program(line, others=BOTH)) == [(ROW, 1, "f32[1,512]", "f")]


@pytest.mark.parametrize("form", ["all-reduce", "all-reduce-start"])
def test_the_result_of_an_all_reduce_is_listed_in_both_forms(form):
    line = f"%s = f32[512,512]{{1,0}} {form}(%x), channel_id=1, replica_groups=[1,8]<=[8], to_apply=%add"
    assert largest(program(line)) == [(ARRAY, 1, "f32[512,512]", "s")]


def test_a_copy_to_the_host_and_back_moves_the_array_once_each_way():
    copies = program(
        "%out = (f32[512,512]{1,0:S(5)}, f32[512,512]{1,0}, u32[]) copy-start(%x)",
        "%there = f32[512,512]{1,0:S(5)} copy-done(%out)",
        "%in = (f32[512,512]{1,0}, f32[512,512]{1,0:S(5)}, u32[]) copy-start(%there)",
        "%here = f32[512,512]{1,0} copy-done(%in)",
    )
    assert [(one.bytes, one.host) for one in kernels(copies)] == [(2 * ARRAY, ARRAY)] * 2
    assert largest(copies) == [(ARRAY, 1, "f32[512,512]", "in")]


@pytest.mark.parametrize(
    ("during", "overlapped"),
    [
        ('%a = f32[4]{0:S(5)} custom-call(), custom_call_target="AllocateBuffer"', 0),
        ("%w = (f32[512,512]{1,0}) while(%x), condition=%c, body=%c", 1),
    ],
)
def test_an_allocation_hides_no_exchange_and_a_loop_hides_one(during, overlapped):
    start = "%s = (f32[512,512]{1,0}, f32[4096,512]{1,0}) all-gather-start(%x), channel_id=1, replica_groups=[1,8]<=[8]"
    exchange = program(start, during, "%d = f32[4096,512]{1,0} all-gather-done(%s)", others=SLICED)
    assert collectives(exchange, 8)["all-gather"].overlapped == overlapped
