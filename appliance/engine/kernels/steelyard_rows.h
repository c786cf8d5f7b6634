// What the engine's loop asks of a row of logits: its highest and where it lies, how near the end of
// generation is, and how wide the distribution is. Called from Python (engine/rows.py), which has
// the same in NumPy for builds without this; here all rows of a step cost one call.
//
// Plain vectors, as wide as the CPU's: the compiler makes the instructions of them.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#define STEELYARD_API extern "C" __attribute__((visibility("default")))
#define STEELYARD_INLINE inline __attribute__((always_inline))

namespace steelyard {
namespace rows {

#if defined(__AVX512F__)
constexpr int64_t LANES = 16;
#elif defined(__AVX__)
constexpr int64_t LANES = 8;
#else
constexpr int64_t LANES = 4;
#endif
constexpr int64_t BLOCK = 4 * LANES; // four maxima at once: each waits for its own last one only

typedef float Floats __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

STEELYARD_INLINE Floats load(const float *from) { return *reinterpret_cast<const Floats *>(from); }

STEELYARD_INLINE bool any(const Ints &lanes) {
    uint64_t words[LANES / 2], all = 0;
    std::memcpy(words, &lanes, sizeof(words));
    for (uint64_t word : words)
        all |= word;
    return all != 0;
}

STEELYARD_INLINE float sum(const Floats &lanes) {
    float total = 0.0f;
    for (int64_t i = 0; i < LANES; i++)
        total += lanes[i];
    return total;
}

// NaN where the row has one.
STEELYARD_INLINE float highest(const float *row, int64_t n) {
    Floats most[4];
    Ints odd{};
    for (Floats &lanes : most)
        lanes = Floats{} - INFINITY;
    int64_t at = 0;
    for (; at + BLOCK <= n; at += BLOCK)
        for (int64_t j = 0; j < 4; j++) {
            const Floats x = load(row + at + j * LANES);
            most[j] = x > most[j] ? x : most[j];
            odd |= (x != x);
        }
    bool nan = any(odd);
    float top = -INFINITY;
    for (const Floats &lanes : most)
        for (int64_t i = 0; i < LANES; i++)
            top = lanes[i] > top ? lanes[i] : top;
    for (; at < n; at++) {
        nan |= row[at] != row[at];
        top = row[at] > top ? row[at] : top;
    }
    return nan ? NAN : top;
}

// The first place of a value that is in the row.
STEELYARD_INLINE int64_t place(const float *row, int64_t n, float value) {
    const Floats wanted = Floats{} + value;
    int64_t at = 0;
    for (; at + BLOCK <= n; at += BLOCK) {
        Ints found{};
        for (int64_t j = 0; j < 4; j++)
            found |= (load(row + at + j * LANES) == wanted);
        if (any(found))
            break;
    }
    while (row[at] != value)
        at++;
    return at;
}

// e^x for -87 <= x <= 0, to about 2e-7: 2^n by its bits, the rest by Taylor's series.
STEELYARD_INLINE Floats exponential(const Floats &x) {
    const float magic = 12582912.0f; // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    const Floats shifted = x * 1.44269504f + magic;
    const Floats n = shifted - magic;
    const Floats r = x - n * 0.693359375f + n * 2.12194440e-4f; // ln 2 in two parts
    Floats series = r * (1.0f / 720) + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 0.5f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    Ints bits;
    std::memcpy(&bits, &shifted, sizeof(bits));
    bits = (bits << 23) + 0x3f800000;
    Floats power;
    std::memcpy(&power, &bits, sizeof(power));
    return series * power;
}

} // namespace rows
} // namespace steelyard

// Per row: `best`, the first place of its highest logit, or -1 where that is no number; `highest`;
// and `end`, the highest of the logits at `ends`, -infinity without any.
STEELYARD_API void steelyard_rows(const float *logits, int64_t n_rows, int64_t n_vocab,
                                  const int32_t *ends, int64_t n_ends, int32_t *best,
                                  float *highest, float *end) {
    using namespace steelyard::rows;
    for (int64_t i = 0; i < n_rows; i++) {
        const float *row = logits + i * n_vocab;
        const float top = steelyard::rows::highest(row, n_vocab);
        highest[i] = top;
        best[i] = std::isfinite(top) ? static_cast<int32_t>(place(row, n_vocab, top)) : -1;
        end[i] = -INFINITY;
        for (int64_t j = 0; j < n_ends; j++)
            end[i] = row[ends[j]] > end[i] ? row[ends[j]] : end[i];
    }
}

// Of softmax(row), whose highest logit is `highest`: `out[0]` the logarithm of the sum of all
// e^logit, `out[1]` the entropy. In nats, to about 1e-6.
STEELYARD_API void steelyard_spread(const float *row, int64_t n_vocab, float highest, double *out) {
    using namespace steelyard::rows;
    const float least = -87.0f; // e^-87 counts for nothing, and -infinity times 0 is no number
    double mass = 0.0, weighted = 0.0;
    int64_t at = 0;
    while (at + LANES <= n_vocab) {
        Floats part{}, of_part{}; // short sums in floats, long ones in doubles
        const int64_t stop = at + 1024 < n_vocab ? at + 1024 : n_vocab;
        for (; at + LANES <= stop; at += LANES) {
            Floats x = load(row + at) - highest;
            x = x > least ? x : Floats{} + least;
            const Floats e = exponential(x);
            part += e;
            of_part += e * x;
        }
        mass += sum(part);
        weighted += sum(of_part);
    }
    for (; at < n_vocab; at++) {
        const double x = std::fmax(row[at] - highest, least), e = std::exp(x);
        mass += e;
        weighted += e * x;
    }
    out[0] = highest + std::log(mass);
    out[1] = std::log(mass) - weighted / mass;
}
