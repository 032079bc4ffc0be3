// What the stand-ins do when they are used rightly, and each scripted fault.

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "testing/standin_rig.h"

namespace {

using namespace duovec::testing;

constexpr std::int32_t kLength = 32;

/// Of ids 101, 250001 and 7, computed apart from both implementations.
constexpr std::uint32_t kDenseBits[] = {
    0x3ecd5171, 0xbc264e7e, 0x3d092fd1, 0x3df00bf1, 0x3e38ac94, 0x3c3af4a8, 0xbeeb9ba3, 0x3eac6b14,
    0xbcfa13d3, 0xbe20880c, 0xbe98bb32, 0xbe6ab693, 0xbebc0b41, 0xbec1ad1c, 0xbe108b8e, 0x3d1d2bc6};
constexpr std::uint32_t kWeightBits[] = {0x3d8efc48, 0x3e885218, 0x3dcc3458};
constexpr std::uint16_t kDenseHalves[] = {0x366b, 0xa132, 0x2849, 0x2f80, 0x31c5, 0x21d8,
                                          0xb75d, 0x3563, 0xa7d1, 0xb104, 0xb4c6, 0xb356,
                                          0xb5e0, 0xb60d, 0xb084, 0x28e9};

/// Two rows, the first one with the three ids, the second one full of others.
void write_inputs(Rig const& rig) {
    constexpr std::int32_t kIds[] = {101, 250001, 7};
    rig.clear_inputs();
    rig.write_text(0, kLength, 0, 3, 0, [&](std::size_t at) { return kIds[at]; });
    rig.write_text(1, kLength, 0, kLength, 0,
                   [](std::size_t at) { return static_cast<std::int32_t>(kLength + at); });
}

bool has_golden_row(Rig const& rig) {
    return std::memcmp(rig.host + RigLayout::kDense, kDenseBits, sizeof kDenseBits) == 0 &&
           std::memcmp(rig.host + RigLayout::kWeights, kWeightBits, sizeof kWeightBits) == 0;
}

void prepare(Rig& rig) {
    write_inputs(rig);
    CHECK(rig.prepare(2, kLength));
}

}  // namespace

TEST(library_says_what_it_is) {
    CHECK(nvinfer<std::int32_t()>("getInferLibVersion")() == NV_TENSORRT_VERSION);
    CHECK(nvinfer<std::int32_t()>("getInferLibBuildVersion")() == NV_TENSORRT_BUILD);
    fault("version=990100");
    CHECK(nvinfer<std::int32_t()>("getInferLibVersion")() == 990100);
    fault("");
}

TEST(engine_describes_its_plan) {
    Rig const rig(plan_text("float16"));
    trt::ICudaEngine const& engine = *rig.engine;
    CHECK(engine.getNbIOTensors() == 6);
    CHECK(std::string(engine.getIOTensorName(5)) == "token_weights");
    CHECK(engine.getTensorIOMode("input_ids") == trt::TensorIOMode::kINPUT);
    CHECK(engine.getTensorIOMode("dense") == trt::TensorIOMode::kOUTPUT);
    CHECK(engine.getTensorIOMode("other") == trt::TensorIOMode::kNONE);
    CHECK(engine.getTensorDataType("input_ids") == trt::DataType::kINT32);
    CHECK(engine.getTensorDataType("dense") == trt::DataType::kHALF);
    CHECK(engine.getTensorShape("dense").d[2] == kColumns);
    CHECK(engine.getTensorShape("token_weights").d[1] == -1);
    CHECK(engine.getNbOptimizationProfiles() == 2);
    CHECK(engine.getProfileShape("input_ids", 1, trt::OptProfileSelector::kMAX).d[1] == 512);
    CHECK(engine.getProfileShape("span_weights", 0, trt::OptProfileSelector::kOPT).d[1] == 4);
    CHECK(engine.getDeviceMemorySizeForProfileV2(0) == kScratch);
    CHECK(engine.getDeviceMemorySizeV2() == 2 * kScratch);
    CHECK(engine.getNbAuxStreams() == 0);
}

TEST(wrong_arguments_are_refused_with_the_librarys_words) {
    Rig rig;
    prepare(rig);
    auto const said = [&](char const* words) {
        bool const found = contains(rig.listener.recorded, words);
        rig.listener.clear();
        return found;
    };
    CHECK(!rig.context->setInputShape("dense", dims(1, kLength)));
    CHECK(said("setInputShape can only be called for input tensors"));
    CHECK(!rig.context->setInputShape("input_ids", dims(9, kLength)));
    CHECK(said("does not satisfy any optimization profiles"));
    CHECK(!rig.context->setTensorAddress("other", rig.device));
    CHECK(said("other is neither input nor output"));
    CHECK(!rig.context->setInputTensorAddress("dense", rig.device));
    CHECK(said("dense is not an input tensor"));
    CHECK(!rig.context->setOptimizationProfileAsync(2, rig.stream));
    CHECK(!rig.context->setOptimizationProfileAsync(-1, rig.stream));
    CHECK(said("setOptimizationProfileAsync"));
    rig.context->setDeviceMemoryV2(nullptr, kScratch);
    CHECK(said("Cannot set memory to nullptr"));
    rig.context->setDeviceMemoryV2(rig.scratch, kScratch - 1);
    CHECK(said("Provided 4095, required 4096"));
    auto& recorder = static_cast<trt::IErrorRecorder&>(rig.listener);
    rig.engine->setErrorRecorder(&recorder);
    CHECK(rig.engine->getDeviceMemorySizeForProfileV2(2) == 0);
    CHECK(said("(profileIndex) < (nbProfiles)"));
    rig.runtime->setErrorRecorder(&recorder);
    CHECK(rig.runtime->deserializeCudaEngine(nullptr, 0) == nullptr);
    CHECK(said("blob != nullptr && size > 0"));
    rig.runtime->setErrorRecorder(nullptr);
    auto const own = trt::ExecutionContextAllocationStrategy::kSTATIC;
    std::unique_ptr<trt::IExecutionContext> const context(rig.engine->createExecutionContext(own));
    CHECK((context == nullptr) == kIsRtx);
    CHECK(said("kREQUIRE_USER_ALLOCATION") == kIsRtx);
    rig.engine->setErrorRecorder(nullptr);
}

TEST(plan_of_another_flavour_is_refused) {
    std::string plan = plan_text();
    plan.replace(plan.find("tensorrt"), 8, "something");
    CHECK(contains(thrown([&] { Rig const rig(plan); }), "it is no plan of"));
    CHECK(contains(thrown([] { Rig const rig(plan_text() + "more\n"); }), "bad line 'more'"));
    auto const fixed = [] { Rig const rig(plan_text() + "output other float32 4 8\n"); };
    CHECK(contains(thrown(fixed), "a tensor of another shape"));
    CHECK(live() == 0);
}

TEST(plain_run_gives_expected_rows) {
    Rig rig;
    prepare(rig);
    CHECK(rig.context->getTensorShape("dense").d[0] == 2);
    CHECK(rig.context->getTensorShape("token_weights").d[1] == kLength);
    CHECK(rig.context->allInputDimensionsSpecified());
    CHECK(rig.context->inferShapes(0, nullptr) == 0);
    long const before = count("enqueue");
    rig.run();
    CHECK(count("enqueue") == before + 1);
    CHECK(has_golden_row(rig));
    auto const is_zero = [](float one) { return one == 0; };
    float const* const weights = rig.at<float>(RigLayout::kWeights);
    CHECK(std::all_of(weights + 3, weights + kLength, is_zero));
    CHECK(!std::all_of(weights + kLength, weights + 2 * kLength, is_zero));
    // Of the spans that nobody wants.
    float const* const dense = rig.at<float>(RigLayout::kDense);
    CHECK(std::all_of(dense + kColumns, dense + 4 * kColumns, is_zero));
}

TEST(a_text_gives_the_same_wherever_it_lies_and_whether_all_its_tokens_count_or_the_first) {
    constexpr std::int32_t kIds[] = {101, 250001, 7};
    Rig rig;
    CHECK(rig.prepare(1, kLength));
    for (bool const first_counts_alone : {false, true}) {
        rig.clear_inputs();
        rig.write_text(0, kLength, 0, 6, 0, [](std::size_t) { return 5; });
        rig.write_text(0, kLength, 6, 3, 1, [&](std::size_t at) { return kIds[at]; });
        rig.write_text(0, kLength, 9, 4, 2, [](std::size_t) { return 8; });
        float* const counts = rig.at<float>(RigLayout::kCounts) + kLength + 6;
        std::fill_n(counts + 1, 2, first_counts_alone ? 0.0F : counts[0]);
        rig.run();
        float const* const dense = rig.at<float>(RigLayout::kDense) + kColumns;
        float const* const weights = rig.at<float>(RigLayout::kWeights) + 6;
        CHECK(std::memcmp(dense, kDenseBits, sizeof kDenseBits) == 0);
        CHECK(std::memcmp(weights, kWeightBits, sizeof kWeightBits) == 0);
    }
}

TEST(outputs_read_too_early_are_no_numbers) {
    Rig rig;
    prepare(rig);
    rig.run();
    fault("run_us=200000");
    CHECK(rig.context->enqueueV3(rig.stream));
    expect(rig.copy_out());
    // No race although the copy is under way: it cannot have begun.
    CHECK(std::isnan(rig.at<float>(RigLayout::kDense)[0]));
    fault("");
    expect(rig.synchronize());
    CHECK(has_golden_row(rig));
}

TEST(halves) {
    Rig rig(plan_text("float16"));
    write_inputs(rig);
    CHECK(rig.prepare(2, kLength));
    rig.run();
    CHECK(std::memcmp(rig.host + RigLayout::kDense, kDenseHalves, sizeof kDenseHalves) == 0);
}

TEST(replay_equals_plain_run) {
    Rig rig;
    prepare(rig);
    rig.run();
    std::vector<char> const plain(rig.host + RigLayout::kDense, rig.host + RigLayout::kBytes);
    long const captures = count("capture");
    CHECK(rig.capture() == cudaSuccess);
    CHECK(count("capture") == captures + 1);
    std::memset(rig.host + RigLayout::kDense, 0, RigLayout::kBytes - RigLayout::kDense);
    long const launches = count("graph_launch");
    for (int round = 0; round < 3; ++round) {
        CHECK(CUDA(cudaMemsetAsync)(rig.device + RigLayout::kDense, 0,
                                    RigLayout::kBytes - RigLayout::kDense,
                                    rig.stream) == cudaSuccess);
        CHECK(CUDA(cudaGraphLaunch)(rig.exec, rig.stream) == cudaSuccess);
    }
    expect(rig.copy_out());
    expect(rig.synchronize());
    CHECK(count("graph_launch") == launches + 3);
    CHECK(has_golden_row(rig));
    CHECK(std::memcmp(rig.host + RigLayout::kDense, plain.data(), 2 * kColumns * 4) == 0);
}

TEST(capture_needs_a_run_before) {
    Rig rig;
    prepare(rig);
    CHECK(rig.capture() == cudaErrorStreamCaptureInvalidated);
    CHECK(contains(rig.listener.recorded, "cannot be captured before it ran"));
    rig.run();
    rig.reshape(1, kLength);
    CHECK(rig.capture() == cudaErrorStreamCaptureInvalidated);
    rig.run();
    CHECK(rig.capture() == cudaSuccess);
}

TEST(calls_that_break_a_capture) {
    Rig rig;
    cudaGraph_t graph = nullptr;
    void* memory = nullptr;
    cudaEvent_t event = nullptr;
    expect(CUDA(cudaEventCreateWithFlags)(&event, 0U));
    auto const broken = [&](auto const& body) {
        expect(CUDA(cudaStreamBeginCapture)(rig.stream, cudaStreamCaptureModeThreadLocal));
        bool const refused = body() == cudaErrorStreamCaptureUnsupported;
        return CUDA(cudaStreamEndCapture)(rig.stream, &graph) ==
                   cudaErrorStreamCaptureInvalidated &&
               graph == nullptr && refused;
    };
    CHECK(broken([&] { return CUDA(cudaMalloc)(&memory, std::size_t{8}); }));
    CHECK(broken([&] { return CUDA(cudaFree)(static_cast<void*>(rig.device)); }));
    CHECK(broken([&] { return CUDA(cudaHostAlloc)(&memory, std::size_t{8}, 0U); }));
    CHECK(broken([&] { return rig.synchronize(); }));
    CHECK(broken([&] { return CUDA(cudaEventSynchronize)(event); }));
    CHECK(!broken([&] { return CUDA(cudaGetLastError)(); }));
    CHECK(graph != nullptr);
    expect(CUDA(cudaGraphDestroy)(graph));
    expect(CUDA(cudaEventDestroy)(event));
}

TEST(threads_and_devices_work_beside_each_other) {
    std::atomic<int> right = 0;
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; ++number) {
        threads.emplace_back([&right, number] {
            CUDA(cudaSetDevice)(number % 2);
            Rig rig;
            write_inputs(rig);
            bool golden = rig.prepare(2, kLength);
            for (int round = 0; round < 20; ++round) {
                rig.run();
                golden = golden && has_golden_row(rig);
            }
            golden = golden && rig.capture() == cudaSuccess;
            for (int round = 0; golden && round < 20; ++round) {
                std::memset(rig.host + RigLayout::kDense, 0, RigLayout::kBytes - RigLayout::kDense);
                golden = CUDA(cudaGraphLaunch)(rig.exec, rig.stream) == cudaSuccess &&
                         rig.copy_out() == cudaSuccess && rig.synchronize() == cudaSuccess &&
                         has_golden_row(rig);
            }
            right += golden ? 1 : 0;
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(right == 4);
    CHECK(live() == 0);
}

TEST(events_tell_the_time) {
    Rig rig;
    prepare(rig);
    rig.run();
    cudaEvent_t start = nullptr;
    cudaEvent_t end = nullptr;
    float milliseconds = 0;
    expect(CUDA(cudaEventCreateWithFlags)(&start, 0U));
    expect(CUDA(cudaEventCreateWithFlags)(&end, 0U));
    CHECK(CUDA(cudaEventElapsedTime)(&milliseconds, start, end) == cudaErrorInvalidResourceHandle);
    fault("run_us=200000");
    expect(CUDA(cudaEventRecord)(start, rig.stream));
    CHECK(rig.context->enqueueV3(rig.stream));
    expect(CUDA(cudaEventRecord)(end, rig.stream));
    CHECK(CUDA(cudaEventElapsedTime)(&milliseconds, start, end) == cudaErrorNotReady);
    CHECK(CUDA(cudaStreamQuery)(rig.stream) == cudaErrorNotReady);
    expect(CUDA(cudaEventSynchronize)(end));
    expect(CUDA(cudaEventElapsedTime)(&milliseconds, start, end));
    CHECK(milliseconds >= 200 && milliseconds < 20000);
    CHECK(CUDA(cudaStreamQuery)(rig.stream) == cudaSuccess);
    fault("");
    expect(CUDA(cudaEventDestroy)(start));
    expect(CUDA(cudaEventDestroy)(end));
}

TEST(shape_outside_the_profile_is_refused) {
    Rig rig;
    CHECK(!rig.prepare(9, kLength));
    CHECK(contains(rig.listener.recorded, "does not satisfy any optimization profiles"));
    CHECK(!rig.prepare(1, 129));
    CHECK(rig.prepare(8, 128));
    CHECK(!rig.context->setOptimizationProfileAsync(2, rig.stream));
    CHECK(!rig.context->setInputShape("dense", dims(1, 1)));
}

TEST(scratch_is_checked_against_the_selected_profile) {
    Rig rig;
    CHECK(rig.context->getOptimizationProfile() == 0);
    rig.context->setDeviceMemoryV2(rig.scratch, kScratch - 1);
    CHECK(contains(rig.listener.recorded, "The provided memory size is too small"));
    write_inputs(rig);
    CHECK(rig.prepare(1, kLength));
    CHECK(rig.context->setOptimizationProfileAsync(1, rig.stream));
    rig.listener.recorded.clear();
    rig.context->setDeviceMemoryV2(rig.scratch, kScratch);
    CHECK(contains(rig.listener.recorded, "Provided 4096, required 8192"));
    expect(rig.synchronize());
    rig.context.reset(
        rig.engine->createExecutionContext(trt::ExecutionContextAllocationStrategy::kUSER_MANAGED));
    rig.context->setErrorRecorder(&static_cast<trt::IErrorRecorder&>(rig.listener));
    rig.context->setDeviceMemoryV2(rig.scratch, kScratch - 1);
    rig.reshape(1, kLength);
    rig.bind(rig.device);
    CHECK(!rig.context->enqueueV3(rig.stream));
    CHECK(contains(rig.listener.recorded, "setDeviceMemoryV2 should be called before"));
}

TEST(recorder_is_counted) {
    Rig rig;
    CHECK(rig.listener.references == 1);
    rig.engine->setErrorRecorder(&static_cast<trt::IErrorRecorder&>(rig.listener));
    CHECK(rig.listener.references == 2);
    rig.context.reset();
    rig.engine.reset();
    CHECK(rig.listener.references == 0);
}

TEST(runtime_config_makes_contexts) {
    Rig rig;
    std::unique_ptr<trt::IRuntimeConfig> const config(rig.engine->createRuntimeConfig());
    config->setExecutionContextAllocationStrategy(
        trt::ExecutionContextAllocationStrategy::kUSER_MANAGED);
#ifdef DUOVEC_RTX
    std::unique_ptr<trt::IRuntimeCache> const cache(config->createRuntimeCache());
    CHECK(config->setRuntimeCache(*cache));
    CHECK(config->setCudaGraphStrategy(trt::CudaGraphStrategy::kDISABLED));
    config->setDynamicShapesKernelSpecializationStrategy(
        trt::DynamicShapesKernelSpecializationStrategy::kEAGER);
    CHECK(rig.context->isStreamCapturable(rig.stream));
    std::string const plan = plan_text();
    std::uint64_t problems = 0;
    CHECK(rig.runtime->getEngineHeaderSize() < static_cast<std::int64_t>(plan.size()));
    CHECK(rig.runtime->getEngineValidity(plan.data(), rig.runtime->getEngineHeaderSize(),
                                         &problems) == trt::EngineValidity::kVALID);
    fault("unsupported_device");
    CHECK(rig.runtime->getEngineValidity(plan.data(), 60, &problems) ==
          trt::EngineValidity::kINVALID);
    CHECK(problems ==
          static_cast<std::uint64_t>(trt::EngineInvalidityDiagnostics::kUNSUPPORTED_CC));
    fault("");
#endif
    rig.context.reset(rig.engine->createExecutionContext(config.get()));
    prepare(rig);
    rig.run();
    CHECK(has_golden_row(rig));
}

TEST(faults_of_the_device) {
    int devices = 0;
    fault("no_device");
    CHECK(CUDA(cudaGetDeviceCount)(&devices) == cudaErrorNoDevice);
    fault("");
    fault("no_driver");
    CHECK(CUDA(cudaGetDeviceCount)(&devices) == cudaErrorInsufficientDriver);
    CHECK(CUDA(cudaSetDevice)(0) == cudaErrorInsufficientDriver);
    fault("");
    CHECK(CUDA(cudaGetDeviceCount)(&devices) == cudaSuccess && devices == 2);
    CHECK(CUDA(cudaGetLastError)() == cudaErrorInsufficientDriver);
    CHECK(CUDA(cudaGetLastError)() == cudaSuccess);
    fault("runtime_0x228");
    ErrorListener listener;
    std::unique_ptr<trt::IRuntime> runtime = make_runtime(listener);
    CHECK(reinterpret_cast<std::uintptr_t>(runtime.release()) == 0x228);
    fault("");
}

TEST(faults_of_memory_and_streams) {
    void* memory = nullptr;
    cudaStream_t stream = nullptr;
    fault("malloc_fails,host_alloc_fails,stream_fails");
    CHECK(CUDA(cudaMalloc)(&memory, std::size_t{8}) == cudaErrorMemoryAllocation);
    CHECK(CUDA(cudaHostAlloc)(&memory, std::size_t{8}, 0U) == cudaErrorMemoryAllocation);
    CHECK(CUDA(cudaStreamCreateWithFlags)(&stream, cudaStreamNonBlocking) != cudaSuccess);
    fault("");
    fault("malloc_fails_over=100");
    CHECK(CUDA(cudaMalloc)(&memory, std::size_t{101}) == cudaErrorMemoryAllocation);
    CHECK(CUDA(cudaMalloc)(&memory, std::size_t{100}) == cudaSuccess);
    expect(CUDA(cudaFree)(memory));
    fault("");
    CHECK(CUDA(cudaMalloc)(&memory, std::size_t{9} << 30) == cudaErrorMemoryAllocation);
    CHECK(live() == 0);
}

TEST(faults_of_the_engine) {
    fault("deserialize_fails");
    CHECK(contains(thrown([] { Rig const rig; }), "scripted"));
    fault("");
    fault("unsupported_device");
    CHECK(contains(thrown([] { Rig const rig; }), "does not support this compute capability"));
    fault("");
    Rig const rig;
    fault("context_fails");
    CHECK(rig.engine->createExecutionContext() == nullptr);
    fault("");
    CHECK(contains(rig.listener.logged, "out of memory"));
}

TEST(faults_of_single_calls) {
    Rig rig;
    prepare(rig);
    fault("enqueue_fails=2");
    rig.run();
    CHECK(contains(thrown([&] { rig.run(); }), "scripted: it fails"));
    CHECK(contains(rig.listener.logged, "scripted: it fails"));
    expect(rig.synchronize());
    rig.run();
    fault("copy_fails=1");
    CHECK(rig.copy_in() == cudaErrorInvalidValue);
    CHECK(rig.copy_in() == cudaSuccess);
    fault("nan=2");
    rig.run();
    CHECK(has_golden_row(rig));
    rig.run();
    CHECK(std::isnan(rig.at<float>(RigLayout::kDense)[0]) &&
          std::isnan(rig.at<float>(RigLayout::kDense)[kColumns - 1]) &&
          !std::isnan(rig.at<float>(RigLayout::kDense)[kColumns]));
}

TEST(faults_of_graphs) {
    Rig rig;
    prepare(rig);
    rig.run();
    fault("capture_fails");
    CHECK(rig.capture() == cudaErrorStreamCaptureInvalidated);
    fault("");
    fault("capture_enqueue_fails");
    CHECK(rig.capture() == cudaErrorStreamCaptureInvalidated);
    fault("");
    fault("instantiate_fails");
    CHECK(rig.capture() == cudaErrorMemoryAllocation);
    fault("");
    CHECK(rig.capture() == cudaSuccess);
    fault("launch_fails=2");
    CHECK(CUDA(cudaGraphLaunch)(rig.exec, rig.stream) == cudaSuccess);
    CHECK(CUDA(cudaGraphLaunch)(rig.exec, rig.stream) == cudaErrorLaunchOutOfResources);
    CHECK(CUDA(cudaGraphLaunch)(rig.exec, rig.stream) == cudaSuccess);
    expect(rig.synchronize());
}

// In processes of their own, which they spoil; "done" is how they say that all was as expected.
TEST(faults_that_stay) {
    auto const done = [](bool holds) {
        if (holds) {
            duovec::standin::contract("done");
        }
    };
    auto const sticky = aborted([&] {
        bool failed = false;
        {
            Rig rig;
            prepare(rig);
            fault("sticky=2");
            rig.run();
            rig.context->enqueueV3(rig.stream);
            failed = rig.synchronize() == cudaErrorIllegalAddress &&
                     CUDA(cudaGetLastError)() == cudaErrorIllegalAddress &&
                     CUDA(cudaGetLastError)() == cudaErrorIllegalAddress &&
                     rig.copy_in() == cudaErrorIllegalAddress &&
                     !rig.context->enqueueV3(rig.stream);
            static_cast<void>(rig.context.release());
            static_cast<void>(rig.engine.release());
            static_cast<void>(rig.runtime.release());
        }
        done(failed && live() == 3);
    });
    CHECK(contains(sticky, "contract: done"));
    auto const hang = aborted([&] {
        Rig rig;
        prepare(rig);
        fault("hang=1");
        rig.context->enqueueV3(rig.stream);
        usleep(50000);
        done(CUDA(cudaStreamQuery)(rig.stream) == cudaErrorNotReady);
    });
    CHECK(contains(hang, "contract: done"));
}

TEST(nothing_is_left) { CHECK(live() == 0); }
