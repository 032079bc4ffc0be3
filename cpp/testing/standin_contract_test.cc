// That the stand-ins end the process when they are used wrongly.

#include <thread>

#include "testing/standin_rig.h"

namespace {

using namespace duovec::testing;

constexpr std::int32_t kLength = 32;

void prepare(Rig& rig) {
    rig.clear_inputs();
    rig.write_text(0, kLength, 0, 4, 0, [](std::size_t) { return 5; });
    rig.write_text(0, kLength, 4, 4, 1, [](std::size_t) { return 6; });
    rig.prepare(2, kLength);
}

/// Whether `body` ends the process, once `rig` has run once, and says `text`.
template <typename Body>
bool breaks(char const* text, Body const& body) {
    std::string const said = aborted([&] {
        Rig rig;
        prepare(rig);
        rig.run();
        body(rig);
        rig.synchronize();
    });
    if (!contains(said, text)) {
        std::fprintf(stderr, "not '%s' but '%s'\n", text, said.c_str());
    }
    return !said.starts_with("not aborted") && contains(said, "contract: ") && contains(said, text);
}

cudaStream_t another_stream() {
    cudaStream_t stream = nullptr;
    expect(CUDA(cudaStreamCreateWithFlags)(&stream, cudaStreamNonBlocking));
    return stream;
}

void slow_enqueue(Rig const& rig) {
    fault("run_us=500000");
    rig.context->enqueueV3(rig.stream);
}

}  // namespace

TEST(streams) {
    CHECK(breaks("default stream", [](Rig& rig) { rig.context->enqueueV3(nullptr); }));
    CHECK(breaks("default stream", [](Rig& rig) {
        rig.stream = cudaStreamPerThread;
        rig.copy_in();
    }));
    CHECK(breaks("not created non-blocking", [](Rig&) {
        cudaStream_t stream = nullptr;
        CUDA(cudaStreamCreateWithFlags)(&stream, cudaStreamDefault);
    }));
    CHECK(breaks("destroyed with unfinished work", [](Rig& rig) {
        slow_enqueue(rig);
        CUDA(cudaStreamDestroy)(rig.stream);
    }));
    CHECK(breaks("no stream or a destroyed one", [](Rig& rig) {
        CUDA(cudaStreamDestroy)(rig.stream);
        rig.copy_in();
    }));
}

TEST(memory) {
    CHECK(breaks("source is not in allocated memory", [](Rig& rig) {
        std::vector<char> pageable(RigLayout::kBytes);
        rig.host = pageable.data();
        rig.copy_in();
    }));
    CHECK(breaks("target needs 77824 bytes, 77823 are there", [](Rig& rig) {
        rig.device += RigLayout::kBytes - RigLayout::kDense + 1;
        rig.copy_in();
    }));
    CHECK(breaks("source is device memory", [](Rig& rig) {
        CUDA(cudaMemcpyAsync)(rig.device, rig.device, std::size_t{8}, cudaMemcpyHostToDevice,
                              rig.stream);
    }));
    CHECK(breaks("freed by cudaFree while unfinished work uses it", [](Rig& rig) {
        slow_enqueue(rig);
        CUDA(cudaFree)(static_cast<void*>(rig.device));
    }));
    CHECK(breaks("its host memory was changed before it ran", [](Rig& rig) {
        slow_enqueue(rig);
        rig.copy_in();
        rig.host[0] = 1;
    }));
    CHECK(breaks("of an address that is not allocated",
                 [](Rig& rig) { CUDA(cudaFreeHost)(static_cast<void*>(rig.device)); }));
    CHECK(breaks("of device 0 is used on a stream of device 1", [](Rig& rig) {
        CUDA(cudaSetDevice)(1);
        rig.stream = another_stream();
        rig.copy_in();
    }));
    CHECK(breaks("while device 1 is current", [](Rig& rig) {
        CUDA(cudaSetDevice)(1);
        rig.copy_in();
    }));
}

TEST(mapped_memory) {
    CHECK(breaks("tensor dense is host memory", [](Rig& rig) {
        rig.context->setOutputTensorAddress("dense", rig.host + RigLayout::kDense);
        rig.context->enqueueV3(rig.stream);
    }));
    CHECK(breaks("its host memory was changed before it ran", [](Rig& rig) {
        rig.use_mapping();
        slow_enqueue(rig);
        rig.host[0] = 1;
    }));
    CHECK(breaks("freed by cudaFreeHost while unfinished work uses it", [](Rig& rig) {
        rig.use_mapping();
        slow_enqueue(rig);
        CUDA(cudaFreeHost)(static_cast<void*>(rig.host));
    }));
    CHECK(breaks("are in flight on two streams and share", [](Rig& rig) {
        rig.use_mapping();
        slow_enqueue(rig);
        rig.stream = another_stream();
        rig.copy_out();
    }));
    CHECK(breaks("tensor input_ids", [](Rig& rig) {
        rig.use_mapping();
        rig.context->enqueueV3(rig.stream);
        rig.synchronize();
        rig.capture();
        CUDA(cudaFreeHost)(static_cast<void*>(rig.host));
        // May be given the same address.
        CUDA(cudaHostAlloc)(reinterpret_cast<void**>(&rig.host), RigLayout::kBytes,
                            unsigned{cudaHostAllocMapped});
        CUDA(cudaGraphLaunch)(rig.exec, rig.stream);
    }));
}

TEST(memory_without_a_mapping) {
    Rig const rig;
    void* plain = nullptr;
    expect(CUDA(cudaHostAlloc)(&plain, std::size_t{8}, 0U));
    void* mapping = nullptr;
    CHECK(CUDA(cudaHostGetDevicePointer)(&mapping, plain, 0U) == cudaErrorInvalidValue);
    void* const host = rig.host;
    fault("mapping_fails");
    CHECK(CUDA(cudaHostGetDevicePointer)(&mapping, host, 0U) == cudaErrorInvalidValue);
    fault("");
    CHECK(CUDA(cudaHostGetDevicePointer)(&mapping, host, 0U) == cudaSuccess);
    CHECK(mapping != host);
    expect(CUDA(cudaFreeHost)(plain));
}

TEST(contexts) {
    CHECK(breaks("is not at a multiple of 256 bytes", [](Rig& rig) {
        rig.context->setInputTensorAddress("input_ids", rig.device + 4);
    }));
    CHECK(breaks("has no shape, or a refused one", [](Rig& rig) {
        rig.context->setInputShape("input_ids", dims(9, kLength));
        rig.context->enqueueV3(rig.stream);
    }));
    CHECK(breaks("inputs have different shapes", [](Rig& rig) {
        rig.context->setInputShape("input_ids", dims(1, kLength));
        rig.context->enqueueV3(rig.stream);
    }));
    CHECK(breaks("has no address", [](Rig& rig) {
        rig.context->setTensorAddress("dense", nullptr);
        rig.context->enqueueV3(rig.stream);
    }));
    CHECK(breaks("4096 bytes of scratch, 8192 are needed", [](Rig& rig) {
        rig.context->setOptimizationProfileAsync(1, rig.stream);
        rig.reshape(1, kLength);
        rig.context->enqueueV3(rig.stream);
    }));
    CHECK(breaks("scratch needs 4096 bytes, 3840 are there", [](Rig& rig) {
        rig.context->setDeviceMemoryV2(static_cast<char*>(rig.scratch) + 256, kScratch);
        rig.context->enqueueV3(rig.stream);
    }));
}

TEST(inputs) {
    CHECK(breaks("texts of a row are not numbered", [](Rig& rig) {
        std::fill_n(rig.at<std::int32_t>(RigLayout::kSegments) + 4, 4, 2);
        rig.run();
    }));
    CHECK(breaks("positions do not count the tokens of each text", [](Rig& rig) {
        rig.at<std::int32_t>(RigLayout::kPositions)[4] = 4;
        rig.run();
    }));
    CHECK(breaks("a span is not a part of one text", [](Rig& rig) {
        rig.at<float>(RigLayout::kCounts)[4] = 0.25F;
        rig.run();
    }));
    CHECK(breaks("the id -1 is out of range", [](Rig& rig) {
        rig.at<std::int32_t>(RigLayout::kIds)[9] = -1;
        rig.run();
    }));
}

TEST(two_at_once) {
    CHECK(breaks("is used on two streams at once", [](Rig& rig) {
        slow_enqueue(rig);
        rig.context->enqueueV3(another_stream());
    }));
    CHECK(breaks("share scratch", [](Rig& rig) {
        Rig other;
        prepare(other);
        other.run();
        other.context->setDeviceMemoryV2(rig.scratch, kScratch);
        slow_enqueue(rig);
        other.context->enqueueV3(other.stream);
    }));
    CHECK(breaks("is used by two threads at once", [](Rig& rig) {
        auto const work = [&] {
            for (;;) {
                rig.context->setInputShape("input_ids", dims(2, kLength));
            }
        };
        std::thread(work).detach();
        work();
    }));
}

TEST(graphs) {
    CHECK(breaks("setInputShape while an executable graph", [](Rig& rig) {
        rig.capture();
        rig.context->setInputShape("input_ids", dims(1, kLength));
    }));
    CHECK(breaks("enqueueV3 while an executable graph", [](Rig& rig) {
        rig.capture();
        rig.context->enqueueV3(rig.stream);
    }));
    CHECK(breaks("is destroyed while an executable graph", [](Rig& rig) {
        rig.capture();
        rig.context.reset();
    }));
    CHECK(breaks("tensor input_ids", [](Rig& rig) {
        rig.capture();
        CUDA(cudaFree)(static_cast<void*>(rig.device));
        // May be given the same address; the graph must not run on it all the same.
        CUDA(cudaMalloc)(reinterpret_cast<void**>(&rig.device), RigLayout::kBytes);
        CUDA(cudaGraphLaunch)(rig.exec, rig.stream);
    }));
    CHECK(breaks("an executable graph is destroyed while unfinished work", [](Rig& rig) {
        rig.capture();
        fault("run_us=500000");
        CUDA(cudaGraphLaunch)(rig.exec, rig.stream);
        CUDA(cudaGraphExecDestroy)(rig.exec);
    }));
}

TEST(order_of_destruction) {
    CHECK(
        breaks("a runtime is destroyed before its engine", [](Rig& rig) { rig.runtime.reset(); }));
    CHECK(
        breaks("an engine is destroyed before its context", [](Rig& rig) { rig.engine.reset(); }));
    CHECK(breaks("is destroyed while unfinished work", [](Rig& rig) {
        slow_enqueue(rig);
        rig.context.reset();
    }));
}

TEST(what_is_not_provided) {
    CHECK(contains(aborted([] {
                       Rig rig;
                       rig.context->setDebugSync(true);
                   }),
                   "duovec stand-in: IExecutionContext::setDebugSync is not provided"));
    CHECK(contains(aborted([] { fault("mallloc_fails"); }), "unknown fault 'mallloc_fails'"));
}

TEST(device_memory_cannot_be_touched) {
    Rig const rig;
    pid_t const child = fork();
    if (child == 0) {
        close(STDERR_FILENO);
        *static_cast<char volatile*>(rig.device) = 1;
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
}
