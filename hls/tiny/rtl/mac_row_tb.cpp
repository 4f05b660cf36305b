// mac_row (Verilator's model) against mac_array and mac_round_block, row 0: random rows of random length, a
// column step per clock, now and then a bubble. Exit status 0: every z was equal and came after the cycle
// model's latency.
#include <cstdio>
#include <deque>
#include <memory>

#include "../../kl_latency.h"
#include "../../mac.h"
#include "verilated.h"
#include "Vmac_row.h"

namespace
{
enum {
    N_ROW = 100000,
    N_OPERAND_MAX = KL_BLOCK * 4,
    LATENCY = KL_LAT_MULTIPLY + KL_LAT_TREE + KL_LAT_ACCUMULATE + KL_LAT_ROUND_BLOCK,
};

uint64_t seed = 1;

// splitmix64, below n.
uint32_t random_below(uint32_t n)
{
    uint64_t z = (seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<uint32_t>((z ^ (z >> 31)) % n);
}

int32_t random_sign(int32_t v)
{
    return random_below(2) ? -v : v;
}

// 16-bit lanes of a port of up to 64 bits, or of a wider one.
void set_lane(QData &port, int lane, int16_t v)
{
    port = (port & ~(QData{0xffff} << (16 * lane))) | QData{static_cast<uint16_t>(v)} << (16 * lane);
}

template <std::size_t N> void set_lane(VlWide<N> &port, int lane, int16_t v)
{
    EData &word = port[static_cast<std::size_t>(lane / 2)];
    const int at = 16 * (lane % 2);
    word = (word & ~(0xffffu << at)) | static_cast<EData>(static_cast<uint16_t>(v)) << at;
}

struct expected_z {
    uint64_t clock;
    int32_t z;
};

Vmac_row top;
uint64_t now;
std::deque<expected_z> expected;
uint64_t n_compared, n_mismatch;

// One clock edge with what the inputs are; checks what comes out after it.
void clock_edge()
{
    top.clk = 0;
    top.eval();
    top.clk = 1;
    top.eval();
    now++;
    const bool due = !expected.empty() && expected.front().clock == now;
    if (static_cast<bool>(top.z_valid) != due) {
        n_mismatch++;
    } else if (due) {
        n_compared++;
        n_mismatch += static_cast<int32_t>(top.z) != expected.front().z;
    }
    if (due)
        expected.pop_front();
}

void run_row()
{
    static int16_t w[KL_MAC_ROWS][KL_MAC_COLS];
    static uint8_t shift[KL_MAC_ROWS];
    static int32_t acc[KL_MAC_ROWS], z[KL_MAC_ROWS], sum[KL_MAC_ROWS];
    static int64_t wide[KL_N_CLASS_MAX];
    operand_step step;
    const uint32_t n_col = 1 + random_below(N_OPERAND_MAX / KL_MAC_COLS);
    // Within the loader's bounds: few bits and any shift; or blocks up to 2^31 and shifts that leave room for
    // four.
    const bool small = random_below(4) == 0;
    shift[0] = static_cast<uint8_t>(small ? random_below(20) : 3 + random_below(17));
    z[0] = random_sign(static_cast<int32_t>(random_below(1u << 29)));
    top.shift = shift[0];
    top.z_start = static_cast<uint32_t>(z[0]);
    for (uint32_t col = 0; col < n_col; col++) {
        const bool one_large = random_below(2) != 0;
        for (int k = 0; k < KL_MAC_COLS; k++) {
            const uint32_t limit = small ? 15 : one_large ? 0 : 1023;
            w[0][k] = static_cast<int16_t>(random_sign(static_cast<int32_t>(random_below(limit + 1))));
            step.v[k] = static_cast<int16_t>(random_sign(
                random_below(4) ? static_cast<int32_t>(random_below(KL_X_ABS_MAX + 1)) : KL_X_ABS_MAX));
        }
        // As much as a column step's 1023s: a block's sum stays below 2^31 in any mixture.
        if (one_large && !small)
            w[0][random_below(KL_MAC_COLS)] =
                static_cast<int16_t>(random_sign(KL_MAC_COLS * 1023 < 32767 ? KL_MAC_COLS * 1023 : 32767));
        for (int k = 0; k < KL_MAC_COLS; k++) {
            set_lane(top.w, k, w[0][k]);
            set_lane(top.operand, k, step.v[k]);
        }
        const int block_first = col % KL_BLOCK_COLS == 0;
        const int block_last = col == n_col - 1 || col % KL_BLOCK_COLS == KL_BLOCK_COLS - 1;
        top.valid = 1;
        top.first = col == 0;
        top.block_first = block_first;
        top.block_last = block_last;
        mac_array(w, &step, sum, wide);
        mac_round_block(sum, shift, block_first, block_last, acc, z);
        if (block_last)
            expected.push_back({now + LATENCY, z[0]});
        clock_edge();
        while (random_below(16) == 0) { // a bubble: the inputs stand, and mean nothing
            top.valid = 0;
            clock_edge();
        }
    }
}
} // namespace

int main()
{
    for (int row = 0; row < N_ROW; row++)
        run_row();
    top.valid = 0;
    for (int i = 0; i < LATENCY; i++)
        clock_edge();
    const bool pass = n_mismatch == 0 && n_compared > N_ROW && expected.empty();
    std::printf("mac_row, %d columns: %s, %llu z of %d rows, %llu clocks, latency %d, %llu mismatches\n",
                KL_MAC_COLS, pass ? "PASS" : "FAIL", static_cast<unsigned long long>(n_compared), N_ROW,
                static_cast<unsigned long long>(now), LATENCY, static_cast<unsigned long long>(n_mismatch));
    return pass ? 0 : 1;
}
