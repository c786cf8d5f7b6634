// STEELYARD_KERNELS=off in the environment turns our kernels off, to compare or to rule them out.

#pragma once

#include <cstdlib>
#include <cstring>

namespace steelyard {

inline bool enabled() {
    static const bool on = [] {
        const char *value = std::getenv("STEELYARD_KERNELS");
        return !value || std::strcmp(value, "off") != 0;
    }();
    return on;
}

} // namespace steelyard
