// Looks for the one visible cell in every place and from every start; for test_kernels.py.

#include "steelyard_attention.h"
#include <cstdio>
#include <vector>
int main() {
    int wrong = 0, tried = 0;
    for (int size = 0; size < 150; ++size)
        for (int at = 0; at <= size; at += 3)
            for (int visible = -1; visible < size; ++visible) {
                std::vector<uint16_t> mask(size, 0xfc00);
                if (visible >= 0) mask[visible] = visible % 2 ? 0x0000 : 0xbc00;
                const int64_t want = visible >= at ? visible : size;
                wrong += steelyard::next_visible(mask.data(), at, size) != want;
                ++tried;
            }
    std::printf("tried %d wrong %d\n", tried, wrong);
}
