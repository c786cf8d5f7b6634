// Skips masked cells in attention on CPUs with AVX-512BW.
//
// With one unified KV cache every query looks through the cells of all sequences. Those of others
// are masked with -inf; ggml tests them one by one, converting each to float through a table. Here
// thirty-two are compared at once. What is computed for the cells that count stays ggml's own.

#pragma once

#include <cstdint>

#if defined(__AVX512F__) && defined(__AVX512BW__)
#include <immintrin.h>
#endif

namespace steelyard {

// The first cell from `at` on, below `end`, whose mask is not minus infinity; `end` if none is.
inline int64_t next_visible(const uint16_t *mask, int64_t at, int64_t end) {
    constexpr uint16_t MINUS_INFINITY = 0xfc00; // as a half
#if defined(__AVX512F__) && defined(__AVX512BW__)
    const __m512i hidden = _mm512_set1_epi16(static_cast<short>(MINUS_INFINITY));
    for (; at + 32 <= end; at += 32) {
        const __mmask32 visible = _mm512_cmpneq_epi16_mask(_mm512_loadu_si512(mask + at), hidden);
        if (visible)
            return at + __builtin_ctz(visible);
    }
#endif
    while (at < end && mask[at] == MINUS_INFINITY)
        ++at;
    return at;
}

} // namespace steelyard
