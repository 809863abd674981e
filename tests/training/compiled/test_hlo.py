"""The parser reads what XLA prints: programs compiled here for CPU, and short texts in the form of its GPU compiler."""

import functools
import operator

import jax
import jax.numpy as jnp
import pytest

from prism_jax.training.compiled.hlo import Shape, parse


def scanned(x, weights):
    """A scan of matrix products that also stacks one number per iteration."""
    return jax.lax.scan(lambda x, weight: (jnp.tanh(x @ weight), x.sum()), x, weights)


def nested(x, weights):
    """Three passes over a scan, each of which begins where the one before it ended."""
    return jax.lax.scan(lambda x, _: (scanned(x, weights)[0], None), x, None, length=3)[0]


@functools.cache
def compiled(function):
    return jax.jit(function).lower(jnp.ones((16, 32)), jnp.ones((5, 32, 32))).compile()


@functools.cache
def parsed(function):
    return parse(compiled(function).as_text())


@pytest.mark.parametrize("function", [scanned, nested])
def test_computations_are_those_that_xla_lists(function):
    module = compiled(function).runtime_executable().hlo_modules()[0]
    program = parsed(function)
    assert sorted(program.computations) == sorted(computation.name for computation in module.computations())
    assert program.entry.startswith("main")


@pytest.mark.parametrize("function", [scanned, nested])
def test_arguments_and_results_have_the_bytes_that_xla_reports(function):
    entry, report = parsed(function).computations[parsed(function).entry], compiled(function).memory_analysis()
    parameters = [one for one in entry.instructions if one.op == "parameter"]
    assert [one.shapes for one in parameters] == [(Shape("f32", (16, 32)),), (Shape("f32", (5, 32, 32)),)]
    assert sum(one.bytes for one in parameters) == report.argument_size_in_bytes
    # XLA's report includes the table of pointers of a result of several arrays.
    pointers = 8 * len(entry.root.shapes) if entry.root.op == "tuple" else 0
    assert entry.root.bytes + pointers == report.output_size_in_bytes


@pytest.mark.parametrize("function", [scanned, nested])
def test_every_operand_is_found_in_its_computation_and_every_computation_has_one_root(function):
    for name, computation in parsed(function).computations.items():
        assert sum(one.root for one in computation.instructions) == 1, name
        assert len(computation.by_name) == len(computation.instructions), name
        for one in computation.instructions:
            operands = computation.operands(one)
            assert [operand.name for operand in operands] == list(one.operands)
            assert one.op == "bitcast" or all((one, operand.name) in computation.users(operand) for operand in operands)
            assert all(called in parsed(function).computations for called in one.called)


def test_the_body_of_a_scan_runs_as_often_as_it_iterates():
    program = parsed(scanned)
    [(loop, computation, times)] = [found for found in program.run() if found[0].op == "while"]
    assert (loop.trips, times, computation) == (5, 1, program.computations[program.entry])
    assert loop.source == "jit(scanned)/while"
    [body] = loop.called
    assert [shape.sizes for shape in program.computations[body].root.shapes] == [shape.sizes for shape in loop.shapes]
    runs = {one.name: times for one, _, times in program.run()}
    assert {runs[one.name] for one in program.computations[body].instructions} == {5}
    assert {runs[one.name] for one in program.computations[program.entry].instructions} == {1}


def test_nested_loops_multiply_and_the_product_of_matrices_runs_in_the_inner_one():
    program = parsed(nested)
    products = [
        (one, inner, times)
        for fusion, _, times in program.run()
        if (inner := program.fused(fusion))
        for one in inner.instructions
        if one.op == "dot"
    ]
    [(product, inner, times)] = products
    assert times == 3 * 5
    assert [operand.shapes[0].sizes for operand in inner.operands(product)] == [(16, 32), (32, 32)]
    assert product.shapes == (Shape("f32", (16, 32)),)
    assert (product.numbers("lhs_contracting_dims"), product.numbers("rhs_contracting_dims")) == ((1,), (0,))
    assert product.numbers("lhs_batch_dims") == ()
    assert product.source.endswith("dot_general")


def test_only_fusions_have_a_fused_computation_and_it_is_not_scheduled():
    program = parsed(scanned)
    for one, _, _ in program.run():
        assert (program.fused(one) is not None) == (one.op == "fusion")
    scheduled = {id(computation) for _, computation, _ in program.run()}
    assert scheduled.isdisjoint(id(inner) for one, _, _ in program.run() if (inner := program.fused(one)))


GPU = """\
HloModule jit_step, is_scheduled=true, entry_computation_layout={(bf16[8,64]{1,0}, f32[])->(bf16[8,64]{1,0}, f32[])}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%wrapped_slice (param_0: bf16[4,8,64], param_1: s32[]) -> bf16[1,8,64] {
  %param_0 = bf16[4,8,64]{2,1,0:S(5)} parameter(0)
  %param_1 = s32[] parameter(1)
  ROOT %slice.1 = bf16[1,8,64]{2,1,0} dynamic-slice(%param_0, %param_1, %param_1, %param_1), \
dynamic_slice_sizes={1,8,64}
}

%body.2 (arg: (s32[], bf16[4,8,64])) -> (s32[], bf16[4,8,64]) {
  %arg = (s32[], bf16[4,8,64]{2,1,0:T(8,128)(2,1)S(5)}) parameter(0)
  %step = s32[] get-tuple-element(%arg), index=0
  %stack = bf16[4,8,64]{2,1,0:T(8,128)(2,1)S(5)} get-tuple-element(%arg), index=1
  %slice-start = ((bf16[4,8,64]{2,1,0:S(5)}, s32[]), bf16[1,8,64]{2,1,0}, u32[]) fusion-start(%stack, %step), \
kind=kCustom, calls=%wrapped_slice, metadata={op_name="jit(step)/transpose(jvp())/while/body/dynamic_slice"}
  %slice-done = bf16[1,8,64]{2,1,0} fusion-done(%slice-start)
  ROOT %next = (s32[], bf16[4,8,64]{2,1,0:S(5)}) tuple(%step, %stack), control-predecessors={%slice-done}
}

%condition.2 (arg.1: (s32[], bf16[4,8,64])) -> pred[] {
  %arg.1 = (s32[], bf16[4,8,64]{2,1,0}) parameter(0)
  ROOT %more = pred[] constant(true)
}

%left (arg.2: f32[]) -> f32[] {
  ROOT %arg.2 = f32[] parameter(0)
}

%right (arg.3: f32[]) -> f32[] {
  %arg.3 = f32[] parameter(0)
  ROOT %twice = f32[] add(%arg.3, %arg.3)
}

ENTRY %main.9_spmd (x.1: bf16[8,64], loss.1: f32[]) -> (bf16[8,64], f32[]) {
  %x.1 = bf16[8,64]{1,0} parameter(0), sharding={devices=[8,1]<=[8]}, metadata={op_name="x (the input)"}
  %loss.1 = f32[] parameter(1)
  %zero = s32[] constant(0)
  %gather-start = ((bf16[8,64]{1,0}, f32[]), (bf16[64,64]{1,0}, f32[8]{0})) all-gather-start(%x.1, %loss.1), \
channel_id=1, replica_groups=[1,8]<=[8], dimensions={0}
  %room = bf16[4,8,64]{2,1,0:S(5)} custom-call(), custom_call_target="AllocateBuffer"
  %wide = (f32[], f32[], f32[], f32[], f32[], /*index=5*/s8[2]{0}, pred[3]{0}, bf16[], c64[2]{0}, u64[1]{0}, \
/*index=10*/f32[7]{0}) custom-call(%x.1, %zero, %zero, %zero, %zero, /*index=5*/%loss.1), custom_call_target="wide"
  %gather-done = (bf16[64,64]{1,0}, f32[8]{0}) all-gather-done(%gather-start)
  %start = (s32[], bf16[4,8,64]{2,1,0:S(5)}) tuple(%zero, %room)
  %loop = (s32[], bf16[4,8,64]{2,1,0:S(5)}) while(%start), condition=%condition.2, body=%body.2, \
backend_config={"known_trip_count":{"n":"36"},"known_init_step":{"init":"0","step":"1"}}
  %open = (s32[], bf16[4,8,64]{2,1,0}) while(%loop), condition=%condition.2, body=%body.2
  %choice = f32[] conditional(%zero, %loss.1, %loss.1), branch_computations={%left, %right}
  %called = f32[] call(%choice), to_apply=%right
  ROOT %result = (bf16[8,64]{1,0}, f32[]) tuple(%x.1, %called)
}
"""
PROGRAM = parse(GPU)
ENTRY = PROGRAM.computations["main.9_spmd"]


def test_the_entry_is_that_of_the_text_in_the_order_of_its_schedule():
    assert PROGRAM.entry == "main.9_spmd"
    names = "x.1 loss.1 zero gather-start room wide gather-done start loop open choice called result"
    assert [one.name for one in ENTRY.instructions] == names.split()
    assert list(PROGRAM.computations) == ["wrapped_slice", "body.2", "condition.2", "left", "right", "main.9_spmd"]
    assert ENTRY.root.name == "result" and [one.name for one in ENTRY.operands(ENTRY.root)] == ["x.1", "called"]


def test_tuples_with_comments_and_all_widths_are_read():
    wide = ENTRY.by_name["wide"]
    assert len(wide.shapes) == 11
    assert wide.bytes == 5 * 4 + 2 * 1 + 3 * 1 + 2 + 2 * 8 + 8 + 7 * 4
    assert wide.operands == ("x.1", "zero", "zero", "zero", "zero", "loss.1") and wide.target == "wide"
    assert [str(shape) for shape in wide.shapes[4:7]] == ["f32[]", "s8[2]", "pred[3]"]


def test_an_asynchronous_start_holds_operands_and_results():
    start, done = ENTRY.by_name["gather-start"], ENTRY.by_name["gather-done"]
    assert (start.op, done.op) == ("all-gather-start", "all-gather-done")
    assert [shape.sizes for shape in start.shapes] == [(8, 64), (), (64, 64), (8,)]
    assert start.shapes[2:] == done.shapes
    assert ENTRY.users(start) == [(done, "gather-start")] and start.numbers("dimensions") == (0,)


def test_memory_space_five_is_the_host_whatever_else_the_layout_says():
    body = PROGRAM.computations["body.2"]
    hosts = {one.name: [shape.on_host for shape in one.shapes] for one in body.instructions}
    assert hosts == {
        "arg": [False, True],
        "step": [False],
        "stack": [True],
        "slice-start": [True, False, False, False],
        "slice-done": [False],
        "next": [False, True],
    }


def test_a_fusion_that_starts_asynchronously_is_a_fusion():
    body = PROGRAM.computations["body.2"]
    inner = PROGRAM.fused(body.by_name["slice-start"])
    assert inner is PROGRAM.computations["wrapped_slice"] and inner.root.op == "dynamic-slice"
    assert PROGRAM.fused(body.by_name["slice-done"]) is None
    assert body.by_name["slice-start"].source == "jit(step)/transpose(jvp())/while/body/dynamic_slice"
    assert body.by_name["next"].operands == ("step", "stack")  # what it waits for is no operand


def test_a_loop_of_unknown_length_and_both_branches_count_once():
    assert (ENTRY.by_name["loop"].trips, ENTRY.by_name["open"].trips, ENTRY.by_name["choice"].trips) == (36, 1, 1)
    assert ENTRY.by_name["choice"].called == ["left", "right"]
    runs = [(one.name, times) for one, _, times in PROGRAM.run()]
    assert [times for name, times in runs if name == "slice-start"] == [36, 1]
    assert [times for name, times in runs if name == "twice"] == [1, 1]  # in a branch, and in a call
    assert "slice.1" not in map(operator.itemgetter(0), runs)


@pytest.mark.parametrize("text", ["", "HloModule nothing\n", GPU.replace("ENTRY ", "")])
def test_text_without_an_entry_is_refused(text):
    with pytest.raises(ValueError, match=r"^program: found no ENTRY computation, expected the text of a compiled prog"):
        parse(text)


def test_an_instruction_that_is_cut_off_is_refused():
    with pytest.raises(ValueError, match=r"^program: found an instruction without its end: .*custom-call"):
        parse(GPU.replace("custom-call(%x.1, %zero, %zero, %zero, %zero, /*index=5*/%loss.1)", "custom-call(%x.1"))


def test_arrays_have_the_sizes_of_their_dtypes():
    names = {"pred": "bool", "f8e4m3fn": "float8_e4m3fn", "bf16": "bfloat16", "u16": "uint16", "s32": "int32"}
    for name, dtype in {**names, "f64": "float64", "c64": "complex64"}.items():
        program = parse(f"ENTRY %m () -> {name}[3,5] {{\n  ROOT %x = {name}[3,5]{{1,0}} parameter(0)\n}}\n")
        (shape,) = program.computations["m"].root.shapes
        assert shape.bytes == 15 * jnp.dtype(dtype).itemsize


def test_a_dtype_of_unknown_size_is_refused():
    program = parse("ENTRY %m () -> x9[3] {\n  ROOT %x = x9[3]{0} parameter(0)\n}\n")
    with pytest.raises(ValueError, match=r"^program: found an array of x9, expected one of f8"):
        _ = program.computations["m"].root.bytes
