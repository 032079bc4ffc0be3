// The arithmetic of the stand-ins' plans, for the host and for a GPU's kernel. It is that of
// src/engine/fake.rs, in its order, so that every bit is the same.
//
// Thread safety: functions without state; each thread of a kernel writes numbers of its own.
// Ownership: none. Preconditions: addresses are those of the processor that runs it.

#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDA__
#define STANDIN_EVERYWHERE __attribute__((host)) __attribute__((device)) inline
#else
#define STANDIN_EVERYWHERE inline
#endif

namespace duovec::standin {

/// Tokens of a row that a block of the kernel has, each with a thread. So few, that a GPU with some
/// hundred places for blocks is full from some thousand tokens on, as with an encoder's kernels.
constexpr int32_t kBlockTokens = 4;

/// What the kernel is launched with, for blocks of [rows, length / kBlockTokens].
struct KernelArguments {
    /// [rows, length]; the mask is ones and then zeros.
    int32_t const* ids = nullptr;
    int32_t const* mask = nullptr;
    /// [rows, columns].
    float* dense = nullptr;
    /// [rows, length]; null when the plan has no such output.
    float* weights = nullptr;
    /// How long each block keeps its place on the GPU.
    int64_t busy_ns = 0;
    int32_t rows = 0;
    int32_t length = 0;
    int32_t columns = 0;
    /// Only the last of a run's kernels does.
    int32_t writes = 0;
};

/// Which thread of a kernel.
struct KernelThread {
    int32_t row = 0;
    int32_t block = 0;
    int32_t thread = 0;
};

constexpr uint64_t kStep = 0x9e37'79b9'7f4a'7c15;

/// One step of splitmix64.
STANDIN_EVERYWHERE uint64_t mix(uint64_t state) {
    state += kStep;
    state = (state ^ (state >> 30)) * 0xbf58'476d'1ce4'e5b9;
    state = (state ^ (state >> 27)) * 0x94d0'49bb'1331'11eb;
    return state ^ (state >> 31);
}

/// A number from -1 to 1.
STANDIN_EVERYWHERE float number_of(uint64_t state) {
    return static_cast<float>(state >> 40) / static_cast<float>(1 << 23) - 1.0F;
}

/// L2-normalized; zeros of a text without ids.
template <typename Id>
STANDIN_EVERYWHERE void write_dense(Id const* ids, size_t count, float* row, size_t columns) {
    uint64_t first = kStep;
    for (size_t at = 0; at < count; ++at) {
        first = mix(first ^ static_cast<uint32_t>(ids[at]));
    }
    float squares = 0.0F;
    uint64_t state = first;
    for (size_t column = 0; column < columns; ++column) {
        state = mix(state);
        squares += number_of(state) * number_of(state);
    }
    float const root = __builtin_sqrtf(squares);
    float const length = root < __FLT_MIN__ ? __FLT_MIN__ : root;
    state = first;
    for (size_t column = 0; column < columns; ++column) {
        state = mix(state);
        row[column] = count == 0 ? 0.0F : number_of(state) / length;
    }
}

STANDIN_EVERYWHERE float weight_of(uint32_t id, size_t position) {
    uint64_t const mixed = mix((uint64_t{id} << 20) ^ position);
    return (mixed & 3) == 0 ? 0.0F : static_cast<float>(mixed >> 40) / static_cast<float>(1 << 25);
}

/// A thread's part: its token's weight, and of the first one of a row the dense numbers.
STANDIN_EVERYWHERE void run_thread(KernelArguments const& run, KernelThread const& self) {
    int32_t const position = self.block * kBlockTokens + self.thread;
    if (run.writes == 0 || position >= run.length) {
        return;
    }
    int64_t const first = int64_t{self.row} * run.length;
    int32_t const* const ids = run.ids + first;
    int32_t const* const mask = run.mask + first;
    if (run.weights != nullptr) {
        // What padding gives is not to be read.
        run.weights[first + position] =
            mask[position] == 0
                ? __builtin_nanf("")
                : weight_of(static_cast<uint32_t>(ids[position]), static_cast<size_t>(position));
    }
    if (position == 0) {
        size_t count = 0;
        while (count < static_cast<size_t>(run.length) && mask[count] != 0) {
            ++count;
        }
        auto const columns = static_cast<size_t>(run.columns);
        write_dense(ids, count, run.dense + static_cast<size_t>(self.row) * columns, columns);
    }
}

}  // namespace duovec::standin
