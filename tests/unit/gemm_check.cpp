// Random blocks in ggml's layouts; the expected sums are computed from their definition in double.
// Prints one line per case, for test_kernels.py.

#include "steelyard_gemm.h"
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>
#ifndef STEELYARD_GEMM
int main() { std::puts("left out"); }
#else
using namespace steelyard;
static std::mt19937 rng(7);
static uint16_t random_half() {
    std::uniform_real_distribution<float> d(-0.05f, 0.05f);
    return _cvtss_sh(d(rng), 0);
}
static double weight(const WeightQ4_1 &b, int i) {
    const int q = i < 16 ? b.q[i] & 15 : b.q[i - 16] >> 4;
    return (double)half(b.d) * q + half(b.m);
}
static double weight(const WeightQ8_0 &b, int i) { return (double)half(b.d) * b.q[i]; }
static int8_t random_quant() { return (int8_t)(rng() % 255 - 127); }
static void fill(WeightQ4_1 &b) {
    b.d = random_half();
    b.m = random_half();
    for (auto &q : b.q)
        q = (uint8_t)rng();
}
static void fill(WeightQ8_0 &b) {
    b.d = random_half();
    for (auto &q : b.q)
        q = random_quant();
}
static void fill(ActivationQ8_0 &b) {
    b.d = random_half();
    for (auto &q : b.q)
        q = random_quant();
}
static void fill(ActivationQ8_1 &b) {
    b.d = random_half();
    int sum = 0;
    for (auto &q : b.q) {
        q = random_quant();
        sum += q;
    }
    b.s = _cvtss_sh(half(b.d) * sum, 0);
}
static double activation_sum(const ActivationQ8_1 &b) { return half(b.s); }
static double activation_sum(const ActivationQ8_0 &b) {
    int sum = 0; for (auto q : b.q) sum += q; return (double)half(b.d) * sum;
}
// What the error is measured by: the sum of all products regardless of sign.
template <typename X, typename Y> static double size(const X &x, const Y &y) {
    double sum = 0;
    for (int i = 0; i < 32; ++i)
        sum += std::fabs(weight(x, i) * half(y.d) * y.q[i]);
    return sum;
}
// Q4_1 times Q8_1 is defined with the stored (rounded) sum of the activations.
static double dot(const WeightQ4_1 &x, const ActivationQ8_1 &y) {
    double sum = 0;
    for (int i = 0; i < 32; ++i)
        sum += (weight(x, i) - half(x.m)) * half(y.d) * y.q[i];
    return sum + half(x.m) * activation_sum(y);
}
static double dot(const WeightQ8_0 &x, const ActivationQ8_0 &y) {
    double sum = 0;
    for (int i = 0; i < 32; ++i) sum += weight(x, i) * half(y.d) * y.q[i];
    return sum;
}
template <typename X, typename Y>
static void check(const char *name, int m, int n, int k, int nth) {
    const int lda = k + 1, ldb = k + 2, ldc = m + 3;
    std::vector<X> A((size_t)m * lda);
    std::vector<Y> B((size_t)n * ldb);
    for (auto &b : A) fill(b);
    for (auto &b : B) fill(b);
    std::vector<float> C((size_t)n * ldc, -77.0f);
    for (int t = 0; t < nth; ++t)
        if (!multiply<X, Y>(t, nth, m, n, k, A.data(), lda, B.data(), ldb, C.data(), ldc)) {
            std::printf("%s m=%d n=%d k=%d refused\n", name, m, n, k);
            return;
        }
    double worst = 0;
    for (int c = 0; c < n; ++c)
        for (int r = 0; r < m; ++r) {
            double want = 0, scale = 1e-3;
            for (int b = 0; b < k; ++b) {
                const X &x = A[(size_t)r * lda + b];
                const Y &y = B[(size_t)c * ldb + b];
                want += dot(x, y);
                scale += size(x, y);
            }
            worst = std::fmax(worst, std::fabs(C[(size_t)c * ldc + r] - want) / scale);
        }
    int touched = 0;
    for (int c = 0; c < n; ++c)
        for (int r = m; r < ldc; ++r) touched += C[(size_t)c * ldc + r] != -77.0f;
    std::printf("%s m=%d n=%d k=%d nth=%d ", name, m, n, k, nth);
    std::printf("worst=%.2e touched=%d\n", worst, touched);
}
int main() {
    for (int n : {1, 2, 3, 7, 8, 9, 16, 21})
        for (int k : {1, 5, 18})
            for (int nth : {1, 3}) {
                check<WeightQ4_1, ActivationQ8_1>("q4_1", 48, n, k, nth);
                check<WeightQ8_0, ActivationQ8_0>("q8_0", 48, n, k, nth);
            }
    check<WeightQ4_1, ActivationQ8_1>("q4_1", 40, 2, 2, 1);
}
#endif
