"""Every family of operations: the drafted kernel agrees with torch in float64 on usual, odd and smallest sizes."""
# ruff: noqa: PLC3002, PLW0108, E501

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from kernelwright.platforms.device import Device

X, V, M = "float32[B, N]", "float32[N]", "float32[B, 6, H, W]"

# name: (function, inputs, quick); "quick" rows run in every test run, the others with the slow tests.
TABLE = {
    # elementwise, many outputs in one kernel
    "unary": (
        lambda x: (torch.exp(x), torch.tanh(x), torch.sigmoid(x), torch.erf(x), torch.sin(x), torch.cos(x), torch.abs(x),
                   torch.expm1(x), torch.exp2(x), torch.floor(x), torch.ceil(x), torch.round(x), torch.trunc(x), torch.neg(x),
                   torch.sign(x), torch.atan(x), torch.sinh(x), torch.cosh(x)), [X], True),
    "unary_positive": (
        lambda x: (lambda y: (torch.log(y), torch.log2(y), torch.log10(y), torch.log1p(y), torch.sqrt(y), torch.rsqrt(y),
                              torch.reciprocal(y), y**1.5, y**-0.5, y**0.5, y**3, y**-1))(x.abs() + 0.25), [X], True),
    "activations": (
        lambda x: (F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.relu(x), F.relu6(x), F.leaky_relu(x, 0.2),
                   F.elu(x), F.selu(x), F.celu(x, 0.5), F.mish(x), F.softplus(x), F.hardswish(x), F.hardsigmoid(x),
                   F.hardtanh(x, -0.5, 0.7), F.logsigmoid(x), F.softsign(x), F.hardshrink(x), F.softshrink(x),
                   F.threshold(x, 0.1, 2.0), F.tanhshrink(x)), [X], True),
    "inverse_hyperbolic": (
        lambda x: (torch.asinh(x), torch.asinh(x * 1e15), torch.asinh(x * 1e-6), torch.acosh(x.abs() + 1),
                   torch.acosh(x * 1e12), torch.acosh(x), torch.hypot(x * 1e25, x.flip(1) * 1e25),
                   torch.hypot(x / 0, x * math.nan)), [X], False),
    "binary": (
        lambda x, y: (x + y, x - 2 * y, x * y, x / (y.abs() + 1), torch.maximum(x, y), torch.minimum(x, y),
                      torch.atan2(x, y), torch.pow(x.abs() + 0.1, y), torch.where(x > y, x, y), torch.lerp(x, y, 0.3),
                      torch.addcmul(x, x, y, value=0.5), torch.fmod(x, y.abs() + 0.5), torch.remainder(x, 0.7),
                      torch.clamp(x, -0.5, 0.5), 1 - x, 2 / (x.abs() + 1), torch.logaddexp(x, y)), [X, X], True),
    "comparisons": (
        lambda x, y: (x > y, x <= 0.2, x == x, torch.logical_and(x > 0, y > 0), torch.logical_not(x > 0), (x > 0) ^ (y > 0),
                      torch.isnan(x), torch.isinf(x), (x > 0).to(torch.float32) * y, (x > y).sum(1)), [X, X], True),
    "integers": (
        lambda x, y: (x + y, x * y - 3, torch.div(x, y + 1, rounding_mode="floor"), x % (y + 2), x & y, x | y, x ^ 5, ~x,
                      x.float() / 3, x.sum(1), x.amax(0), x.cumsum(1)), ["int64[B, N]", "int64[B, N]"], True),
    "small_integers": (lambda x, y: (x + y, x * 7, x.sum(), x.float().mean(1)), ["int32[B, N]", "int8[B, N]"], False),
    "shifts": (lambda x: (x << 2, (x - 3) >> 1), ["int32[B, N]"], False),
    "uint8_image": (lambda x: (x.float() / 255 - 0.5) * 2, ["uint8[B, 3, H, W]"], False),
    "broadcast": (lambda x, w, c: x * w + c, [X, V, "float32[B, 1]"], True),
    "broadcast_channels": (lambda x, w: F.relu(x * w.view(1, -1, 1, 1) + 1), [M, "float32[6]"], False),
    "scalar_tensor": (lambda x, s: x * s + s, [X, "float32[]"], False),
    "swiglu": (lambda x: F.silu(x[..., : x.shape[-1] // 2]) * x[..., x.shape[-1] // 2 :], ["float32[B, 64]"], False),
    "masked": (lambda x: (x.tril(), x.triu(1), x.masked_fill(x > 0, -1.0)), [X], True),
    "causal_scores": (
        lambda x: F.softmax(x.masked_fill(torch.ones(x.shape[-2], x.shape[-1], dtype=torch.bool).triu(1), float("-inf")), -1),
        ["float32[B, N, N]"], False),
    # views
    "views": (
        lambda x: (x.t() * 2, x.flatten() + 1, x[:, None, :] + 1, x.flip(1), x[1:, ::2] * 3, torch.cat([x, x * 2], 1),
                   x.unsqueeze(0).expand(2, -1, -1) * 2), [X], True),
    "flips": (
        lambda x: (x.flip(1) * 2, x.flip(0) + x, x.flip((0, 1)) > 0, x.flip(1).sum(1), F.softmax(x.flip(1), 1),
                   x.flip(1).argmax(1)), [X], False),
    "flipped_integers": (lambda x, y: (x.flip(1), x.flip(0) * 2, y.flip(1), ~y.flip(1)), ["int8[B, N]", "bool[B, N]"], False),
    "transpose_add": (lambda x, y: x.transpose(0, 1) + y, [X, "float32[N, B]"], False),
    "permute_sum": (lambda x: x.permute(0, 2, 3, 1).sum(-1), [M], False),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 3), value=1.5) * 2, [X], False),
    "stack": (lambda x, y: torch.stack([x, y, x + y], 1), [X, X], False),
    "chunk": (lambda x: (lambda a, b: a * torch.sigmoid(b))(*x.chunk(2, -1)), ["float32[B, 32]"], False),
    "roll": (lambda x: torch.roll(x, 3, 1), ["float32[B, 48]"], False),
    "roll_both": (lambda x: torch.roll(x, (1, 2), (0, 1)), [X], True),
    "single_column": (
        lambda x, w: (lambda y: (y.amax(1, keepdim=True), y.argmax(1), F.gelu(y.logsumexp(1, keepdim=True)) + x, y.mean((0, 1))))(
            (x @ w).sum(1, keepdim=True)), [X, "float32[N, K]"], False),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), ["float32[B, 8, H, W]"], False),
    "diagonals": (lambda x: (x.diagonal() * 2, x.diagonal(1), x.diagonal(-2).sum(), x.trace()), ["float32[16, 14]"], False),
    "repeated_output": (lambda x: (lambda y: (y, y, x))(x * 2), [X], True),
    "repeat": (lambda x: x.repeat(2, 1) + 1, [X], False),
    # reductions
    "row_reductions": (
        lambda x: (x.sum(1), x.mean(1), x.amax(1), x.amin(1), x.prod(1), x.var(1), x.std(1), x.norm(dim=1),
                   x.norm(p=1, dim=1), x.logsumexp(1)), ["float32[B, 24]"], True),
    "column_reductions": (
        lambda x: (x.sum(0), x.mean(0), x.amax(0), x.amin(0), x.var(0), x.norm(dim=0), x.logsumexp(0), (x > 3).any(0)),
        [X], True),
    "full_reductions": (
        lambda x: (x.sum(), x.mean(), x.max(), x.min(), x.std(), x.norm(), (x * x).mean()), [X], True),
    "middle_reduction": (lambda x: (x.sum(1), x.mean((0, 2)), x.amax((2, 3))), [M], True),
    "any_all": (lambda x: ((x > 0).any(1), (x > -9).all(), (x > 2).any(), (x > 0).all(1)), [X], False),
    "arg_row": (lambda x: (x.argmax(1), x.argmin(-1), *x.max(1), *x.min(1, keepdim=True)), [X], True),
    "arg_column": (lambda x: (x.argmax(0), *x.min(0)), [X], False),
    "arg_all": (lambda x: x.argmax(), [X], False),
    "var_mean": (lambda x: torch.var_mean(x, 1, correction=0), [X], False),
    "keepdim": (lambda x: x - x.mean(-1, keepdim=True) + x.amax(0, keepdim=True), [X], False),
    "normalise_full": (lambda x: x / x.norm(), [X], False),
    "frobenius": (lambda x: (x - x.mean()) / (x.std() + 1e-5), [X], False),
    "row_and_column": (lambda x: x / x.sum(0, keepdim=True).abs() + x.amax(1, keepdim=True), [X], False),
    "softmax_sum": (lambda x: F.softmax(x, -1).sum(0), [X], False),
    "chained_rows": (lambda x, w: F.softmax(F.layer_norm(x, (x.shape[-1],), w), -1).amax(-1), [X, V], False),
    # softmax family
    "softmax": (lambda x: F.softmax(x, -1), [X], True),
    "softmax_column": (lambda x: F.softmax(x, 0), [X], True),
    "softmax_channels": (lambda x: F.log_softmax(x, 1), [M], False),
    "softmax_scaled": (lambda x: F.gelu(F.softmax(x * 0.3, -1) * 3 + x), [X], False),
    "sum_log_softmax": (lambda x: F.log_softmax(x, -1).sum(), [X], False),
    "softmax_of_products": (
        lambda x: (F.softmax(x * 7e9, -1), F.log_softmax(x * 60, 0), x * 1000.1 - (x * 1000.1).amax(1, keepdim=True)), [X], True),
    "endless_logsumexp": (
        lambda x: torch.logsumexp(torch.stack([x, x * 100, x * 0 - math.inf, torch.where(x > 1, math.inf, x), x * math.nan]), -1),
        [X], False),
    # normalisations
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b), [X, V, V], True),
    "layer_norm_images": (lambda x: F.layer_norm(x, tuple(x.shape[1:])), [M], False),
    "rms_norm": (lambda x, w: F.rms_norm(x, (x.shape[-1],), w), [X, V], True),
    "rms_norm_residual": (
        lambda x, r, w: (lambda h: (h, h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * w))(x + r), [X, X, V], True),
    "rms_norm_channels": (lambda x: x / torch.sqrt((x**2).mean(1, keepdim=True) + 1e-5), [M], False),
    "group_norm": (lambda x, w, b: F.group_norm(x, 3, w, b), [M, "float32[6]", "float32[6]"], True),
    "group_norm_silu": (lambda x, w: F.silu(F.group_norm(x, 2) * w.view(-1, 1, 1)), [M, "float32[6]"], False),
    "instance_norm": (lambda x: F.instance_norm(x), [M], False),
    "batch_norm": (
        lambda x, m, v, w, b: F.relu(F.batch_norm(x, m, v.abs(), w, b)), [M, *["float32[6]"] * 4], True),
    "batch_norm_training": (lambda x: F.batch_norm(x, None, None, training=True), [M], False),
    "l2_normalise": (lambda x: F.normalize(x, dim=1), [X], False),
    "cosine": (lambda x, y: F.cosine_similarity(x, y, dim=1), [X, X], False),
    # scans
    "scans": (lambda x: (x.cumsum(1), (x * 0.1 + 1).cumprod(1), x.cumsum(0)), [X], True),
    "scan_reverse": (lambda x: (x.flip(1).cumsum(1).flip(1), x.flip(0).cumsum(0).flip(0) * 2), [X], False),
    "scan_exclusive": (lambda x: torch.cat([torch.zeros_like(x[:, :1]), x.cumsum(1)[:, :-1]], 1), [X], False),
    "scan_masked": (lambda x, y: (x * (y > 0)).cumsum(1), [X, X], False),
    "scan_vector": (lambda x: x.cumsum(0) * 2, ["float32[N]"], False),
    # losses
    "losses": (
        lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y), F.huber_loss(x, y, delta=0.7),
                      F.mse_loss(x, y, reduction="sum"), F.binary_cross_entropy_with_logits(x, torch.sigmoid(y)),
                      F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="batchmean"), F.soft_margin_loss(x, y)),
        [X, X], True),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), ["float32[B, 9]", "int64[B]"], True),
    "cross_entropy_images": (lambda x, t: F.cross_entropy(x, t), ["float32[B, 5, H]", "int64[B, H]"], False),
    "cross_entropy_smooth": (
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, reduction="sum"), ["float32[B, 9]", "int64[B]"], False),
    "hinge": (lambda x, y: torch.mean(torch.clamp(1 - x * torch.sign(y), min=0)), [X, X], False),
    "triplet": (lambda a, p, n: F.triplet_margin_loss(a, p, n), [X, X, X], False),
    # gathers
    "embedding": (lambda w, i: F.embedding(i, w) * 2, ["float32[9, N]", "int64[B]"], True),
    "gather": (lambda x, i: x.gather(1, i), ["float32[B, 9]", "int64[B, N]"], False),
    "index_select": (lambda x, i: x.index_select(0, i) + x.index_select(1, i[:3]).sum(), ["float32[8, 8]", "int64[5]"], False),
    "advanced_index": (lambda x, i: x[i] + x[-i - 1], ["float32[9, N]", "int64[B]"], False),
    "take_along": (lambda x, i: torch.take_along_dim(x, i, 1), ["float32[B, 9]", "int64[B, 4]"], False),
    # pooling
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1), [M], True),
    "avg_pool": (lambda x: (F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)), [M], False),
    "pool_1d": (lambda x: (F.max_pool1d(x, 4, 2), F.avg_pool1d(x, 3)), ["float32[B, 6, H]"], False),
    "pool_3d": (lambda x: F.max_pool3d(x, 2), ["float32[B, 3, 6, 8, H]"], False),
    "global_pool": (lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1), [M], False),
    "adaptive_pool": (lambda x: F.adaptive_avg_pool2d(x, 4), ["float32[B, 6, 16, 12]"], False),
    "ceiling_pool": (
        lambda x: (F.max_pool2d(x, 3, 2, 1, ceil_mode=True), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
                   F.avg_pool2d(x, 2, 2, ceil_mode=True, count_include_pad=False)), [M], True),
    "dilated_pool": (lambda x: F.max_pool2d(x, 2, 2, 1, dilation=2), [M], False),
    "adaptive_max": (lambda x: (F.adaptive_max_pool2d(x, 1), F.adaptive_avg_pool2d(x, 1)), [M], False),
    "adaptive_uneven": (lambda x: (F.adaptive_avg_pool2d(x, 3), F.adaptive_avg_pool2d(x, (9, 5))), ["float32[B, 6, 7, 10]"], False),
    "nearest": (lambda x: F.interpolate(x, scale_factor=(1, 3), mode="nearest") * 2, [M], False),
    "pool_of_relu": (lambda x, w: F.max_pool2d(F.relu(x * w.view(1, -1, 1, 1)), 2), [M, "float32[6]"], False),
    # products
    "linear_gelu": (lambda x, w, b: F.gelu(F.linear(x, w, b)), [X, "float32[K, N]", "float32[K]"], True),
    "product_residual": (lambda x, w, r: (x @ w) * 0.5 + r, [X, "float32[N, K]", "float32[B, K]"], False),
    "batched_product": (lambda x, y: torch.bmm(x, y).sigmoid(), ["float32[B, M, K]", "float32[B, K, N]"], False),
    "matrix_vector": (lambda x, v: x @ v, [X, V], False),
    "dot": (lambda a, b: torch.dot(a, b), [V, V], False),
    "product_softmax": (lambda x, w: F.softmax(x @ w, -1), [X, "float32[N, K]"], False),
    "mlp": (lambda x, a, b: F.linear(F.silu(F.linear(x, a)), b), [X, "float32[K, N]", "float32[M, K]"], False),
    "product_max": (lambda x, w: (x @ w).amax(1), [X, "float32[N, K]"], False),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), ["float32[B, H, L, 16]"] * 3, True),
    "attention_by_hand": (
        lambda q, k, v: F.softmax(q @ k.transpose(-1, -2) / 4.0, -1) @ v, ["float32[B, H, L, 16]"] * 3, False),
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if TABLE[n][2] else pytest.mark.slow) for n in TABLE])
def test_operation_agrees_with_float64(name: str, device: Device, bench) -> None:
    function, inputs, _ = TABLE[name]
    case = bench(function, inputs, device)
    candidate = case.candidate()
    assert not candidate.origin.left_to_library, candidate.origin.left_to_library
    run = case.compiled(candidate)
    for sizes in case.size_sets():
        case.check(run, case.inputs(sizes, seed=sum(sizes.values())))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["unary", "activations", "binary", "row_reductions", "column_reductions", "full_reductions",
                                  "softmax", "layer_norm", "group_norm", "scans", "max_pool", "linear_gelu", "attention"])  # fmt: skip
def test_other_float_types(name: str, dtype: str, device: Device, bench) -> None:
    function, inputs, _ = TABLE[name]
    case = bench(function, [t.replace("float32", dtype) for t in inputs], device)
    run = case.compiled(case.candidate())
    for sizes in case.size_sets():
        case.check(run, case.inputs(sizes, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_every_template_agrees(name: str, device: Device, bench) -> None:
    function, inputs, _ = TABLE[name]
    case = bench(function, inputs, device)
    for template in case.templates()[1:]:
        run = case.compiled(template.render(template.space.defaults()))
        case.check(run, case.inputs(case.size_sets()[-1], seed=3))


def test_table_is_broad() -> None:
    assert len(TABLE) >= 80


def test_attention_written_by_hand_is_recognised(device: Device, bench) -> None:
    def block(x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query, keys, content = (t.view(batch, length, 4, 8).transpose(1, 2) for t in (x @ w).split(32, dim=2))
        scores = (query @ keys.transpose(-2, -1)) * 8**-0.5
        scores = scores.masked_fill(mask[:length, :length] == 0, float("-inf"))
        mixed = F.softmax(scores, -1) @ content
        return mixed.transpose(1, 2).contiguous().view(batch, length, width)

    case = bench(block, ["float32[B, 40, 32]", "float32[32, 96]", "float32[40, 40]"], device)
    candidate = case.candidate()
    source = candidate.sources["kernel.cpp"]
    assert source.count("kw::attention<") == 1
    assert source.count("kw::matmul<") == 1
    x, w, mask = case.inputs({"B": 3})
    mask = torch.ones(40, 40).tril()
    case.check(case.compiled(candidate), (x, w, mask))


def test_softmax_and_what_follows_share_one_pass(device: Device, bench) -> None:
    case = bench(lambda x: F.gelu(F.softmax(x, -1) * 3 + x), ["float32[B, N]"], device)
    fused, split = case.templates()
    assert fused.render(fused.space.defaults()).sources["kernel.cpp"].count("kw::parallel_for") == 1
    assert split.render(split.space.defaults()).sources["kernel.cpp"].count("kw::parallel_for") == 3


def test_a_scan_from_the_end_is_one_pass(device: Device, bench) -> None:
    case = bench(lambda x: x.flip(1).cumsum(1).flip(1), ["float32[B, N]"], device)
    source = case.candidate().sources["kernel.cpp"]
    assert source.count("// Computes ") == 1
    assert "read_back<W>(" in source
    assert "write_back(" in source
