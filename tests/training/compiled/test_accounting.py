"""What a program does, against arithmetic by hand and XLA's own count: products, exchanges, kernels, large arrays."""

import functools
import itertools

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.training.compiled.accounting import (
    KINDS,
    Collective,
    FusedAttention,
    Kernel,
    collectives,
    dots,
    fused_attention,
    group_size,
    kernels,
    largest,
)
from prism_jax.training.compiled.hlo import parse


def program(*lines, others=""):
    """A program whose entry has these instructions; arguments %x (1 MiB), %y (512 bytes) and %n."""
    arguments = ("%x = f32[512,512]{1,0} parameter(0)", "%y = f32[128]{0} parameter(1)", "%n = s32[] parameter(2)")
    body = "\n".join(f"  {line}" for line in (*arguments, *lines))
    return parse(f"{others}\nENTRY %main (x: f32[512,512], y: f32[128], n: s32[]) -> f32[] {{\n{body}\n}}\n")


def loop(*lines, trips, others=""):
    """A program that runs instructions over %x, %y and %n in a loop."""
    pair = "(f32[512,512], f32[128], s32[])"
    parts = [
        f"%{name} = {kind} get-tuple-element(%t), index={place}"
        for place, (name, kind) in enumerate((("x", "f32[512,512]{1,0}"), ("y", "f32[128]{0}"), ("n", "s32[]")))
    ]
    body = "\n".join(f"  {line}" for line in (f"%t = {pair} parameter(0)", *parts, *lines))
    known = f'backend_config={{"known_trip_count":{{"n":"{trips}"}}}}'
    return program(
        f"%start = {pair} tuple(%x, %y, %n)",
        f"ROOT %while = {pair} while(%start), condition=%more, body=%body, {known}",
        others=f"{others}\n%body (t: {pair}) -> {pair} {{\n{body}\n}}\n",
    )


@pytest.mark.parametrize(
    ("groups", "size"),
    [
        ("replica_groups={{0,1},{2,3}}, dimensions={0}", 2),
        ("replica_groups={{0,1,2,3,4,5,6,7}}", 8),
        ("replica_groups={{0},{1}}", 1),
        ("channel_id=1, replica_groups={}, to_apply=%add", 8),
        ("replica_groups=[2,4]<=[8], use_global_device_ids=true", 4),
        ("replica_groups=[4,2]<=[2,4]T(1,0)", 2),
        ("replica_groups=[1,8]<=[8]", 8),
        ("replica_groups=mesh['axis_0'=1,'axis_1'=4,'axis_2'=2] {'axis_2'}", 2),
        ("replica_groups=mesh['axis_0'=1,'axis_1'=4,'axis_2'=2], device_ids=([2,4]T(1,0)) {'axis_1'}", 4),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=2,'axis_2'=2], device_ids=([2,4]T(1,0)) {'axis_0','axis_2'}", 4),
        ("replica_groups=mesh['axis_0'=8] {'axis_0':(2)2}, dimensions={0}", 2),
        ("replica_groups=mesh['axis_0'=8,'axis_1'=3] {'axis_0':(1)4,'axis_1'}", 12),
        ("channel_id=73, source_target_pairs={{0,1},{1,0}}", 8),
    ],
)
def test_groups_are_read_in_every_form_that_xla_prints(groups, size):
    assert group_size(f', channel_id=1, {groups}, metadata={{op_name="jit(step)/mul"}}', 8) == size


def test_groups_in_another_form_are_refused():
    with pytest.raises(ValueError, match=r"^program: found no replica groups in '.*axis 0'"):
        group_size("replica_groups=axis 0", 8)


@given(data=st.integers(1, 4), fsdp=st.integers(1, 4), tensor=st.integers(1, 4), of=st.sets(st.integers(0, 2)))
def test_a_group_over_axes_of_a_mesh_has_as_many_devices_as_the_axes(data, fsdp, tensor, of):
    sizes = (data, fsdp, tensor)
    mesh = ",".join(f"'axis_{axis}'={size}" for axis, size in enumerate(sizes))
    axes = ",".join(f"'axis_{axis}'" for axis in sorted(of))
    members = list(itertools.product(*(range(sizes[axis]) for axis in of)))
    assert group_size(f"replica_groups=mesh[{mesh}] {{{axes}}}", data * fsdp * tensor) == len(members)


FULL = 512 * 512 * 4
# One exchange of the full array or of an eighth of it, as XLA prints it: result, operand, and the type of the start.
EXCHANGES = {
    "all-gather": ("f32[4096,512]{1,0}", "(f32[512,512]{1,0}, f32[4096,512]{1,0})", 8 * FULL, 7 / 8),
    "reduce-scatter": ("f32[64,512]{1,0}", "(f32[512,512]{1,0}, f32[64,512]{1,0})", FULL, 7 / 8),
    "all-reduce": ("f32[512,512]{1,0}", "f32[512,512]{1,0}", FULL, 2 * 7 / 8),
    "all-to-all": ("f32[512,512]{1,0}", "((f32[512,512]{1,0}), f32[512,512]{1,0})", FULL, 7 / 8),
    "collective-permute": ("f32[512,512]{1,0}", "(f32[512,512]{1,0}, f32[512,512]{1,0})", FULL, 1.0),
}
GROUPS = "channel_id=1, replica_groups=mesh['axis_0'=8,'axis_1'=1] {'axis_0'}, dimensions={0}"
PAIRS = "channel_id=1, source_target_pairs={{0,1},{1,2},{2,0}}"
WORK = "%work = f32[128]{0} fusion(%y), kind=kLoop, calls=%square"
SQUARE = """\
%square (p: f32[128]) -> f32[128] {
  %p = f32[128]{0} parameter(0)
  ROOT %pp = f32[128]{0} multiply(%p, %p)
}
"""


def exchange(kind, form, during=()):
    """The lines of an exchange: at once, or with other instructions during it."""
    result, start, _, _ = EXCHANGES[kind]
    groups = PAIRS if kind == "collective-permute" else GROUPS
    if form == "at once":
        return [f"%e = {result} {kind}(%x), {groups}", *during]
    config = 'backend_config={"collective_backend_config":{"is_sync":%s}}' % ("true" if form == "sync" else "false")
    return [f"%s = {start} {kind}-start(%x), {groups}, {config}", *during, f"%e = {result} {kind}-done(%s)"]


@pytest.mark.parametrize("form", ["at once", "sync", "async"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_ring_sends_all_but_one_share_of_the_full_array(kind, form):
    _, _, size, share = EXCHANGES[kind]
    found = collectives(program(*exchange(kind, form)), 8)
    assert found == {kind: Collective(kind, 1, size, size * share, 0, size * share)}


@pytest.mark.parametrize("kind", KINDS)
def test_exchanges_count_as_often_as_their_loop_runs(kind):
    _, _, size, share = EXCHANGES[kind]
    found = collectives(loop(*exchange(kind, "async", [WORK]), trips=5, others=SQUARE), 8)
    assert found == {kind: Collective(kind, 5, 5 * size, 5 * size * share, 5, 0.0)}


@pytest.mark.parametrize(
    ("form", "during", "hidden"),
    [
        ("async", [WORK], True),
        ("async", ["%b = f32[512,512]{1,0} bitcast(%x)", WORK], True),
        ("async", ['%c = f32[128]{0} custom-call(%y), custom_call_target="__cudnn$fmhaSoftmax"'], True),
        ("async", ["%d = f32[512,512]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"], True),
        ("async", ["%b = f32[512,512]{1,0} bitcast(%x)"], False),
        ("async", [], False),
        ("sync", [WORK], False),
        ("at once", [WORK], False),
    ],
)
def test_an_exchange_is_exposed_unless_a_kernel_runs_during_it(form, during, hidden):
    after = WORK.replace("%work", "%later")  # what runs after the end hides nothing
    found = collectives(program(*exchange("all-gather", form, during), after, others=SQUARE), 8)["all-gather"]
    assert (found.overlapped, found.exposed) == ((1, 0.0) if hidden else (0, found.wire))


def test_exchanges_of_several_arrays_and_kinds_are_summed():
    several = (
        "%s = ((f32[512,512]{1,0}, f32[128]{0}), (f32[4096,512]{1,0}, /*index=5*/f32[1024]{0})) "
        f"all-gather-start(%x, %y), {GROUPS}"
    )
    second = exchange("all-gather", "at once")
    found = collectives(program(several, *second, exchange("all-reduce", "at once")[0].replace("%e", "%f")), 8)
    size = 8 * (FULL + 512) + 8 * FULL
    assert found["all-gather"] == Collective("all-gather", 2, size, size * 7 / 8, 0, size * 7 / 8)
    assert found.keys() == {"all-gather", "all-reduce"}


def test_one_device_sends_nothing():
    assert collectives(program(WORK, others=SQUARE), 1) == {}
    alone = program("%e = f32[512,512]{1,0} all-reduce(%x), replica_groups={}, to_apply=%add")
    assert collectives(alone, 1) == {"all-reduce": Collective("all-reduce", 1, FULL)}


PLAIN = {"xla_cpu_experimental_ynn_fusion_type": ""}  # leaves products outside of fusions


@functools.cache
def compiled(function, *sizes, options=()):
    arguments = [jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes]
    return jax.jit(function, compiler_options=dict(options)).lower(*arguments).compile()


def product(x, w):
    return jnp.einsum("...ij,...jk->...ik", x, w)


@pytest.mark.parametrize("options", [(), tuple(PLAIN.items())])
@pytest.mark.parametrize("sizes", [((16, 32), (32, 48)), ((3, 16, 32), (3, 32, 48)), ((200, 8), (8, 24))])
def test_products_count_as_xla_counts_them_inside_fusions_and_outside(sizes, options):
    done = compiled(product, *sizes, options=options)
    found = parse(done.as_text())
    kinds = {one.op for one, _, _ in found.run()}
    assert ("fusion" if not options else "dot") in kinds
    assert dots(found) == done.cost_analysis()["flops"] > 0


def chain(x, weights):
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0].sum()


def test_products_in_a_scan_count_as_often_as_it_iterates():
    sizes = ((16, 32), (5, 32, 32))
    once = 2 * 16 * 32 * 32
    assert dots(parse(compiled(chain, *sizes).as_text())) == 5 * once
    # Each iteration has the gradients of both operands, too; those of the first input are not requested.
    gradient = jax.grad(chain, argnums=1)
    assert dots(parse(compiled(gradient, *sizes).as_text())) == 5 * 3 * once


def test_calls_of_cublas_are_products():
    config = (
        'backend_config={"gemm_backend_config":{"alpha_real":1,"dot_dimension_numbers":{"lhs_contracting_dimensions":'
        '["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}'
    )
    call = "%d = (f32[512,64]{1,0}, s8[4194304]{0}) custom-call(%x, %w)"
    weights = "%w = f32[512,64]{1,0} slice(%x), slice={[0:512], [0:64]}"
    for target in ("__cublas$gemm", "__cublas$lt$matmul"):
        lines = (weights, f'{call}, custom_call_target="{target}", {config}')
        assert dots(program(*lines)) == 2 * 512 * 512 * 64
        assert dots(loop(*lines, trips=7)) == 7 * 2 * 512 * 512 * 64
    assert dots(program(weights, f'{call}, custom_call_target="cub::sort", {config}')) == 0


def attention(kind, mask, rows=2, heads=4, queries=32, keys=64, width=16):
    """A call of cuDNN's attention; its results are wider than their contents only in the workspace at the end."""
    results = f"(bf16[{rows},{heads},{queries},{width}]{{3,1,2,0}}, f32[{rows},{heads},{queries}]{{2,1,0}}, u8[0]{{0}})"
    return (
        f'%a = {results} custom-call(%x, %x, %x), custom_call_target="__cudnn$fmha{kind}", '
        'backend_config={"operation_queue_id": "0", "cudnn_fmha_backend_config": {"algorithm": {"algo_id": "0", '
        '"tuning_knobs": {"17": "1"}}, "intermediate_tensor_shape": {"element_type": "BF16", "dimensions": '
        f'["{rows}", "{heads}", "{queries}", "{keys}"], "layout": {{"minor_to_major": ["3", "2", "1", "0"]}}}}, '
        f'"is_flash_attention": true, "mask_type": "{mask}"}}}}'
    )


@pytest.mark.parametrize(
    ("kind", "mask", "products", "calls"),
    [
        ("Softmax", "NO_MASK", 2.0, (1, 0)),
        ("Softmax", "CAUSAL", 1.0, (1, 0)),
        ("ScaleBiasSoftmax", "NO_MASK", 2.0, (1, 0)),
        ("SoftmaxBackward", "NO_MASK", 5.0, (0, 1)),
        ("ScaleBiasSoftmaxBackward", "CAUSAL", 2.5, (0, 1)),
    ],
)
def test_fused_attention_has_two_products_forward_and_five_backward_and_half_if_causal(kind, mask, products, calls):
    one = 2 * (2 * 4) * 32 * 64 * 16
    assert fused_attention(program(attention(kind, mask))) == FusedAttention(*calls, products * one)
    inside = loop(attention(kind, mask), trips=3)
    assert fused_attention(inside) == FusedAttention(3 * calls[0], 3 * calls[1], 3 * products * one)
    assert dots(inside) == 0 and [kernel.flops for kernel in kernels(inside)] == [3 * products * one]


def test_forward_and_backward_calls_are_summed():
    both = program(attention("Softmax", "CAUSAL"), attention("SoftmaxBackward", "CAUSAL").replace("%a", "%b"))
    assert fused_attention(both) == FusedAttention(1, 1, (1 + 2.5) * 2 * (2 * 4) * 32 * 64 * 16)
    assert fused_attention(program(WORK, others=SQUARE)) == FusedAttention()


SLICES = """\
%updating (s: f32[512,512], r: f32[128], n: s32[]) -> f32[512,512] {
  %s = f32[512,512]{1,0} parameter(0)
  %r = f32[128]{0} parameter(1)
  %n = s32[] parameter(2)
  %row = f32[1,128]{1,0} bitcast(%r)
  ROOT %u = f32[512,512]{1,0} dynamic-update-slice(%s, %row, %n, %n)
}

%slicing (s.1: f32[512,512], n.1: s32[]) -> f32[1,512] {
  %s.1 = f32[512,512]{1,0} parameter(0)
  %n.1 = s32[] parameter(1)
  %cut = f32[1,512]{1,0} dynamic-slice(%s.1, %n.1, %n.1), dynamic_slice_sizes={1,512}
  ROOT %negative = f32[1,512]{1,0} negate(%cut)
}

%both (s.2: f32[512,512], n.2: s32[]) -> (f32[512,512], f32[1,512]) {
  %s.2 = f32[512,512]{1,0} parameter(0)
  %n.2 = s32[] parameter(1)
  %zero = f32[] constant(0)
  %line = f32[1,512]{1,0} broadcast(%zero), dimensions={}
  %u.2 = f32[512,512]{1,0} dynamic-update-slice(%s.2, %line, %n.2, %n.2)
  ROOT %pair = (f32[512,512]{1,0}, f32[1,512]{1,0}) tuple(%u.2, %line)
}

%reading (s.3: f32[512,512], n.3: s32[]) -> f32[512,512] {
  %s.3 = f32[512,512]{1,0} parameter(0)
  %n.3 = s32[] parameter(1)
  %cut.3 = f32[1,512]{1,0} dynamic-slice(%s.3, %n.3, %n.3), dynamic_slice_sizes={1,512}
  %wide = f32[512,512]{1,0} broadcast(%cut.3), dimensions={0,1}
  ROOT %sum = f32[512,512]{1,0} add(%s.3, %wide)
}
"""
UPDATE = "%u = f32[512,512]{1,0} fusion(%x, %y, %n), kind=kLoop, calls=%updating"
SLICE = "%s = f32[1,512]{1,0} fusion(%x, %n), kind=kLoop, calls=%slicing"
ROW = 512 * 4


@pytest.mark.parametrize(
    ("line", "touched"),
    [
        (WORK, 2 * 512),
        (UPDATE, 512 + 512 + 4),  # reads the row and the index, writes the row
        (SLICE, ROW + ROW + 4),
        ("%b = (f32[512,512]{1,0}, f32[1,512]{1,0}) fusion(%x, %n), kind=kLoop, calls=%both", 4 + 2 * ROW),
        ("%r = f32[512,512]{1,0} fusion(%x, %n), kind=kLoop, calls=%reading", 2 * FULL + 4),  # reads all of it
        ("%u = f32[512,512]{1,0} dynamic-update-slice(%x, %y, %n, %n)", 2 * 512),
        ("%s = f32[1,512]{1,0} dynamic-slice(%x, %n, %n), dynamic_slice_sizes={1,512}", 2 * ROW),
        ("%c = f32[512,512]{0,1} copy(%x)", 2 * FULL),
        ("%d = f32[512,512]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}", 3 * FULL),
    ],
)
def test_a_kernel_moves_the_bytes_that_it_touches(line, touched):
    for inside, times in ((program(line, others=SQUARE + SLICES), 1), (loop(line, trips=6, others=SQUARE + SLICES), 6)):
        [found] = kernels(inside)
        assert (found.bytes, found.host) == (times * touched, 0)


def test_what_moves_nothing_is_no_kernel():
    lines = [
        "%b = f32[262144]{0} bitcast(%x)",
        "%t = (f32[512,512]{1,0}, f32[128]{0}) tuple(%x, %y)",
        "%g = f32[128]{0} get-tuple-element(%t), index=1",
        '%room = f32[512,512]{1,0:S(5)} custom-call(), custom_call_target="AllocateBuffer"',
        *exchange("all-reduce", "async"),
    ]
    assert list(kernels(program(*lines))) == []


HOST = """\
%fetching (s: f32[512,512], n: s32[]) -> f32[1,512] {
  %s = f32[512,512]{1,0:S(5)} parameter(0)
  %n = s32[] parameter(1)
  ROOT %cut = f32[1,512]{1,0} dynamic-slice(%s, %n, %n), dynamic_slice_sizes={1,512}
}

%storing (s.1: f32[512,512], r.1: f32[128], n.1: s32[]) -> f32[512,512] {
  %s.1 = f32[512,512]{1,0:S(5)} parameter(0)
  %r.1 = f32[128]{0} parameter(1)
  %n.1 = s32[] parameter(2)
  ROOT %u.1 = f32[512,512]{1,0:S(5)} dynamic-update-slice(%s.1, %r.1, %n.1, %n.1)
}
"""


@pytest.mark.parametrize(
    ("line", "done", "copied"),
    [
        (
            "%f = ((f32[512,512]{1,0:S(5)}, s32[]), f32[1,512]{1,0}, u32[]) fusion-start(%h, %n), kind=kCustom, "
            "calls=%fetching",
            "%g = f32[1,512]{1,0} fusion-done(%f)",
            ROW,
        ),
        (
            "%f = ((f32[512,512]{1,0:S(5)}, f32[128]{0}, s32[]), f32[512,512]{1,0:S(5)}, u32[]) "
            "fusion-start(%h, %y, %n), kind=kCustom, calls=%storing",
            "%g = f32[512,512]{1,0:S(5)} fusion-done(%f)",
            512,
        ),
    ],
)
def test_copies_to_and_from_the_host_are_the_slices_that_move(line, done, copied):
    room = '%h = f32[512,512]{1,0:S(5)} custom-call(), custom_call_target="AllocateBuffer"'
    [found] = kernels(program(room, line, done, others=HOST))
    assert found == Kernel(0, 2 * copied + 4, copied + 2)  # half of what is read and written, with the index


def test_large_arrays_are_those_of_neither_arguments_nor_results_nor_updates():
    name = 'metadata={op_name="jit(step)/mul"}'
    lines = [
        f"%a = f32[512,512]{{1,0}} multiply(%x, %x), {name}",
        f"%b = f32[512,512]{{1,0}} multiply(%x, %a), {name}",
        "%small.7 = f32[256]{0} slice(%y), slice={[0:256]}",
        UPDATE.replace("%x", "%a"),
        "%w = f32[512,512]{1,0} dynamic-update-slice(%u, %y, %n, %n)",
        "%away = f32[512,512]{1,0:S(5)} copy(%b)",
        *exchange("all-gather", "async"),
        "%returned = f32[1024,1024]{1,0} multiply(%a, %b)",
        "%flat = f32[1048576]{0} bitcast(%returned)",
        "ROOT %results = (f32[1048576]{0}, f32[512,512]{1,0}) tuple(%flat, %x)",
    ]
    found = largest(program(*lines, others=SLICES))
    assert found == [
        (8 * FULL, 1, "f32[4096,512]", "s"),
        (FULL, 2, "f32[512,512]", "jit(step)/mul"),
        (1024, 1, "f32[256]", "small"),
    ]
    assert largest(program(*lines, others=SLICES), 1) == found[:1]


def test_an_array_in_a_loop_is_allocated_once():
    lines = ["%a.1 = f32[512,512]{1,0} multiply(%x, %x)", "ROOT %r = (f32[128]{0}) tuple(%y)"]
    assert largest(loop(*lines, trips=9)) == [(FULL, 1, "f32[512,512]", "a")]


def test_the_largest_arrays_of_a_compiled_gradient_are_those_that_the_scan_keeps():
    """One per iteration, of the size of the first operand; the stacked weights are an argument."""
    done = compiled(jax.grad(chain, argnums=1), (64, 32), (5, 32, 32))
    size, _, array, _ = largest(parse(done.as_text()))[0]
    assert (size, array) == (5 * 64 * 32 * 4, "f32[5,64,32]")
    assert size <= done.memory_analysis().temp_size_in_bytes
