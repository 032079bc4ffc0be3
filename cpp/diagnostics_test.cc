#include "diagnostics.h"

#include <thread>

#include "testing/check.h"

using duovec::DUOVEC_FLAVOUR::Diagnostics;
using duovec::DUOVEC_FLAVOUR::Hearing;
using duovec::DUOVEC_FLAVOUR::logger;
using duovec::testing::contains;
using nvinfer1::ErrorCode;
using nvinfer1::ILogger;

namespace {

/// What reached the sink last.
struct LoggedLine {
    duovec::Severity severity = duovec::Severity::kVerbose;
    std::string text;
};

LoggedLine& last_line() {
    static LoggedLine line;
    return line;
}

void keep(duovec::Flavour, duovec::Severity severity, std::string_view text) {
    last_line() = {severity, std::string(text)};
}

}  // namespace

TEST(log_and_recorder_become_one_message) {
    Diagnostics diagnostics;
    logger().log(ILogger::Severity::kERROR,
                 "WeightsContext.cpp:203: Failed to open file: /a/model.data");
    diagnostics.reportError(ErrorCode::kINVALID_STATE, "a state that nobody expected");
    diagnostics.reportError(ErrorCode::kINVALID_STATE, "Failed to open file: /a/mod");
    CHECK(diagnostics.errors("nothing") ==
          "Failed to open file: /a/model.data; a state that nobody expected");
}

TEST(without_errors_the_fallback_stands) {
    Diagnostics const diagnostics;
    CHECK(diagnostics.errors("it gives no reason") == "it gives no reason");
}

TEST(the_missing_gpu_is_no_error_of_a_build) {
    Diagnostics diagnostics;
    logger().log(ILogger::Severity::kERROR,
                 "[device.cpp::catchCudaError::12] no CUDA-capable device");
    diagnostics.reportError(ErrorCode::kINTERNAL_ERROR, "In catchCudaError at device.cpp");
    CHECK(diagnostics.errors("none") == "none");
}

TEST(the_list_of_layers_is_counted) {
    Diagnostics const diagnostics;
    logger().log(ILogger::Severity::kVERBOSE,
                 "Layers:\nName: _gemm_mha_v2_myl0_17, LayerType: kgen\n");
    CHECK(diagnostics.told().layers.all == 1 && diagnostics.told().layers.fused_attentions == 1);
    logger().log(ILogger::Severity::kINFO, "Layers are none of this");
    CHECK(diagnostics.told().layers.all == 1);
}

TEST(lines_are_put_on_one_line_and_frames_dropped) {
    Diagnostics diagnostics;
    logger().log(ILogger::Severity::kERROR, "ModelImporter.cpp:142: --- Begin node ---\nname: a");
    logger().log(ILogger::Severity::kERROR,
                 "ModelImporter.cpp:151: ERROR: a.cpp:9 In function f:\n[6] bad");
    logger().log(ILogger::Severity::kERROR, "a broken\n   thing\tindeed");
    CHECK(diagnostics.errors("") == "a broken thing indeed");
}

TEST(failed_allocations_are_out_of_memory) {
    Diagnostics diagnostics;
    CHECK(diagnostics.kind(duovec::ErrorKind::kModel) == duovec::ErrorKind::kModel);
    diagnostics.reportError(ErrorCode::kFAILED_ALLOCATION, "12 GB");
    CHECK(diagnostics.kind(duovec::ErrorKind::kModel) == duovec::ErrorKind::kOutOfMemory);
}

TEST(scratch_memory_is_read_profile_by_profile) {
    Diagnostics diagnostics;
    logger().log(ILogger::Severity::kINFO, "Total Activation Memory: 10290176 bytes");
    logger().log(ILogger::Severity::kINFO, "Total Activation Memory: many bytes");
    logger().log(ILogger::Severity::kINFO, "Total Activation Memory: 75530240 bytes");
    CHECK((diagnostics.told().scratch_bytes == std::vector<std::int64_t>{10290176, 75530240}));
}

TEST(warnings_are_kept_once) {
    Diagnostics diagnostics;
    logger().log(ILogger::Severity::kWARNING, "Unused Input: segments");
    logger().log(ILogger::Severity::kWARNING, "Unused Input: segments");
    logger().log(ILogger::Severity::kWARNING, "Make sure input input_ids has Int64 binding.");
    CHECK(diagnostics.told().warnings == std::vector<std::string>{"Unused Input: segments"});
}

TEST(what_is_reported_as_one_message_is_no_error_line_too) {
    duovec::DUOVEC_FLAVOUR::set_log_sink(keep);
    {
        Diagnostics const diagnostics;
        logger().log(ILogger::Severity::kERROR, "while somebody gathers");
        CHECK(last_line().severity == duovec::Severity::kVerbose);
        logger().log(ILogger::Severity::kWARNING, "while somebody gathers warnings");
        CHECK(last_line().severity == duovec::Severity::kVerbose);
    }
    logger().log(ILogger::Severity::kERROR, "while nobody gathers");
    CHECK(last_line().severity == duovec::Severity::kError);
    CHECK(last_line().text == "while nobody gathers");
    duovec::DUOVEC_FLAVOUR::set_log_sink(nullptr);
}

TEST(warnings_that_nobody_reports_stay_warnings) {
    duovec::DUOVEC_FLAVOUR::set_log_sink(keep);
    Diagnostics const loading(Hearing::kErrors);
    Diagnostics const loading_beside_it(Hearing::kErrors);
    logger().log(ILogger::Severity::kERROR, "it cannot be read");
    CHECK(last_line().severity == duovec::Severity::kVerbose);
    logger().log(ILogger::Severity::kWARNING, "it is of another GPU");
    CHECK(last_line().severity == duovec::Severity::kWarning);
    CHECK(loading.errors("nothing") == "it cannot be read");
    duovec::DUOVEC_FLAVOUR::set_log_sink(nullptr);
}

TEST(many_threads_may_speak_at_once) {
    Diagnostics diagnostics;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
            for (int count = 0; count < 200; ++count) {
                std::string const text = std::to_string(thread) + "/" + std::to_string(count);
                logger().log(ILogger::Severity::kERROR, text.c_str());
                diagnostics.reportError(ErrorCode::kINTERNAL_ERROR, text.c_str());
                diagnostics.incRefCount();
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(diagnostics.decRefCount() == 799);
    CHECK(diagnostics.hasOverflowed());
    CHECK(!diagnostics.errors("").empty());
    CHECK(contains(diagnostics.getErrorDesc(0), "/"));
    CHECK(std::string(diagnostics.getErrorDesc(-1)).empty());
}
