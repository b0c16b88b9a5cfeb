// Attention without its matrix of scores in memory: softmax(scale * q k^T + bias) v, block of keys by block of keys with a
// running maximum and sum for each query row, in float. Queries and keys may differ in number; several query heads may share
// one head of keys and values. `causal` lets query i see keys 0 … i, as torch's `is_causal`. A row that sees no key gives zeros.
//
//     typedef kw::attention_schedule<64> S;                            // depth of a head, at most
//     kw::attention_shape shape{batch, heads, kv_heads, queries, keys, depth, value_depth};
//     kw::attention<S>(threads, shape,
//                      kw::heads_of<float>{q, heads * queries * depth, queries * depth, depth, 1},
//                      kw::heads_of<float>{k, kv_heads * keys * depth, keys * depth, depth, 1},
//                      kw::heads_of<float>{v, kv_heads * keys * value_depth, keys * value_depth, value_depth, 1},
//                      scale, causal, kw::no_bias(),
//                      [=](kw::vec<float, S::W> value, int64_t batch, int64_t head, int64_t row, int64_t column, int lanes) {
//                          kw::store_partial(out + ((batch * heads + head) * queries + row) * value_depth + column, value, lanes);
//                      }, workspace);                                  // of kw::attention_workspace_bytes<S>(threads, shape)
//
// A bias changes the scaled scores of `lanes` consecutive keys; lanes beyond are garbage:
//
//     kw::vec<float, W> operator()(kw::vec<float, W> score, int64_t batch, int64_t head, int64_t row, int64_t key, int lanes)
#ifndef KW_ATTENTION_H
#define KW_ATTENTION_H
#include "kw_matmul.h"
#include "kw_vector.h"

namespace kw {

struct attention_shape {
    int64_t batch, heads, kv_heads, queries, keys, depth, value_depth;
};

// A tensor [batch, heads, rows, depth]; strides are in elements.
template <class T> struct heads_of {
    const T* data;
    int64_t batch_stride, head_stride, row_stride, depth_stride;
};

struct no_bias {
    template <class V> KW_INLINE V operator()(V score, int64_t, int64_t, int64_t, int64_t, int) const { return score; }
};

// depth: the largest head depth (of keys and of values), a multiple of 16. key_block: keys of one softmax step. query_tiles:
// register tiles of queries that go through one block of keys together. Register tile as in `matmul_schedule`.
template <int depth_ = 64, int key_block_ = 256, int query_tiles_ = 2, int tile_rows_ = matmul_schedule<float>::tile_rows,
          int tile_vectors_ = matmul_schedule<float>::tile_vectors, int unroll_ = 2>
struct attention_schedule {
    static constexpr int W = native_lanes<float>;
    static constexpr int depth = depth_, query_tiles = query_tiles_, tile_rows = tile_rows_, tile_vectors = tile_vectors_, unroll = unroll_;
    static constexpr int tile_columns = tile_vectors * W;
    static constexpr int key_block = (key_block_ + tile_columns - 1) / tile_columns * tile_columns;
    static constexpr int depth_panels = (depth + tile_columns - 1) / tile_columns;
    static constexpr int query_stride = depth + 16, weight_stride = key_block + 16;
    static constexpr int64_t tile_size = int64_t(tile_rows) * tile_columns;
};

namespace detail {

struct attention_grid {
    int64_t key_panels, query_blocks, parts, blocks_each;
    int64_t packed_keys, packed_values, queries, scores, weights, results, rows, total;
};

template <class S> inline attention_grid plan_attention(int threads, const attention_shape& shape) {
    attention_grid g;
    int64_t group = shape.heads / shape.kv_heads, rows = int64_t(S::tile_rows) * S::query_tiles;
    g.key_panels = larger_of(1, ceil_div(shape.keys, S::tile_columns));
    g.query_blocks = group * ceil_div(shape.queries, rows);
    int64_t whole = larger_of(1, shape.batch * shape.kv_heads);
    // Each part packs the keys again, so it should have several blocks of queries.
    g.parts = larger_of(1, smaller_of(ceil_div(4 * threads, whole), g.query_blocks / 2));
    if (whole >= 4 * threads) g.parts = 1;
    g.blocks_each = ceil_div(g.query_blocks, g.parts);
    g.parts = larger_of(1, ceil_div(g.query_blocks, larger_of(1, g.blocks_each)));
    g.packed_keys = g.key_panels * S::tile_columns * S::depth;
    g.packed_values = g.key_panels * S::tile_columns * S::depth_panels * S::tile_columns;
    g.queries = rows * S::query_stride;
    g.scores = rows * S::key_block;
    g.weights = rows * S::weight_stride;
    g.results = S::query_tiles * S::depth_panels * S::tile_size;
    g.rows = ceil_div(2 * rows, 16) * 16;
    g.total = ceil_div(g.packed_keys + g.packed_values + g.queries + g.scores + g.weights + g.results + g.rows, 64) * 64 + 64;
    return g;
}

// One softmax step of a tile: scores [panel][tile_rows][tile_columns] become weights [tile_rows][weight_stride]; the running
// maximum and sum of each row move on, and what was accumulated so far is scaled to the new maximum.
template <class S, class Bias>
__attribute__((noinline)) void softmax_step(const float* scores, float* weights, float* maximum, float* sum, float* results, int64_t rows,
                                            int64_t keys, float scale, bool causal, Bias& bias, int64_t batch, int64_t head, int64_t row0,
                                            int64_t key0) {
    constexpr int W = S::W;
    typedef vec<float, W> V;
    const V lowest = same<V>(-__builtin_inff());
    const int64_t panels = ceil_div(keys, S::tile_columns);
    for (int64_t r = 0; r < rows; ++r) {
        float* out = weights + r * S::weight_stride;
        // Keys of this block that the row sees.
        int64_t seen = causal ? smaller_of(keys, row0 + r + 1 - key0) : keys;
        V top = lowest;
        for (int64_t c = 0; c < panels * S::tile_columns; c += W) {
            V score = load<W>(scores + c / S::tile_columns * S::tile_size + r * S::tile_columns + c % S::tile_columns) * scale;
            if constexpr (!same_type<Bias, no_bias>) {
                if (c < seen) score = bias(score, batch, head, row0 + r, key0 + c, int(smaller_of(W, seen - c)));
            }
            if (c + W > seen) score = select(iota<int32_t, W>(int32_t(c)) < splat<int32_t, W>(int32_t(seen)), score, lowest);
            store(out + c, score);
            top = select(score > top, score, top);
        }
        float before = maximum[r], now = reduce(top, [](auto a, auto b) { return larger(a, b); });
        now = now > before ? now : before;
        maximum[r] = now;
        V center = same<V>(now == -__builtin_inff() ? 0.f : now), total{};
        for (int64_t c = 0; c < panels * S::tile_columns; c += W) {
            V weight = exp_below_zero(V(load<W>(out + c) - center));
            store(out + c, weight);
            total += weight;
        }
        float change = now == before ? 1.f : exp_below_zero(same<vec<float, 4>>(before - now))[0];
        sum[r] = sum[r] * change + reduce_sum(total);
        if (change != 1.f)
            for (int64_t p = 0; p < S::depth_panels; ++p)
                for (int j = 0; j < S::tile_vectors; ++j) {
                    float* at = results + p * S::tile_size + (r * S::tile_vectors + j) * W;
                    store(at, load<W>(at) * change);
                }
    }
}

// Packs the keys and values that one task needs: keys as [panel][depth][tile_columns], values as [depth panel][key][tile_columns].
template <class S, class K, class V>
inline void pack_keys_and_values(const attention_shape& shape, const attention_grid& g, const heads_of<K>& k, const heads_of<V>& v,
                                 int64_t batch, int64_t head, int64_t keys, float* packed_keys, float* packed_values) {
    constexpr int columns = S::tile_columns;
    as_stored f;
    const K* k_at = k.data + batch * k.batch_stride + head * k.head_stride;
    const V* v_at = v.data + batch * v.batch_stride + head * v.head_stride;
    for (int64_t key = 0; key < keys; key += columns)
        copy_tile<S::W>(k_at + key * k.row_stride, k.depth_stride, k.row_stride, shape.depth, smaller_of(columns, keys - key),
                        packed_keys + key * S::depth, columns, shape.depth, columns, f, 0, 0, 0);
    const int64_t padded = ceil_div(keys, columns) * columns;
    for (int64_t panel = 0; panel * columns < shape.value_depth; ++panel)
        copy_tile<S::W>(v_at + panel * columns * v.depth_stride, v.row_stride, v.depth_stride, keys,
                        smaller_of(columns, shape.value_depth - panel * columns), packed_values + panel * g.key_panels * columns * columns,
                        columns, padded, columns, f, 0, 0, 0);
}

}  // namespace detail

// Bytes of scratch that `attention` needs at `workspace` (64-byte aligned).
template <class S> inline int64_t attention_workspace_bytes(int threads, const attention_shape& shape) {
    return detail::plan_attention<S>(threads, shape).total * threads * int64_t(sizeof(float)) + 64;
}

template <class S, class Q, class K, class V, class Bias, class E>
inline void attention(int threads, const attention_shape& shape, const heads_of<Q>& q, const heads_of<K>& k, const heads_of<V>& v, float scale,
                      bool causal, Bias bias, E epilogue, void* workspace) {
    using namespace detail;
    constexpr int W = S::W, MR = S::tile_rows, NR = S::tile_columns;
    if (shape.batch <= 0 || shape.heads <= 0 || shape.queries <= 0) return;
    const attention_grid g = plan_attention<S>(threads, shape);
    const int64_t group = shape.heads / shape.kv_heads, block_rows = int64_t(MR) * S::query_tiles;
    const int64_t value_panels = ceil_div(shape.value_depth, NR);
    parallel_blocks(threads, shape.batch * shape.kv_heads * g.parts, [&](int64_t task, int thread) {
        // Later queries see more keys: they go first, so that no long task is left for the end.
        int64_t part = g.parts - 1 - task / (shape.batch * shape.kv_heads), which = task % (shape.batch * shape.kv_heads);
        int64_t batch = which / shape.kv_heads, kv_head = which % shape.kv_heads;
        float* packed_keys = (float*)workspace + g.total * thread;
        float* packed_values = packed_keys + g.packed_keys;
        float* queries = packed_values + g.packed_values;
        float* scores = queries + g.queries;
        float* weights = scores + g.scores;
        float* results = weights + g.weights;
        float* maximum = results + g.results;
        float* sum = maximum + block_rows;
        int64_t first = part * g.blocks_each, last = smaller_of(g.query_blocks, first + g.blocks_each);
        int64_t most_keys = 0;
        // Blocks are numbered so that the heads of a group alternate: a part is then a range of rows of all of them.
        if (last > first) most_keys = causal ? smaller_of(shape.keys, ((last - 1) / group + 1) * block_rows) : shape.keys;
        pack_keys_and_values<S>(shape, g, k, v, batch, kv_head, most_keys, packed_keys, packed_values);
        for (int64_t block = first; block < last; ++block) {
            int64_t head = kv_head * group + block % group, row = block / group * block_rows;
            int64_t rows = smaller_of(block_rows, shape.queries - row), tiles = ceil_div(rows, MR);
            as_stored f;
            copy_tile<W>(q.data + batch * q.batch_stride + head * q.head_stride + row * q.row_stride, q.row_stride, q.depth_stride, rows,
                         shape.depth, queries, S::query_stride, tiles * MR, ceil_div(shape.depth, W) * W, f, 0, 0, 0);
            for (int64_t i = 0; i < rows; ++i) maximum[i] = -__builtin_inff(), sum[i] = 0.f;
            for (int64_t i = 0; i < tiles * S::depth_panels * S::tile_size; i += W) store(results + i, vec<float, W>{});
            int64_t keys = causal ? smaller_of(shape.keys, row + rows) : shape.keys;
            for (int64_t key = 0; key < keys; key += S::key_block) {
                int64_t count = smaller_of(S::key_block, keys - key);
                auto keys_of_tile = [&](int64_t i) {
                    return causal ? detail::smaller_of(count, row + detail::smaller_of(rows, (i + 1) * MR) - key) : count;
                };
                for (int64_t j = 0; j < count; j += NR)
                    for (int64_t i = 0; i < tiles; ++i)
                        if (j < keys_of_tile(i))
                            tile_product<float, W, MR, S::tile_vectors, S::query_stride, S::unroll>(
                                queries + i * MR * S::query_stride, packed_keys + (key + j) * S::depth, shape.depth,
                                scores + i * MR * S::key_block + j / NR * S::tile_size, false);
                for (int64_t i = 0; i < tiles; ++i) {
                    int64_t tile_keys = keys_of_tile(i);
                    if (tile_keys <= 0) continue;
                    float* tile_weights = weights + i * MR * S::weight_stride;
                    float* tile_results = results + i * S::depth_panels * S::tile_size;
                    softmax_step<S>(scores + i * MR * S::key_block, tile_weights, maximum + i * MR, sum + i * MR, tile_results,
                                    detail::smaller_of(MR, rows - i * MR), tile_keys, scale, causal, bias, batch, head, row + i * MR, key);
                }
                for (int64_t p = 0; p < value_panels; ++p)
                    for (int64_t i = 0; i < tiles; ++i) {
                        int64_t tile_keys = keys_of_tile(i);
                        if (tile_keys <= 0) continue;
                        tile_product<float, W, MR, S::tile_vectors, S::weight_stride, S::unroll>(
                            weights + i * MR * S::weight_stride, packed_values + p * g.key_panels * NR * NR + key * NR, tile_keys,
                            results + (i * S::depth_panels + p) * S::tile_size, true);
                    }
            }
            for (int64_t i = 0; i < rows; ++i) {
                float share = sum[i] == 0.f ? 0.f : 1.f / sum[i];
                const float* at = results + i / MR * S::depth_panels * S::tile_size + i % MR * NR;
                for (int64_t c = 0; c < shape.value_depth; c += W)
                    epilogue(vec<float, W>(load<W>(at + c / NR * S::tile_size + c % NR) * share), batch, head, row + i, c,
                             int(detail::smaller_of(W, shape.value_depth - c)));
            }
        }
    });
}

}  // namespace kw
#endif
