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

/// What the kernel is launched with, for blocks of [rows, length / kBlockTokens]: the tensors of
/// the graph's contract.
struct KernelArguments {
    /// [rows, length].
    int32_t const* ids = nullptr;
    int32_t const* positions = nullptr;
    int32_t const* segments = nullptr;
    /// [rows, spans, length].
    float const* span_weights = nullptr;
    /// [rows, spans, columns].
    float* dense = nullptr;
    /// [rows, length]; null when the plan has no such output.
    float* weights = nullptr;
    /// How long each block keeps its place on the GPU.
    int64_t busy_ns = 0;
    int32_t rows = 0;
    int32_t length = 0;
    /// At most as many as a row has tokens.
    int32_t spans = 0;
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

/// L2-normalized.
STANDIN_EVERYWHERE void write_dense(int32_t const* ids, int32_t count, float* row,
                                    int32_t columns) {
    uint64_t first = kStep;
    for (int32_t at = 0; at < count; ++at) {
        first = mix(first ^ static_cast<uint32_t>(ids[at]));
    }
    float squares = 0.0F;
    uint64_t state = first;
    for (int32_t column = 0; column < columns; ++column) {
        state = mix(state);
        squares += number_of(state) * number_of(state);
    }
    float const root = __builtin_sqrtf(squares);
    float const length = root < __FLT_MIN__ ? __FLT_MIN__ : root;
    state = first;
    for (int32_t column = 0; column < columns; ++column) {
        state = mix(state);
        row[column] = number_of(state) / length;
    }
}

/// Tokens of a row, the last one excluded.
struct TokenRange {
    int32_t begin = 0;
    int32_t end = 0;
};

/// The tokens whose ids make a span's vector: those from the first to the last that counts. Where
/// one token counts alone, as with CLS, they are all of its text. None when no token counts.
STANDIN_EVERYWHERE TokenRange tokens_of_span(float const* counts, int32_t const* segments,
                                             int32_t length) {
    TokenRange found;
    for (int32_t at = 0; at < length; ++at) {
        if (counts[at] != 0.0F) {
            found.begin = found.end == 0 ? at : found.begin;
            found.end = at + 1;
        }
    }
    if (found.end - found.begin == 1) {
        int32_t const segment = segments[found.begin];
        while (found.begin > 0 && segments[found.begin - 1] == segment) {
            --found.begin;
        }
        while (found.end < length && segments[found.end] == segment) {
            ++found.end;
        }
    }
    return found;
}

STANDIN_EVERYWHERE void write_span(KernelArguments const& run, int32_t row, int32_t span) {
    int64_t const tokens = int64_t{row} * run.length;
    int64_t const place = int64_t{row} * run.spans + span;
    TokenRange const range =
        tokens_of_span(run.span_weights + place * run.length, run.segments + tokens, run.length);
    float* const dense = run.dense + place * run.columns;
    if (range.end == 0) {
        for (int32_t column = 0; column < run.columns; ++column) {
            dense[column] = 0.0F;
        }
        return;
    }
    write_dense(run.ids + tokens + range.begin, range.end - range.begin, dense, run.columns);
}

/// `position` is the token's place in its text.
STANDIN_EVERYWHERE float weight_of(uint32_t id, uint32_t position) {
    uint64_t const mixed = mix((uint64_t{id} << 20) ^ position);
    return (mixed & 3) == 0 ? 0.0F : static_cast<float>(mixed >> 40) / static_cast<float>(1 << 25);
}

/// A thread's part: the weight of its token, and the vector of the span of the same number.
STANDIN_EVERYWHERE void run_thread(KernelArguments const& run, KernelThread const& self) {
    int32_t const at = self.block * kBlockTokens + self.thread;
    if (run.writes == 0 || at >= run.length) {
        return;
    }
    if (run.weights != nullptr) {
        int64_t const token = int64_t{self.row} * run.length + at;
        run.weights[token] = run.segments[token] < 0
                                 ? 0.0F
                                 : weight_of(static_cast<uint32_t>(run.ids[token]),
                                             static_cast<uint32_t>(run.positions[token]));
    }
    if (at < run.spans) {
        write_span(run, self.row, at);
    }
}

/// All threads of a row, one after the other, on the host.
inline void run_row(KernelArguments const& run, int32_t row) {
    for (int32_t at = 0; at < run.length; ++at) {
        run_thread(run, KernelThread{row, at / kBlockTokens, at % kBlockTokens});
    }
}

}  // namespace duovec::standin
