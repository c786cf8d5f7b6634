// Attention over a KV cache of halves or bfloat16, for one token as for many, on CPUs with AVX-512.
//
// ggml answers fewer than 64 tokens cell by cell, once per query head: a dot product of halves, two
// calls of expf, a sum that is kept in halves. Here
//   - masks are read first, and only cells that somebody sees are touched;
//   - tokens that see nearly the same cells are answered together (a prompt, drafts, sequences with
//     a common prefix), and query heads that share a KV head always are: a row of the result is one
//     token's one query head, and each key and value is loaded once for up to six rows;
//   - cells are taken in blocks, so that the highest score is looked for, and sums are rescaled,
//     once per block;
//   - all sums are kept as float.
//
// The cells of few tokens are cut into pieces that threads share. How many depends on the cells and
// on the tokens of the batch, never on the threads: the result is the same with any number of them.
//
// Nothing here knows ggml: see steelyard_ggml.h.

#pragma once

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__F16C__)
#define STEELYARD_FLASH 1

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace steelyard {

constexpr int TILE = 6;            // rows per pass: 6 x 4 sums, 4 values, 1 weight fit 32 registers
constexpr int64_t BLOCK = 256;     // cells per block; with 64 it is 5 % slower
constexpr int64_t AHEAD = 64;      // cells that are fetched ahead: rows of one KV head lie apart,
                                   // which the hardware does not foresee (without: 2 x slower)
constexpr int64_t GROUP_ROWS = 24; // rows per group; a larger one only sees more in vain
constexpr int64_t SPARE = 32;      // cells seen in vain that cost no more than another group
constexpr int64_t TOGETHER = 32;   // up to so many tokens, pieces are shared out; then, tokens
constexpr int64_t PIECE = 256;     // cells that are worth a piece of their own
constexpr int64_t PIECES = 64;     // pieces, over all tokens; patch.py plans memory for so many
constexpr int64_t HEAD = 16;       // of a piece: maximum, sum; then the result times the sum

// Memory that a thread keeps between calls; it begins a cache line, as rows of 16 floats then do.
class Buffer {
  public:
    float *room(int64_t floats) {
        const auto lines = static_cast<size_t>((floats + 15) / 16);
        if (lines > memory.size())
            memory.resize(lines);
        return memory.data()->values;
    }

  private:
    struct alignas(64) Line {
        float values[16];
    };
    std::vector<Line> memory;
};

// The two types of keys and values: sixteen of them become floats.
struct Half {
    static __m512 load(const char *p) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
    }
};

struct BFloat {
    static __m512 load(const char *p) {
        const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    }
};

// Rows of keys or values in one KV head; strides in bytes.
struct Cells {
    const char *data;
    int64_t stride, head;
    int64_t width; // elements per row, a multiple of 16
};

struct Attention {
    Cells k, v;
    const char *q;
    int64_t q_token, q_head;
    const char *mask; // halves, one row per token
    int64_t mask_token;
    const float *sinks; // one per head, or null
    float *out;         // [token][head][v.width]
    int64_t tokens, heads, kv_heads, cells;
    float scale;

    int64_t shared() const { return heads / kv_heads; }
    int64_t piece() const { return HEAD + v.width; }
    size_t room() const { return static_cast<size_t>(PIECES * heads * piece()); }
    bool fits() const {
        return k.width % 16 == 0 && v.width % 16 == 0 && k.width > 0 && v.width > 0 &&
               tokens > 0 && cells > 0 && kv_heads > 0 && heads % kv_heads == 0;
    }
};

inline __m512 lowest() { return _mm512_set1_ps(-INFINITY); }

// e^x for x <= 0, and 0 for minus infinity. The series ends at x^7: below half a unit in the last
// place for |x| <= ln(2) / 2.
inline __m512 exponential(__m512 x) {
    x = _mm512_max_ps(x, _mm512_set1_ps(-150.0f));
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
    // ln(2) in two parts: the first has few bits, so that its multiples are exact.
    x = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    x = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), x);
    __m512 sum = _mm512_set1_ps(1.0f / 5040);
    for (float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
        sum = _mm512_fmadd_ps(sum, x, _mm512_set1_ps(c));
    return _mm512_scalef_ps(sum, n);
}

// Sums within the four quarters of four registers: element i of each quarter is of a[i].
inline __m512 fold(const __m512 a[4]) {
    const __m512 x = _mm512_add_ps(_mm512_unpacklo_ps(a[0], a[1]), _mm512_unpackhi_ps(a[0], a[1]));
    const __m512 y = _mm512_add_ps(_mm512_unpacklo_ps(a[2], a[3]), _mm512_unpackhi_ps(a[2], a[3]));
    const __m512d lo = _mm512_unpacklo_pd(_mm512_castps_pd(x), _mm512_castps_pd(y));
    const __m512d hi = _mm512_unpackhi_pd(_mm512_castps_pd(x), _mm512_castps_pd(y));
    return _mm512_add_ps(_mm512_castpd_ps(lo), _mm512_castpd_ps(hi));
}

// Sums of the four quarters of four registers: quarter i of the result is of a[i].
inline __m512 fold_quarters(const __m512 a[4]) {
    __m512 half[2];
    for (int i = 0; i < 2; ++i) {
        const __m512 even = _mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0x88);
        half[i] = _mm512_add_ps(even, _mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0xdd));
    }
    const __m512 even = _mm512_shuffle_f32x4(half[0], half[1], 0x88);
    return _mm512_add_ps(even, _mm512_shuffle_f32x4(half[0], half[1], 0xdd));
}

inline void fetch(const char *p) { _mm_prefetch(p, _MM_HINT_T0); }

// Keeps the compiler from loading a value again for each of its uses.
inline __m512 held(__m512 x) {
    __asm__("" : "+v"(x));
    return x;
}

// Scores of R rows against `count` cells, a multiple of 16.
template <int R, typename T>
void dots(const float *q, int64_t width, const char *k, int64_t stride, const int32_t *cells,
          int64_t count, float *scores) {
    for (int64_t i = 0; i < count; i += 16) {
        __m512 quarters[R][4];
        for (int j = 0; j < 4; ++j) {
            const char *row[4], *later[4];
            for (int c = 0; c < 4; ++c) {
                row[c] = k + cells[i + 4 * j + c] * stride;
                later[c] = k + cells[i + 4 * j + c + AHEAD] * stride;
            }
            __m512 sums[R][4];
            for (int r = 0; r < R; ++r)
                for (int c = 0; c < 4; ++c)
                    sums[r][c] = _mm512_setzero_ps();
            for (int64_t d = 0; d < width; d += 16) {
                __m512 x[4];
                for (int c = 0; c < 4; ++c)
                    x[c] = T::load(row[c] + 2 * d);
                if (d % 32 == 0)
                    for (int c = 0; c < 4; ++c)
                        fetch(later[c] + 2 * d);
                for (int r = 0; r < R; ++r) {
                    const __m512 y = held(_mm512_load_ps(q + r * width + d));
                    for (int c = 0; c < 4; ++c)
                        sums[r][c] = _mm512_fmadd_ps(x[c], y, sums[r][c]);
                }
            }
            for (int r = 0; r < R; ++r)
                quarters[r][j] = fold(sums[r]);
        }
        for (int r = 0; r < R; ++r)
            _mm512_storeu_ps(scores + r * BLOCK + i, fold_quarters(quarters[r]));
    }
}

// The right side of a product: rows of floats, or the values of some cells.
struct Floats {
    const float *data;
    int64_t stride;
    __m512 load(int64_t row, int64_t column) const {
        return _mm512_loadu_ps(data + row * stride + column);
    }
    void fetch_ahead(int64_t, int64_t, int) const {}
};

template <typename T> struct InCache {
    const char *data;
    int64_t stride;
    const int32_t *cells;
    __m512 load(int64_t row, int64_t column) const {
        return T::load(data + cells[row] * stride + 2 * column);
    }
    void fetch_ahead(int64_t row, int64_t column, int registers) const {
        const char *later = data + cells[row + AHEAD] * stride + 2 * column;
        for (int i = 0; i < registers; i += 2)
            fetch(later + 32 * i);
    }
};

// R rows by W registers of C = keep * C + A * B; without `keep`, C = A * B.
template <int R, int W, typename B>
void product(const float *a, int64_t lda, int64_t depth, const B &b, int64_t column, float *c,
             int64_t ldc, const float *keep) {
    __m512 sums[R][W];
    for (int r = 0; r < R; ++r)
        for (int w = 0; w < W; ++w)
            sums[r][w] = keep ? _mm512_mul_ps(_mm512_set1_ps(keep[r]),
                                              _mm512_loadu_ps(c + r * ldc + column + 16 * w))
                              : _mm512_setzero_ps();
    for (int64_t i = 0; i < depth; ++i) {
        b.fetch_ahead(i, column, W);
        __m512 x[W];
        for (int w = 0; w < W; ++w)
            x[w] = b.load(i, column + 16 * w);
        for (int r = 0; r < R; ++r) {
            const __m512 y = _mm512_set1_ps(a[r * lda + i]);
            for (int w = 0; w < W; ++w)
                sums[r][w] = _mm512_fmadd_ps(x[w], y, sums[r][w]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int w = 0; w < W; ++w)
            _mm512_storeu_ps(c + r * ldc + column + 16 * w, sums[r][w]);
}

template <int R, typename B>
void product(const float *a, int64_t lda, int64_t depth, const B &b, int64_t width, float *c,
             int64_t ldc, const float *keep) {
    int64_t column = 0;
    for (; column + 64 <= width; column += 64)
        product<R, 4>(a, lda, depth, b, column, c, ldc, keep);
    for (; column < width; column += 16)
        product<R, 1>(a, lda, depth, b, column, c, ldc, keep);
}

// Calls `pass` with the number of rows as a constant, TILE at a time and then the rest.
template <typename Pass> void in_tiles(int64_t rows, const Pass &pass) {
    int64_t r = 0;
    for (; r + TILE <= rows; r += TILE)
        pass(std::integral_constant<int, TILE>(), r);
    switch (rows - r) {
    case 1: return pass(std::integral_constant<int, 1>(), r);
    case 2: return pass(std::integral_constant<int, 2>(), r);
    case 3: return pass(std::integral_constant<int, 3>(), r);
    case 4: return pass(std::integral_constant<int, 4>(), r);
    case 5: return pass(std::integral_constant<int, 5>(), r);
    default: return;
    }
}

// Which of 64 cells from `at` on are visible.
inline uint64_t visible(const uint16_t *mask, int64_t at, int64_t end) {
    const __m512i hidden = _mm512_set1_epi16(static_cast<short>(0xfc00)); // minus infinity
    uint64_t bits = 0;
    for (int i = 0; i < 2; ++i) {
        const int64_t first = at + 32 * i, left = end - first;
        if (left <= 0)
            break;
        const __mmask32 there = left >= 32 ? 0xffffffffu : (1u << left) - 1;
        const __m512i values = _mm512_mask_loadu_epi16(hidden, there, mask + first);
        bits |= static_cast<uint64_t>(_mm512_cmpneq_epi16_mask(values, hidden)) << (32 * i);
    }
    return bits;
}

// Tokens that are answered together, and the cells that any of them sees.
struct Group {
    int64_t first, tokens;
    int64_t begin, cells; // in the list of Sight
    int64_t length, pieces;

    int64_t end() const { return first + tokens; }
    int64_t size(int64_t piece) const { return std::min(length, cells - piece * length); }
};

// What some tokens see. Every thread finds out by itself: that is cheaper than to wait for others.
class Sight {
  public:
    std::vector<Group> groups;

    const int32_t *cells(const Group &group, int64_t piece) const {
        return list.data() + group.begin + piece * group.length;
    }

    void look(const Attention &a, int64_t first, int64_t tokens, int64_t most_pieces) {
        words = (a.cells + 63) / 64;
        bits.resize(static_cast<size_t>(words * (tokens + 2)));
        counts.resize(static_cast<size_t>(tokens));
        groups.clear();
        used = 0;
        for (int64_t t = 0; t < tokens; ++t)
            counts[t] = read(a, first + t, seen(t));
        joint = seen(tokens);
        wider = seen(tokens + 1);
        const int64_t most = std::max<int64_t>(1, GROUP_ROWS / a.shared());
        for (int64_t t = 0, end; t < tokens; t = end) {
            end = collect(t, std::min(tokens, t + most));
            groups.push_back(cut(first + t, end - t, most_pieces));
        }
    }

  private:
    int64_t words, used;
    std::vector<uint64_t> bits;
    uint64_t *joint, *wider;
    std::vector<int64_t> counts;
    std::vector<int32_t> list;

    uint64_t *seen(int64_t t) { return bits.data() + t * words; }

    int64_t read(const Attention &a, int64_t token, uint64_t *out) const {
        const auto *mask = reinterpret_cast<const uint16_t *>(a.mask + token * a.mask_token);
        int64_t count = 0;
        for (int64_t i = 0; i < words; ++i) {
            out[i] = visible(mask, 64 * i, a.cells);
            count += __builtin_popcountll(out[i]);
        }
        return count;
    }

    int64_t join(const uint64_t *some, const uint64_t *more, uint64_t *out) const {
        int64_t count = 0;
        for (int64_t i = 0; i < words; ++i) {
            out[i] = some[i] | more[i];
            count += __builtin_popcountll(out[i]);
        }
        return count;
    }

    // Leaves in `joint` what the tokens from t on see; returns the first that is not of this group.
    int64_t collect(int64_t t, int64_t last) {
        std::copy_n(seen(t), words, joint);
        int64_t end = t + 1, alone = counts[t];
        for (; end < last; ++end) {
            const int64_t together = join(joint, seen(end), wider);
            alone += counts[end];
            // Company makes each token look at the cells that only others see.
            if ((end - t + 1) * (together - SPARE) > alone + alone / 4)
                break;
            std::swap(joint, wider);
        }
        return end;
    }

    Group cut(int64_t first, int64_t tokens, int64_t most_pieces) {
        const int64_t begin = used, count = list_cells();
        // In fours, so that two or four threads have equal shares.
        const int64_t wanted = (count + 4 * PIECE - 1) / (4 * PIECE) * 4;
        const int64_t pieces = std::max<int64_t>(1, std::min(wanted, most_pieces));
        const int64_t length = ((count + pieces - 1) / pieces + 15) / 16 * 16;
        used += count + AHEAD + 16;
        return {first, tokens, begin, count, length, count ? (count + length - 1) / length : 0};
    }

    // Appends the cells, then as many copies of the last as may be fetched or padded beyond it.
    int64_t list_cells() {
        const auto needed = static_cast<size_t>(used + 64 * words + AHEAD + 16);
        if (list.size() < needed)
            list.resize(needed);
        int32_t *const begin = list.data() + used, *out = begin;
        const __m512i order =
            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        for (int64_t i = 0; i < words; ++i)
            for (int j = 0; joint[i] && j < 4; ++j) {
                const auto some = static_cast<__mmask16>(joint[i] >> (16 * j));
                const auto at = static_cast<int>(64 * i + 16 * j);
                const __m512i cell = _mm512_add_epi32(order, _mm512_set1_epi32(at));
                _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(some, cell));
                out += __builtin_popcount(some);
            }
        std::fill_n(out, AHEAD + 16, out == begin ? 0 : out[-1]);
        return out - begin;
    }
};

// The work of one thread on the rows of one group and one KV head.
template <typename T> class Rows {
  public:
    int64_t rows;

    int64_t place(int64_t r) const { return places[r]; } // among all rows of the result

    void store(int64_t r, float *piece) const {
        piece[0] = maxima[r];
        piece[1] = _mm512_reduce_add_ps(_mm512_load_ps(totals + 16 * r));
        std::copy_n(sums + r * width, width, piece + HEAD);
    }

    void run(const Attention &a, const Group &group, int64_t kv_head, const int32_t *cells,
             int64_t count) {
        begin(a, group, kv_head);
        const char *k = a.k.data + kv_head * a.k.head, *v = a.v.data + kv_head * a.v.head;
        for (int64_t at = 0; at < count; at += BLOCK) {
            const int64_t some = std::min(BLOCK, count - at);
            read_masks(a, group, cells + at, some);
            score(a, k, cells + at, padded(some));
            weigh(padded(some));
            add(a, v, cells + at, some);
        }
    }

  private:
    int64_t width;
    Buffer memory;
    float *q, *sums, *scores, *masks, *maxima, *base, *keep, *totals;
    std::vector<int64_t> tokens; // of each row, counted from the group's first
    std::vector<int64_t> places;

    void begin(const Attention &a, const Group &group, int64_t kv_head) {
        const int64_t shared = a.shared();
        rows = shared * group.tokens;
        width = a.v.width;
        tokens.resize(static_cast<size_t>(rows));
        places.resize(static_cast<size_t>(rows));
        for (int64_t r = 0; r < rows; ++r) {
            tokens[r] = r / shared;
            places[r] = (group.first + tokens[r]) * a.heads + kv_head * shared + r % shared;
        }
        const int64_t lanes = (rows + 15) / 16 * 16;
        q = memory.room(rows * (a.k.width + width + BLOCK + 16) + group.tokens * BLOCK + 3 * lanes);
        sums = q + rows * a.k.width;
        scores = sums + rows * width;
        totals = scores + rows * BLOCK; // sixteen per row, to be added up at the end
        masks = totals + rows * 16;
        maxima = masks + group.tokens * BLOCK;
        base = maxima + lanes;
        keep = base + lanes;
        std::fill_n(sums, rows * width, 0.0f);
        std::fill_n(totals, rows * 16, 0.0f);
        std::fill_n(maxima, lanes, -INFINITY);
        std::fill_n(base, lanes, -INFINITY);
        for (int64_t r = 0; r < rows; ++r)
            scale_query(a, r);
    }

    void scale_query(const Attention &a, int64_t r) {
        const int64_t token = places[r] / a.heads, head = places[r] % a.heads;
        const char *from = a.q + token * a.q_token + head * a.q_head;
        float *out = q + r * a.k.width;
        for (int64_t d = 0; d < a.k.width; d += 16) {
            const __m512 x = _mm512_loadu_ps(from + 4 * d);
            _mm512_store_ps(out + d, _mm512_mul_ps(x, _mm512_set1_ps(a.scale)));
        }
    }

    // The masks of a block as floats; what lies behind its end is hidden.
    void read_masks(const Attention &a, const Group &group, const int32_t *cells, int64_t count) {
        for (int64_t t = 0; t < group.tokens; ++t) {
            const auto *mask =
                reinterpret_cast<const uint16_t *>(a.mask + (group.first + t) * a.mask_token);
            float *out = masks + t * BLOCK;
            for (int64_t i = 0; i < count; i += 16) {
                alignas(32) uint16_t some[16];
                const uint16_t *from = mask + cells[i];
                if (count - i < 16 || cells[i + 15] - cells[i] != 15) {
                    for (int64_t j = 0; j < 16; ++j)
                        some[j] = i + j < count ? mask[cells[i + j]] : 0xfc00;
                    from = some;
                }
                _mm512_store_ps(out + i, Half::load(reinterpret_cast<const char *>(from)));
            }
        }
    }

    static int64_t padded(int64_t count) { return (count + 15) / 16 * 16; }

    void score(const Attention &a, const char *k, const int32_t *cells, int64_t count) {
        in_tiles(rows, [&](auto tile, int64_t r) {
            dots<tile(), T>(q + r * a.k.width, a.k.width, k, a.k.stride, cells, count,
                            scores + r * BLOCK);
        });
    }

    // Scores become weights relative to the highest score so far; `keep` is what that makes of the
    // sums until now.
    void weigh(int64_t count) {
        for (int64_t r = 0; r < rows; ++r) {
            float *score = scores + r * BLOCK;
            const float *mask = masks + tokens[r] * BLOCK;
            __m512 highest = lowest();
            for (int64_t i = 0; i < count; i += 16) {
                const __m512 s = _mm512_add_ps(_mm512_load_ps(score + i), _mm512_load_ps(mask + i));
                _mm512_store_ps(score + i, s);
                highest = _mm512_max_ps(highest, s);
            }
            base[r] = _mm512_reduce_max_ps(highest);
        }
        for (int64_t r = 0; r < rows; r += 16) {
            const __m512 old = _mm512_load_ps(maxima + r);
            const __m512 highest = _mm512_max_ps(old, _mm512_load_ps(base + r));
            // A row that has seen nothing yet: all its weights must become 0, not NaN.
            const __mmask16 seen = _mm512_cmpneq_ps_mask(highest, lowest());
            const __m512 zero = _mm512_maskz_mov_ps(seen, highest);
            const __m512 kept = exponential(_mm512_sub_ps(old, zero));
            _mm512_store_ps(maxima + r, highest);
            _mm512_store_ps(base + r, zero);
            _mm512_store_ps(keep + r, kept);
        }
        for (int64_t r = 0; r < rows; ++r) {
            float *score = scores + r * BLOCK;
            const __m512 zero = _mm512_set1_ps(base[r]);
            __m512 total = _mm512_mul_ps(_mm512_load_ps(totals + 16 * r), _mm512_set1_ps(keep[r]));
            for (int64_t i = 0; i < count; i += 16) {
                const __m512 weight = exponential(_mm512_sub_ps(_mm512_load_ps(score + i), zero));
                _mm512_store_ps(score + i, weight);
                total = _mm512_add_ps(total, weight);
            }
            _mm512_store_ps(totals + 16 * r, total);
        }
    }

    void add(const Attention &a, const char *v, const int32_t *cells, int64_t count) {
        const InCache<T> values{v, a.v.stride, cells};
        in_tiles(rows, [&](auto tile, int64_t r) {
            product<tile()>(scores + r * BLOCK, BLOCK, count, values, width, sums + r * width,
                            width, keep + r);
        });
    }
};

// One row of the result: what its pieces, one behind the other, give together.
inline void finish(const Attention &a, int64_t row, const float *first, int64_t pieces) {
    alignas(64) float weights[PIECES + 16], totals[PIECES + 16];
    std::fill_n(weights, PIECES + 16, -INFINITY);
    std::fill_n(totals, PIECES + 16, 0.0f);
    for (int64_t i = 0; i < pieces; ++i) {
        weights[i] = first[i * a.piece()];
        totals[i] = first[i * a.piece() + 1];
    }
    if (a.sinks) { // as a cell whose value is 0
        weights[pieces] = a.sinks[row % a.heads];
        totals[pieces] = 1.0f;
    }
    __m512 highest = lowest(), total = _mm512_setzero_ps();
    for (int64_t i = 0; i <= pieces; i += 16)
        highest = _mm512_max_ps(highest, _mm512_load_ps(weights + i));
    const float maximum = _mm512_reduce_max_ps(highest);
    const __m512 base = _mm512_set1_ps(maximum == -INFINITY ? 0.0f : maximum);
    for (int64_t i = 0; i <= pieces; i += 16) {
        const __m512 weight = exponential(_mm512_sub_ps(_mm512_load_ps(weights + i), base));
        _mm512_store_ps(weights + i, weight);
        total = _mm512_fmadd_ps(weight, _mm512_load_ps(totals + i), total);
    }
    const float sum = _mm512_reduce_add_ps(total);
    const __m512 scale = _mm512_set1_ps(sum == 0.0f ? 0.0f : 1.0f / sum);
    for (int64_t i = 0; i <= pieces; i += 16)
        _mm512_store_ps(weights + i, _mm512_mul_ps(_mm512_load_ps(weights + i), scale));
    product<1>(weights, 0, pieces, Floats{first + HEAD, a.piece()}, a.v.width,
               a.out + row * a.v.width, 0, nullptr);
}

template <typename T> class Worker {
  public:
    // Few tokens: a thread takes a share of the pieces, then of the rows.
    template <typename Team> void together(const Attention &a, Team &team, float *room) {
        const int64_t most = PIECES / a.tokens;
        sight.look(a, 0, a.tokens, most);
        int64_t all = 0, done = 0;
        for (const Group &group : sight.groups)
            all += group.tokens * group.cells * a.kv_heads;
        for (const Group &group : sight.groups)
            for (int64_t piece = 0; piece < group.pieces; ++piece)
                for (int64_t kv_head = 0; kv_head < a.kv_heads; ++kv_head) {
                    const int64_t cost = group.tokens * group.size(piece);
                    const int64_t owner = (2 * done + cost) * team.count / (2 * all);
                    done += cost;
                    if (owner != team.index)
                        continue;
                    rows.run(a, group, kv_head, sight.cells(group, piece), group.size(piece));
                    for (int64_t r = 0; r < rows.rows; ++r)
                        rows.store(r, room + (rows.place(r) * most + piece) * a.piece());
                }
        team.barrier();
        for (const Group &group : sight.groups)
            for (int64_t r = group.first * a.heads; r < group.end() * a.heads; ++r)
                if (r % team.count == team.index)
                    finish(a, r, room + r * most * a.piece(), group.pieces);
    }

    // Many tokens: a thread takes some at a time, the last first, for they see the most cells.
    template <typename Team> void apart(const Attention &a, Team &team) {
        const int64_t window = std::max<int64_t>(1, GROUP_ROWS / a.shared());
        const int64_t windows = (a.tokens + window - 1) / window;
        float *piece = memory.room(a.piece());
        int64_t looked = -1;
        team.start();
        for (int64_t i = team.index; i < windows * a.kv_heads; i = team.next()) {
            const int64_t at = windows - 1 - i / a.kv_heads;
            if (at != looked)
                sight.look(a, at * window, std::min(window, a.tokens - at * window), 1);
            looked = at;
            for (const Group &group : sight.groups) {
                rows.run(a, group, i % a.kv_heads, sight.cells(group, 0), group.cells);
                for (int64_t r = 0; r < rows.rows; ++r) {
                    rows.store(r, piece);
                    finish(a, rows.place(r), piece, 1);
                }
            }
        }
    }

  private:
    Sight sight;
    Rows<T> rows;
    Buffer memory;
};

// This thread's share. `room` has a.room() floats that all threads see. A team has an index and
// a count of threads, barrier(), and start() and next() to hand out numbers from its count on.
template <typename T, typename Team>
void attend(const Attention &a, Team &team, float *room) {
    static thread_local Worker<T> worker;
    if (a.tokens <= TOGETHER)
        worker.together(a, team, room);
    else
        worker.apart(a, team);
}

} // namespace steelyard

#endif
