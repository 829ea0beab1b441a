"""Figures from compiled programs: hand-counted, on texts written as the compiler prints them."""

import pytest

from tpu_magic.check import estimate, hlo

LOOP = """\
HloModule loop, is_scheduled=true

%inside (p0: bf16[256,512], p1: bf16[512,512]) -> bf16[256,512] {
  %p0 = bf16[256,512]{1,0:T(8,128)(2,1)} parameter(0)
  %p1 = bf16[512,512]{1,0:T(8,128)(2,1)} parameter(1)
  ROOT %product = bf16[256,512]{1,0:T(8,128)(2,1)} convolution(%p0, %p1), dim_labels=bf_io->bf
}

%body (t: (s32[], bf16[256,512], bf16[512,512])) -> (s32[], bf16[256,512], bf16[512,512]) {
  %one = s32[]{:T(128)} constant(STEP)
  %t = (s32[]{:T(128)}, bf16[256,512]{1,0}, bf16[512,512]{1,0}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%t), index=0
  %h = bf16[256,512]{1,0:T(8,128)(2,1)} get-tuple-element(%t), index=1
  %w = bf16[512,512]{1,0:T(8,128)(2,1)} get-tuple-element(%t), index=2
  %copied = s32[]{:T(128)S(6)} copy(%i)
  %next = s32[]{:T(128)} add(%copied, %one)
  %new = bf16[256,512]{1,0:T(8,128)(2,1)} fusion(%h, %w), kind=kOutput, calls=%inside, \
metadata={op_name="jit(f)/layer/dot_general" stack_frame_id=3}, \
backend_config={"window_config":{"estimated_cycles":"1000"}}
  ROOT %out = (s32[]{:T(128)}, bf16[256,512]{1,0}, bf16[512,512]{1,0}) tuple(%next, %new, %w)
}

%condition (t: (s32[], bf16[256,512], bf16[512,512])) -> pred[] {
  %bound = s32[]{:T(128)} constant(BOUND)
  %t = (s32[]{:T(128)}, bf16[256,512]{1,0}, bf16[512,512]{1,0}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%t), index=0
  ROOT %test = pred[]{:T(512)} compare(%i, %bound), direction=DIRECTION
}

ENTRY %main (h: bf16[256,512], w: bf16[512,512], n: s32[]) -> bf16[256,512] {
  %h = bf16[256,512]{1,0:T(8,128)(2,1)} parameter(0)
  %w = bf16[512,512]{1,0:T(8,128)(2,1)} parameter(1)
  %n = s32[]{:T(128)} parameter(2)
  %zero = s32[]{:T(128)} constant(0)
  %start = (s32[]{:T(128)}, bf16[256,512]{1,0}, /*index=2*/bf16[512,512]{1,0}) tuple(START, %h, %w)
  %loop = (s32[]{:T(128)}, bf16[256,512]{1,0}, bf16[512,512]{1,0}) while(%start), \
condition=%condition, body=%body
  ROOT %result = bf16[256,512]{1,0:T(8,128)(2,1)} get-tuple-element(%loop), index=1
}

FileNames
1 "library.py"
2 "<tpu_check cell>"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=0 end_column=0}
2 {file_name_id=2 function_name_id=1 line=3 end_line=3 column=0 end_column=0}

StackFrames
1 {file_location_id=2 parent_frame_id=1}
3 {file_location_id=1 parent_frame_id=2}
"""
ONE = 2 * 256 * 512 * 512


def loop(bound="10", direction="LT", start="%zero", step="1"):
    text = LOOP.replace("BOUND", bound).replace("DIRECTION", direction)
    return hlo.parse(text.replace("START", start).replace("STEP", step))


@pytest.mark.parametrize(
    ("options", "rounds"),
    [
        ({"bound": "1"}, 1),
        ({"bound": "10"}, 10),
        ({"bound": "100"}, 100),
        ({"direction": "LE"}, 11),
        ({"bound": "10", "step": "4"}, 3),
    ],
)
def test_the_body_of_a_loop_counts_as_often_as_it_runs(options, rounds):
    module = loop(**options)
    assert estimate.work(module).matrix_flops == rounds * ONE
    assert sum(item.value for item in estimate.cycles(module)) == rounds * 1000


@pytest.mark.parametrize("options", [{"start": "%n"}, {"direction": "GT"}, {"step": "-1"}])
def test_a_loop_whose_rounds_are_not_known_makes_the_count_unknown(options):
    module = loop(**options)
    assert estimate.work(module).flops is None
    assert "loop" in estimate.work(module).uncounted
    assert estimate.cycles(module) is None


def test_a_custom_call_makes_the_count_unknown():
    line = (
        '  %call = f32[8]{0} custom-call(%h), custom_call_target="tpu_custom_call"\n  ROOT %result'
    )
    module = hlo.parse(LOOP.replace("  ROOT %result", line).replace("STEP", "1"))
    assert estimate.work(module).flops is None
    assert "tpu_custom_call" in estimate.work(module).uncounted


def test_the_frames_of_an_operation_are_innermost_first():
    module = loop()
    item = module.computations["body"].instructions["new"]
    assert list(module.frames(item.frame)) == [("library.py", 7), ("<tpu_check cell>", 3)]


def convolution(attributes, left, right, result):
    text = f"""\
ENTRY %main (x: {left}, k: {right}) -> {result} {{
  %x = {left} parameter(0)
  %k = {right} parameter(1)
  ROOT %c = {result} convolution(%x, %k), {attributes}
}}
"""
    return estimate.work(hlo.parse(text)).matrix_flops


def test_products_with_padding_do_not_count():
    # 3 x 3 over 56 x 56 with a border of one: 3 * 56 - 2 products along each axis.
    found = convolution(
        "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01",
        "bf16[32,64,56,56]",
        "bf16[128,64,3,3]",
        "bf16[32,128,56,56]",
    )
    assert found == 2 * 32 * 128 * 64 * (3 * 56 - 2) ** 2


def test_a_strided_convolution():
    # 7 x 7, stride 2, border 3, over 224: along an axis, o in 0..111, k in 0..6, 2o + k - 3
    # within 0..223. The border cuts 3 + 1 products before and 2 after.
    along = 7 * 112 - (3 + 1) - (1 + 0) - 1 + 0
    exact = sum(0 <= 2 * o + k - 3 < 224 for o in range(112) for k in range(7))
    found = convolution(
        "window={size=7x7 stride=2x2 pad=3_3x3_3}, dim_labels=bf01_oi01->bf01",
        "f32[8,3,224,224]",
        "f32[64,3,7,7]",
        "f32[8,64,112,112]",
    )
    assert found == 2 * 8 * 64 * 3 * exact**2
    assert abs(along - exact) <= 2


def test_a_depthwise_convolution_counts_the_features_of_a_group():
    found = convolution(
        "window={size=3x3}, dim_labels=bf01_oi01->bf01, feature_group_count=32",
        "f32[4,32,10,10]",
        "f32[32,1,3,3]",
        "f32[4,32,8,8]",
    )
    assert found == 2 * 4 * 32 * 64 * 9


def test_floor_is_the_greater_of_compute_and_traffic():
    # 1e12 operations at 100e12 a second take 10 ms; 1e9 bytes at 1e12 take 1 ms.
    assert estimate.floor(1e12, 10**9, 100e12, 1e12, "default") == (0.01, "compute")
    assert estimate.floor(1e10, 10**9, 100e12, 1e12, "default") == (0.001, "memory")
    assert estimate.floor(1e12, 10**9, 100e12, 1e12, "highest")[0] == pytest.approx(0.06)
    assert estimate.floor(None, 10**9, 100e12, 1e12, "default") == (0.001, "memory")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("f32[8,128]{1,0:T(8,128)}", 8 * 128 * 4),
        ("f32[8,10]{1,0:T(8,128)}", 8 * 128 * 4),
        ("f32[10,8]{0,1:T(8,128)}", 8 * 128 * 4),
        ("bf16[3,5,7]{2,1,0:T(8,128)(2,1)}", 3 * 8 * 128 * 2),
        ("s32[5]{0:T(128)}", 128 * 4),
        ("pred[3]{0}", 3),
        ("f32[]{:T(128)}", 4),
    ],
)
def test_tiles_are_whole(text, size):
    (array,) = hlo.arrays_of(text)
    assert array.padded_bytes == size


def test_on_chip_arrays_are_no_buffers_of_main_memory():
    text = """\
ENTRY %main (x: f32[1024,1024]) -> f32[1024] {
  %x = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  %near = f32[1024,1024]{1,0:T(8,128)S(1)} copy(%x)
  %far = f32[512,1024]{1,0:T(8,128)} slice(%near), slice={[0:512], [0:1024]}
  ROOT %sum = f32[1024]{0:T(1024)} reduce(%far, %x), dimensions={0}, to_apply=%add
}
"""
    found = [(str(array), item.name) for array, item in estimate.buffers(hlo.parse(text))]
    assert found == [("f32[1024,1024]", "x"), ("f32[512,1024]", "far"), ("f32[1024]", "sum")]


def test_collectives_with_their_bytes():
    text = """\
ENTRY %main (x: f32[256]) -> f32[256] {
  %x = f32[256]{0} parameter(0)
  %a = f32[256]{0} all-reduce(%x), replica_groups={{0,1}}, to_apply=%add
  %s = (f32[128]{0}, f32[256]{0}) all-gather-start(%x), dimensions={0}
  %d = f32[256]{0} all-gather-done(%s)
  ROOT %b = f32[256]{0} all-reduce(%d), replica_groups={{0,1}}, to_apply=%add
}
"""
    assert estimate.collectives(hlo.parse(text)) == [
        ("all-reduce", 2, 1024),
        ("all-gather", 1, 1024),
    ]
