// What ggml's flash attention asks for, in the words of steelyard_flash.h. For ops.cpp only.

#pragma once

#include "ggml-cpu-impl.h"
#include "steelyard_flash.h"
#include "steelyard_switch.h"

#include <cstring>

namespace steelyard {

#ifdef STEELYARD_FLASH

// ggml's threads.
struct Team {
    ggml_threadpool *pool;
    int64_t index, count;

    void barrier() { ggml_barrier(pool); }
    void start() {
        if (index == 0)
            ggml_threadpool_chunk_set(pool, static_cast<int>(count));
        barrier();
    }
    int64_t next() { return ggml_threadpool_chunk_add(pool, 1); }
};

inline float parameter(const ggml_tensor *dst, int index) {
    float value;
    std::memcpy(&value, dst->op_params + index, sizeof(value));
    return value;
}

inline Cells cells_of(const ggml_tensor *t) {
    return {static_cast<const char *>(t->data), static_cast<int64_t>(t->nb[1]),
            static_cast<int64_t>(t->nb[2]), t->ne[0]};
}

// Left to ggml: other types, one cache per sequence, masks per head, position biases, capped scores.
inline bool is_ours(const ggml_tensor *dst) {
    const ggml_tensor *q = dst->src[0], *k = dst->src[1], *v = dst->src[2], *mask = dst->src[3];
    const bool types = (k->type == GGML_TYPE_F16 || k->type == GGML_TYPE_BF16) &&
                       k->type == v->type && q->type == GGML_TYPE_F32;
    return types && mask && mask->type == GGML_TYPE_F16 && q->ne[3] == 1 && mask->ne[2] == 1 &&
           mask->ne[3] == 1 && k->nb[0] == 2 && v->nb[0] == 2 && q->nb[0] == 4 &&
           k->ne[2] == v->ne[2] && parameter(dst, 1) == 0.0f && parameter(dst, 2) == 0.0f;
}

inline Attention described(const ggml_tensor *dst) {
    const ggml_tensor *q = dst->src[0], *k = dst->src[1], *mask = dst->src[3];
    Attention a{};
    a.k = cells_of(k);
    a.v = cells_of(dst->src[2]);
    a.q = static_cast<const char *>(q->data);
    a.q_token = static_cast<int64_t>(q->nb[1]);
    a.q_head = static_cast<int64_t>(q->nb[2]);
    a.mask = static_cast<const char *>(mask->data);
    a.mask_token = static_cast<int64_t>(mask->nb[1]);
    a.sinks = dst->src[4] ? static_cast<const float *>(dst->src[4]->data) : nullptr;
    a.out = static_cast<float *>(dst->data);
    a.tokens = q->ne[1];
    a.heads = q->ne[2];
    a.kv_heads = k->ne[2];
    a.cells = k->ne[1];
    a.scale = parameter(dst, 0);
    return a;
}

// False: not for us, nothing was done.
inline bool flash_attention(const ggml_compute_params *params, const ggml_tensor *dst) {
    if (params->use_ref || !enabled() || !is_ours(dst))
        return false;
    const Attention a = described(dst);
    if (!a.fits() || a.room() * sizeof(float) > params->wsize)
        return false;
    Team team{params->threadpool, params->ith, params->nth};
    auto *room = static_cast<float *>(params->wdata);
    if (dst->src[1]->type == GGML_TYPE_F16)
        attend<Half>(a, team, room);
    else
        attend<BFloat>(a, team, room);
    return true;
}

#else

inline bool flash_attention(const ggml_compute_params *, const ggml_tensor *) { return false; }

#endif

} // namespace steelyard
