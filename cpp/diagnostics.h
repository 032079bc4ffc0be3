// What the library says, gathered: its log, its error recorder and its parser's errors become one
// message, because each of them alone leaves things out.
//
// Thread safety: everything here may be called from the library's threads at once. Ownership: the
// logger is one for the process and is never destroyed, since the library keeps the first one it
// is given. A Diagnostics must outlive every object it was set on as recorder.
// Preconditions: set_log_sink before the first library object is created.

#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "error.h"
#include "flavour.h"
#include "fusion.h"

namespace duovec::DUOVEC_FLAVOUR {

/// The process's logger: to the sink, and to every living Diagnostics.
nvinfer1::ILogger& logger();

/// Where lines go; nowhere before the first call.
void set_log_sink(LogSink sink);

/// What a Diagnostics gathers beside what it is given as recorder.
enum class Hearing {
    /// The process's log too. Errors and warnings then reach the sink as kVerbose only: whoever
    /// made the Diagnostics reports them once.
    kLog,
    /// The log's errors alone: who reports no warnings leaves them to the sink as they are.
    kErrors,
    /// Nothing, so that it may live as long as an engine.
    kRecorder,
};

/// What the log tells beside errors.
struct LogFacts {
    /// Each once.
    std::vector<std::string> warnings;
    /// One number for each profile in their order.
    std::vector<std::int64_t> scratch_bytes;
    /// Of the last list.
    LayerCounts layers;
};

/// Gathers what is said while it lives.
class Diagnostics final : public nvinfer1::IErrorRecorder {
 public:
    explicit Diagnostics(Hearing hearing = Hearing::kLog);
    ~Diagnostics() noexcept override;
    Diagnostics(Diagnostics const&) = delete;
    Diagnostics& operator=(Diagnostics const&) = delete;

    /// Adds what the parser has to say.
    void add_parser_errors(nvonnxparser::IParser const& parser);

    /// All errors so far in one line, most telling first; `fallback` when there is none.
    std::string errors(std::string const& fallback) const;
    /// What the log has told so far.
    LogFacts told() const;
    /// kOutOfMemory when an allocation failed, else `otherwise`.
    ErrorKind kind(ErrorKind otherwise) const;
    /// Throws an Error of that kind: "<what>: <all errors>".
    [[noreturn]] void fail(ErrorKind otherwise, std::string const& what) const {
        throw Error(kind(otherwise), what + ": " + errors("it gives no reason"));
    }

    /// Called by the logger. Whether whoever made this reports the line.
    bool add_line(nvinfer1::ILogger::Severity severity, std::string const& line);

    // What the library calls as IErrorRecorder.
    std::int32_t getNbErrors() const noexcept override;
    nvinfer1::ErrorCode getErrorCode(std::int32_t index) const noexcept override;
    ErrorDesc getErrorDesc(std::int32_t index) const noexcept override;
    bool hasOverflowed() const noexcept override;
    void clear() noexcept override;
    bool reportError(nvinfer1::ErrorCode code, ErrorDesc text) noexcept override;
    RefCount incRefCount() noexcept override;
    RefCount decRefCount() noexcept override;

 private:
    struct Recorded {
        nvinfer1::ErrorCode code;
        std::string text;
    };

    Hearing hearing_;
    mutable std::mutex mutex_;
    std::vector<Recorded> recorded_;
    std::vector<std::string> parser_errors_;
    std::vector<std::string> error_lines_;
    LogFacts told_;
    RefCount references_ = 0;
};

}  // namespace duovec::DUOVEC_FLAVOUR
