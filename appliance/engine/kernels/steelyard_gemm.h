// Matrix products for weights in Q4_1 and Q8_0 on CPUs with AVX-512 VNNI.
//
// ggml multiplies these types one row by one column at a time: every 32 weights cost a horizontal
// sum, two half-to-float look-ups in a 256 KiB table and a broadcast. Here sixteen rows are taken
// at once, one per 32-bit lane, so that a lane adds up its own row and no horizontal sum is left.
// The rows are transposed on the way from memory; nothing is repacked and the file stays mapped.
//
// Both formats fit one scheme. With u = unsigned quants of a weight block and y = signed quants of
// an activation block,
//     dot = d_x * d_y * sum(u * y) + m_x * s_y,        s_y = d_y * sum(y).
// Q4_1: u is the nibble, m_x is stored. Q8_0: u = q + 128 and so m_x = -128 * d_x.
//
// patch.py adds the call to ggml's llamafile_sgemm; what is not taken here goes on to ggml's own
// code.

#pragma once

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__) && defined(__F16C__)
#define STEELYARD_GEMM 1

#include "steelyard_switch.h"

#include <immintrin.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace steelyard {

constexpr int ROWS = 16;        // rows per tile: the 32-bit lanes of a register
constexpr int COLUMNS = 8;      // columns per pass: 8 sums, 8 quants, 2 scales fit 32 registers
constexpr int64_t MAX_K = 2048; // blocks per row that the scratch memory is good for: 65536 weights

struct WeightQ4_1 {
    uint16_t d, m;
    uint8_t q[16];
};
struct WeightQ8_0 {
    uint16_t d;
    int8_t q[32];
};
struct ActivationQ8_1 {
    uint16_t d, s;
    int8_t q[32];
};
struct ActivationQ8_0 {
    uint16_t d;
    int8_t q[32];
};
static_assert(sizeof(WeightQ4_1) == 20 && sizeof(WeightQ8_0) == 34, "not ggml's layout");
static_assert(sizeof(ActivationQ8_1) == 36 && sizeof(ActivationQ8_0) == 34, "not ggml's layout");

// One block of sixteen rows: q[g] holds quants 4g..4g+3 of each row, a row per lane.
struct Tile {
    __m512i q[8];
    __m512 d, m;
};

struct Scale {
    float d, s;
};

// Memory that a thread keeps between calls.
template <typename T> struct Scratch {
    T *data = nullptr;
    size_t size = 0;
    ~Scratch() { std::free(data); }
    T *room(size_t wanted) {
        if (wanted > size) {
            std::free(data);
            const size_t bytes = (wanted * sizeof(T) + 63) / 64 * 64;
            data = static_cast<T *>(std::aligned_alloc(64, bytes));
            size = data ? wanted : 0;
        }
        return data;
    }
};

inline float half(uint16_t h) { return _cvtsh_ss(h); }

inline __m128i load16(const void *p) { return _mm_loadu_si128(static_cast<const __m128i *>(p)); }

// Sixteen bytes of each of sixteen rows, `stride` bytes apart, as four registers of 32-bit words.
// Lane 4i+j of each holds row 4j+i: `natural` puts that right again.
inline void transpose(const char *p, int64_t stride, __m512i out[4]) {
    __m512i z[4];
    for (int j = 0; j < 4; ++j) {
        const char *row = p + 4 * j * stride;
        __m512i v = _mm512_castsi128_si512(load16(row));
        v = _mm512_inserti32x4(v, load16(row + stride), 1);
        v = _mm512_inserti32x4(v, load16(row + 2 * stride), 2);
        z[j] = _mm512_inserti32x4(v, load16(row + 3 * stride), 3);
    }
    const __m512i lo01 = _mm512_unpacklo_epi32(z[0], z[1]), hi01 = _mm512_unpackhi_epi32(z[0], z[1]);
    const __m512i lo23 = _mm512_unpacklo_epi32(z[2], z[3]), hi23 = _mm512_unpackhi_epi32(z[2], z[3]);
    out[0] = _mm512_unpacklo_epi64(lo01, lo23);
    out[1] = _mm512_unpackhi_epi64(lo01, lo23);
    out[2] = _mm512_unpacklo_epi64(hi01, hi23);
    out[3] = _mm512_unpackhi_epi64(hi01, hi23);
}

inline __m512i row_offsets(int64_t stride) {
    alignas(64) int32_t offsets[ROWS];
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
            offsets[4 * i + j] = static_cast<int32_t>((4 * j + i) * stride);
    return _mm512_load_si512(offsets);
}

inline __m512 natural(__m512 lanes) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_ps(order, lanes);
}

inline __m512 low_halves(__m512i words) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)); }

inline Tile unpack(const WeightQ4_1 *p, int64_t stride, __m512i offsets) {
    Tile tile;
    const __m512i words = _mm512_i32gather_epi32(offsets, p, 1);
    tile.d = low_halves(words);
    tile.m = low_halves(_mm512_srli_epi32(words, 16));
    __m512i bytes[4];
    transpose(reinterpret_cast<const char *>(p->q), stride, bytes);
    const __m512i nibble = _mm512_set1_epi8(0x0f);
    for (int w = 0; w < 4; ++w) {
        tile.q[w] = _mm512_and_si512(bytes[w], nibble);
        tile.q[4 + w] = _mm512_and_si512(_mm512_srli_epi16(bytes[w], 4), nibble);
    }
    return tile;
}

inline Tile unpack(const WeightQ8_0 *p, int64_t stride, __m512i offsets) {
    Tile tile;
    tile.d = low_halves(_mm512_i32gather_epi32(offsets, p, 1));
    tile.m = _mm512_mul_ps(tile.d, _mm512_set1_ps(-128.0f));
    transpose(reinterpret_cast<const char *>(p->q), stride, tile.q);
    transpose(reinterpret_cast<const char *>(p->q + 16), stride, tile.q + 4);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    for (int g = 0; g < 8; ++g)
        tile.q[g] = _mm512_xor_si512(tile.q[g], sign);
    return tile;
}

inline Scale scale(const ActivationQ8_1 &y) { return {half(y.d), half(y.s)}; }

inline Scale scale(const ActivationQ8_0 &y) {
    const __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(y.q));
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i pairs = _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm256_castsi256_si128(q)), ones);
    const __m256i rest = _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm256_extracti128_si256(q, 1)), ones);
    const __m256i both = _mm256_add_epi32(pairs, rest);
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    const float d = half(y.d);
    return {d, d * static_cast<float>(_mm_cvtsi128_si32(sum))};
}

inline __m512i four(const int8_t *q) {
    int32_t word;
    std::memcpy(&word, q, sizeof(word));
    return _mm512_set1_epi32(word);
}

template <int N, typename Y>
inline void accumulate(__m512 sums[N], const Tile &x, const Y *y, int64_t ldy, const Scale *scales,
                       int64_t k) {
    for (int c = 0; c < N; ++c) {
        const int8_t *q = y[c * ldy].q;
        __m512i dot = _mm512_setzero_si512();
        for (int g = 0; g < 8; ++g)
            dot = _mm512_dpbusd_epi32(dot, x.q[g], four(q + 4 * g));
        const Scale s = scales[c * k];
        const __m512 d = _mm512_mul_ps(x.d, _mm512_set1_ps(s.d));
        sums[c] = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(dot), sums[c]);
        sums[c] = _mm512_fmadd_ps(x.m, _mm512_set1_ps(s.s), sums[c]);
    }
}

template <int N> inline void store(const __m512 sums[N], float *c, int64_t ldc) {
    for (int i = 0; i < N; ++i)
        _mm512_storeu_ps(c + i * ldc, natural(sums[i]));
}

// Sixteen rows by N columns; the rows come as tiles that were unpacked before.
template <int N, typename Y>
void from_tiles(const Tile *x, int64_t k, const Y *y, int64_t ldy, const Scale *scales, float *c,
                int64_t ldc) {
    __m512 sums[N];
    for (int i = 0; i < N; ++i)
        sums[i] = _mm512_setzero_ps();
    for (int64_t b = 0; b < k; ++b)
        accumulate<N>(sums, x[b], y + b, ldy, scales + b, k);
    store<N>(sums, c, ldc);
}

// The same straight from memory, for few columns. The next sixteen rows are fetched meanwhile:
// the hardware cannot follow sixteen streams.
template <int N, typename X, typename Y>
void from_rows(const X *x, int64_t stride, __m512i offsets, int64_t k, const Y *y, int64_t ldy,
               const Scale *scales, float *c, int64_t ldc) {
    __m512 sums[N];
    for (int i = 0; i < N; ++i)
        sums[i] = _mm512_setzero_ps();
    const char *next = reinterpret_cast<const char *>(x) + ROWS * stride;
    for (int64_t b = 0; b < k; ++b) {
        for (size_t line = 0; line < ROWS * sizeof(X); line += 64)
            _mm_prefetch(next + b * ROWS * sizeof(X) + line, _MM_HINT_T0);
        accumulate<N>(sums, unpack(x + b, stride, offsets), y + b, ldy, scales + b, k);
    }
    store<N>(sums, c, ldc);
}

template <typename X, typename Y> struct Product {
    int64_t n, k;
    const Y *y;
    int64_t ldy;
    float *c;
    int64_t ldc;
    const Scale *scales;
    Tile *tiles;
    __m512i offsets;
    int64_t stride;

    void rows(const X *x, float *out) const {
        if (n <= COLUMNS) {
            some<true>(static_cast<int>(n), x, 0, out);
            return;
        }
        for (int64_t b = 0; b < k; ++b)
            tiles[b] = unpack(x + b, stride, offsets);
        int64_t done = 0;
        for (; n - done >= COLUMNS; done += COLUMNS)
            some<false>(COLUMNS, x, done, out);
        some<false>(static_cast<int>(n - done), x, done, out);
    }

    template <bool DIRECT> void some(int count, const X *x, int64_t first, float *out) const {
        switch (count) {
        case 1: return pass<1, DIRECT>(x, first, out);
        case 2: return pass<2, DIRECT>(x, first, out);
        case 3: return pass<3, DIRECT>(x, first, out);
        case 4: return pass<4, DIRECT>(x, first, out);
        case 5: return pass<5, DIRECT>(x, first, out);
        case 6: return pass<6, DIRECT>(x, first, out);
        case 7: return pass<7, DIRECT>(x, first, out);
        case 8: return pass<8, DIRECT>(x, first, out);
        default: return;
        }
    }

    template <int N, bool DIRECT> void pass(const X *x, int64_t first, float *out) const {
        const Y *column = y + first * ldy;
        const Scale *s = scales + first * k;
        if (DIRECT)
            from_rows<N>(x, stride, offsets, k, column, ldy, s, out + first * ldc, ldc);
        else
            from_tiles<N>(tiles, k, column, ldy, s, out + first * ldc, ldc);
    }
};

// This thread's share of C = A * B^T: m rows of A, n rows ("columns") of B, k blocks each; lda and
// ldb in blocks, ldc in floats, C column by column. False: not for us, nothing was done.
template <typename X, typename Y>
bool multiply(int ith, int nth, int64_t m, int64_t n, int64_t k, const void *A, int64_t lda,
              const void *B, int64_t ldb, float *C, int64_t ldc) {
    if (m % ROWS != 0 || n < 1 || k < 1 || k > MAX_K)
        return false;
    static thread_local Scratch<Scale> scale_room;
    static thread_local Scratch<Tile> tile_room;
    Scale *scales = scale_room.room(static_cast<size_t>(n * k));
    Tile *tiles = tile_room.room(static_cast<size_t>(k));
    if (!scales || !tiles)
        std::abort(); // other threads may already be at work: there is no way back
    const X *x = static_cast<const X *>(A);
    const Y *y = static_cast<const Y *>(B);
    for (int64_t c = 0; c < n; ++c)
        for (int64_t b = 0; b < k; ++b)
            scales[c * k + b] = scale(y[c * ldb + b]);
    const int64_t stride = lda * static_cast<int64_t>(sizeof(X));
    const Product<X, Y> product{n, k, y, ldb, C, ldc, scales, tiles, row_offsets(stride), stride};
    const int64_t count = m / ROWS, end = count * (ith + 1) / nth;
    for (int64_t t = count * ith / nth; t < end; ++t)
        product.rows(x + t * ROWS * lda, C + t * ROWS);
    return true;
}

} // namespace steelyard

#endif
