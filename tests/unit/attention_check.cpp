// Attention against its definition in doubles, for test_kernels.py: widths, shared heads, types,
// what tokens see, sinks, threads.

#include "steelyard_flash.h"
#include <cstdio>

#ifdef STEELYARD_FLASH
#include <atomic>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

using namespace steelyard;

struct Shared {
    std::atomic<int> waiting{0}, passed{0}, number{0};
};

struct Team {
    Shared &shared;
    int64_t index, count;
    void barrier() {
        const int pass = shared.passed;
        if (++shared.waiting == count) {
            shared.waiting = 0;
            ++shared.passed;
        } else {
            while (shared.passed == pass)
                std::this_thread::yield();
        }
    }
    void start() {
        if (index == 0)
            shared.number = static_cast<int>(count);
        barrier();
    }
    int64_t next() { return shared.number++; }
};

using Sees = std::function<bool(int64_t token, int64_t cell)>;

struct Case {
    const char *name;
    int64_t tokens, cells, heads, kv_heads, k_width, v_width;
    bool bfloat, sinks;
    Sees sees;
};

float widened(uint16_t bits, bool bfloat) {
    return bfloat ? _mm512_cvtss_f32(BFloat::load(reinterpret_cast<const char *>(
                        std::vector<uint16_t>(16, bits).data())))
                  : _cvtsh_ss(bits);
}

struct Data {
    std::vector<uint16_t> k, v, mask;
    std::vector<float> q, sinks;

    explicit Data(const Case &c) {
        std::mt19937 random(7);
        std::normal_distribution<float> normal;
        const auto fill = [&](std::vector<uint16_t> &out, int64_t size) {
            for (int64_t i = 0; i < size; ++i) {
                const float x = normal(random);
                uint32_t bits;
                std::memcpy(&bits, &x, 4);
                out.push_back(c.bfloat ? static_cast<uint16_t>(bits >> 16) : _cvtss_sh(x, 0));
            }
        };
        fill(k, c.cells * c.kv_heads * c.k_width);
        fill(v, c.cells * c.kv_heads * c.v_width);
        for (int64_t i = 0; i < c.tokens * c.heads * c.k_width; ++i)
            q.push_back(2 * normal(random));
        for (int64_t t = 0; t < c.tokens; ++t)
            for (int64_t cell = 0; cell < c.cells; ++cell)
                mask.push_back(!c.sees(t, cell) ? 0xfc00 : cell % 97 == 5 ? 0xbc00 : 0);
        for (int64_t h = 0; c.sinks && h < c.heads; ++h)
            sinks.push_back(normal(random));
    }

    Attention attention(const Case &c, float *out) const {
        Attention a{};
        a.k = {reinterpret_cast<const char *>(k.data()), 2 * c.kv_heads * c.k_width, 2 * c.k_width,
               c.k_width};
        a.v = {reinterpret_cast<const char *>(v.data()), 2 * c.kv_heads * c.v_width, 2 * c.v_width,
               c.v_width};
        // As ggml has them: heads of a token lie together.
        a.q = reinterpret_cast<const char *>(q.data());
        a.q_token = 4 * c.heads * c.k_width;
        a.q_head = 4 * c.k_width;
        a.mask = reinterpret_cast<const char *>(mask.data());
        a.mask_token = 2 * c.cells;
        a.sinks = c.sinks ? sinks.data() : nullptr;
        a.out = out;
        a.tokens = c.tokens;
        a.heads = c.heads;
        a.kv_heads = c.kv_heads;
        a.cells = c.cells;
        a.scale = 1.0f / std::sqrt(static_cast<float>(c.k_width));
        return a;
    }
};

std::vector<float> ours(const Case &c, const Data &data, int threads) {
    std::vector<float> out(static_cast<size_t>(c.tokens * c.heads * c.v_width), 99.0f);
    const Attention a = data.attention(c, out.data());
    std::vector<float> room(a.room());
    Shared shared;
    std::vector<std::thread> team;
    for (int i = 0; i < threads; ++i)
        team.emplace_back([&, i] {
            Team me{shared, i, threads};
            if (c.bfloat)
                attend<BFloat>(a, me, room.data());
            else
                attend<Half>(a, me, room.data());
        });
    for (std::thread &thread : team)
        thread.join();
    return out;
}

// The largest error; values are about 1.
double worst(const Case &c, const Data &data, const std::vector<float> &out) {
    std::vector<float> k, v;
    for (uint16_t bits : data.k)
        k.push_back(widened(bits, c.bfloat));
    for (uint16_t bits : data.v)
        v.push_back(widened(bits, c.bfloat));
    double error = 0;
    const double scale = 1.0f / std::sqrt(static_cast<float>(c.k_width));
    std::vector<double> sum(static_cast<size_t>(c.v_width));
    for (int64_t row = 0; row < c.tokens * c.heads; ++row) {
        const int64_t head = row % c.heads, kv = head / (c.heads / c.kv_heads);
        const uint16_t *mask = data.mask.data() + row / c.heads * c.cells;
        double total = c.sinks ? std::exp(static_cast<double>(data.sinks[head])) : 0;
        std::fill(sum.begin(), sum.end(), 0.0);
        for (int64_t cell = 0; cell < c.cells; ++cell) {
            if (mask[cell] == 0xfc00)
                continue;
            const int64_t at = cell * c.kv_heads + kv;
            double score = 0;
            for (int64_t d = 0; d < c.k_width; ++d)
                score += static_cast<double>(data.q[row * c.k_width + d]) * k[at * c.k_width + d];
            const double weight = std::exp(score * scale + _cvtsh_ss(mask[cell]));
            total += weight;
            for (int64_t d = 0; d < c.v_width; ++d)
                sum[d] += weight * v[at * c.v_width + d];
        }
        for (int64_t d = 0; d < c.v_width; ++d) {
            const double want = total == 0 ? 0 : sum[d] / total;
            const double got = out[row * c.v_width + d];
            error = std::max(error, std::isfinite(got) ? std::fabs(got - want) : 1e9);
        }
    }
    return error;
}

int main() {
    const Sees everything = [](int64_t, int64_t) { return true; };
    const auto after = [](int64_t depth) {
        return [=](int64_t token, int64_t cell) { return cell <= depth + token; };
    };
    // Sixteen cells here and there per sequence, and a prefix that all have in common.
    const Sees mixed = [](int64_t token, int64_t cell) {
        return cell < 40 || cell / 16 % 5 == token % 5 || cell % 71 == token;
    };
    const Sees some_nothing = [](int64_t token, int64_t cell) { return token % 3 && cell % 7 == 2; };
    const Case cases[] = {
        {"one", 1, 1370, 9, 3, 64, 64, false, false, after(1369)},
        {"one-cell", 1, 256, 9, 3, 64, 64, false, false, after(0)},
        {"one-odd", 1, 333, 8, 8, 80, 80, false, false, mixed},
        {"one-sink", 1, 700, 8, 1, 64, 64, false, true, everything},
        {"one-blind", 1, 100, 4, 2, 64, 64, false, false,
         [](int64_t, int64_t) { return false; }},
        {"two", 2, 600, 14, 2, 96, 96, false, false, after(590)},
        {"drafts", 5, 1300, 9, 3, 64, 64, true, false, after(1290)},
        {"wide", 3, 520, 4, 1, 256, 256, false, false, after(500)},
        {"unlike", 4, 300, 16, 2, 192, 128, false, true, mixed},
        {"company", 16, 900, 9, 3, 64, 64, false, false, mixed},
        {"blind", 7, 300, 9, 3, 64, 64, false, false, some_nothing},
        {"all", 32, 400, 9, 3, 64, 64, false, false, after(360)},
        {"prompt", 70, 500, 9, 3, 64, 64, false, false, after(400)},
        {"prompt-mixed", 50, 300, 8, 2, 128, 128, true, true, mixed},
        {"prompt-blind", 40, 130, 32, 1, 64, 64, false, false, some_nothing},
    };
    for (const Case &c : cases) {
        const Data data(c);
        const std::vector<float> alone = ours(c, data, 1);
        const bool same = ours(c, data, 2) == alone && ours(c, data, 3) == alone;
        std::printf("%s worst=%.2e same=%d\n", c.name, worst(c, data, alone), same);
    }
}

#else
int main() { std::puts("left out"); }
#endif
