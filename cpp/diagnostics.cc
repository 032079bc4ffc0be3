#include "diagnostics.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <exception>
#include <memory>
#include <string_view>

namespace duovec::DUOVEC_FLAVOUR {
namespace {

using LogLevel = nvinfer1::ILogger::Severity;

/// A failing build says dozens of lines; the first ones tell the cause.
constexpr std::size_t kEntriesMax = 64;
constexpr std::size_t kErrorsShown = 6;
/// Said before the number of bytes, once for each profile.
constexpr std::string_view kScratchLine = "Total Activation Memory: ";
/// The builder looks for a GPU and reports that there is none, but a build needs none; and it asks
/// callers to mind int64 inputs, which sessions do.
constexpr std::string_view kIrrelevant[] = {"catchCudaError", "has Int64 binding"};
/// Shorter lines may be a part of others by chance.
constexpr std::size_t kTellingLength = 20;

Severity severity_of(LogLevel level) {
    constexpr Severity kSeverities[] = {Severity::kError, Severity::kError, Severity::kWarning,
                                        Severity::kInfo, Severity::kVerbose};
    return kSeverities[std::min(static_cast<std::size_t>(level), std::size(kSeverities) - 1)];
}

/// The parser logs each of its errors again between lines that frame them.
bool is_framing(std::string_view line) {
    constexpr std::string_view kFrames[] = {"--- Begin node", "--- End node",
                                            "While parsing node number"};
    bool const repeated = line.find("ERROR: ") != std::string_view::npos &&
                          line.find(" In function ") != std::string_view::npos;
    return repeated || std::ranges::any_of(kFrames, [&](std::string_view frame) {
               return line.find(frame) != std::string_view::npos;
           });
}

/// On one line, without the place in the vendor's sources that stands in front ("File.cpp:12: ").
std::string cleaned(std::string_view line) {
    std::size_t const place = line.find(".cpp:");
    std::size_t const colon = line.find(": ", place == std::string_view::npos ? 0 : place);
    if (place != std::string_view::npos && line.find(' ') == colon + 1) {
        line.remove_prefix(colon + 2);
    }
    std::string text;
    for (char const one : line) {
        bool const space = one == ' ' || one == '\n' || one == '\r' || one == '\t';
        if (!space) {
            text += one;
        } else if (!text.empty() && text.back() != ' ') {
            text += ' ';
        }
    }
    return text;
}

/// Adds what is neither irrelevant nor said already in more or in fewer words.
void add_once(std::vector<std::string>& lines, std::string_view line) {
    bool const known = std::ranges::any_of(lines, [&](std::string const& one) {
        bool const repeats = one.size() >= kTellingLength && line.find(one) != line.npos;
        return repeats || one.find(line) != one.npos;
    });
    bool const irrelevant = std::ranges::any_of(
        kIrrelevant, [&](std::string_view part) { return line.find(part) != line.npos; });
    if (!line.empty() && !known && !irrelevant && lines.size() < kEntriesMax) {
        lines.emplace_back(line);
    }
}

/// The process's only logger: the library keeps the first one it is given for ever.
class ProcessLogger final : public nvinfer1::ILogger {
 public:
    static ProcessLogger& instance() {
        // Never destroyed: the library's threads may log while the process ends.
        static ProcessLogger* const logger = std::make_unique<ProcessLogger>().release();
        return *logger;
    }

    void set_sink(LogSink sink) { sink_ = sink; }

    void attach(Diagnostics* diagnostics) {
        std::lock_guard const lock(mutex_);
        attached_.push_back(diagnostics);
    }

    void detach(Diagnostics* diagnostics) noexcept {
        std::lock_guard const lock(mutex_);
        std::erase(attached_, diagnostics);
    }

    void log(Severity level, nvinfer1::AsciiChar const* text) noexcept override {
        try {
            bool const reported_later = gather(level, text);
            LogSink const sink = sink_;
            if (sink != nullptr) {
                sink(kFlavour, reported_later ? duovec::Severity::kVerbose : severity_of(level),
                     text);
            }
        } catch (std::exception const&) {
            // A line that cannot be kept is lost: nothing may be thrown into the library.
            return;
        }
    }

 private:
    /// Whether somebody who has heard the line reports it.
    bool gather(Severity level, std::string const& text) {
        std::lock_guard const lock(mutex_);
        bool reported_later = false;
        for (Diagnostics* const diagnostics : attached_) {
            reported_later |= diagnostics->add_line(level, text);
        }
        return reported_later;
    }

    std::atomic<LogSink> sink_ = nullptr;
    std::mutex mutex_;
    std::vector<Diagnostics*> attached_;
};

}  // namespace

nvinfer1::ILogger& logger() { return ProcessLogger::instance(); }

void set_log_sink(LogSink sink) { ProcessLogger::instance().set_sink(sink); }

Diagnostics::Diagnostics(Hearing hearing) : hearing_(hearing) {
    if (hearing != Hearing::kRecorder) {
        ProcessLogger::instance().attach(this);
    }
}

Diagnostics::~Diagnostics() noexcept { ProcessLogger::instance().detach(this); }

bool Diagnostics::add_line(LogLevel level, std::string const& line) {
    if (hearing_ == Hearing::kErrors && level > LogLevel::kERROR) {
        return false;
    }
    std::lock_guard const lock(mutex_);
    if (level <= LogLevel::kERROR) {
        add_once(error_lines_, is_framing(line) ? "" : cleaned(line));
    } else if (level == LogLevel::kWARNING) {
        add_once(told_.warnings, cleaned(line));
    } else if (line.starts_with(kScratchLine)) {
        std::int64_t bytes = 0;
        auto const [end, problem] =
            std::from_chars(line.data() + kScratchLine.size(), line.data() + line.size(), bytes);
        if (problem == std::errc() && told_.scratch_bytes.size() < kEntriesMax) {
            told_.scratch_bytes.push_back(bytes);
        }
    } else if (line.starts_with(kLayerList)) {
        told_.layers = count_layers(line);
    }
    return level <= LogLevel::kWARNING;
}

void Diagnostics::add_parser_errors(nvonnxparser::IParser const& parser) {
    std::lock_guard const lock(mutex_);
    for (int index = 0; index < parser.getNbErrors(); ++index) {
        nvonnxparser::IParserError const* const error = parser.getError(index);
        std::string line;
        if (error->node() >= 0 && error->nodeName() != nullptr) {
            line =
                std::string("node '") + error->nodeName() + "' (" + error->nodeOperator() + "): ";
        }
        line += error->desc() == nullptr ? "" : error->desc();
        add_once(parser_errors_, cleaned(line));
    }
}

std::string Diagnostics::errors(std::string const& fallback) const {
    std::lock_guard const lock(mutex_);
    std::vector<std::string> lines;
    for (std::vector<std::string> const* const source : {&parser_errors_, &error_lines_}) {
        for (std::string const& line : *source) {
            add_once(lines, line);
        }
    }
    for (Recorded const& one : recorded_) {
        add_once(lines, cleaned(one.text));
    }
    std::string merged;
    for (std::size_t index = 0; index < std::min(lines.size(), kErrorsShown); ++index) {
        merged += (index == 0 ? "" : "; ") + lines[index];
    }
    return merged.empty() ? fallback : merged;
}

LogFacts Diagnostics::told() const {
    std::lock_guard const lock(mutex_);
    return told_;
}

ErrorKind Diagnostics::kind(ErrorKind otherwise) const {
    std::lock_guard const lock(mutex_);
    bool const allocation = std::ranges::any_of(recorded_, [](Recorded const& one) {
        return one.code == nvinfer1::ErrorCode::kFAILED_ALLOCATION;
    });
    return allocation ? ErrorKind::kOutOfMemory : otherwise;
}

std::int32_t Diagnostics::getNbErrors() const noexcept {
    std::lock_guard const lock(mutex_);
    return static_cast<std::int32_t>(recorded_.size());
}

nvinfer1::ErrorCode Diagnostics::getErrorCode(std::int32_t index) const noexcept {
    std::lock_guard const lock(mutex_);
    auto const at = static_cast<std::size_t>(index);
    return at < recorded_.size() ? recorded_[at].code : nvinfer1::ErrorCode::kSUCCESS;
}

Diagnostics::ErrorDesc Diagnostics::getErrorDesc(std::int32_t index) const noexcept {
    std::lock_guard const lock(mutex_);
    auto const at = static_cast<std::size_t>(index);
    return at < recorded_.size() ? recorded_[at].text.c_str() : "";
}

bool Diagnostics::hasOverflowed() const noexcept {
    std::lock_guard const lock(mutex_);
    return recorded_.size() >= kEntriesMax;
}

void Diagnostics::clear() noexcept {
    std::lock_guard const lock(mutex_);
    recorded_.clear();
}

bool Diagnostics::reportError(nvinfer1::ErrorCode code, ErrorDesc text) noexcept {
    try {
        std::lock_guard const lock(mutex_);
        if (recorded_.size() < kEntriesMax) {
            // Reserved once, so that texts handed out by getErrorDesc stay where they are.
            recorded_.reserve(kEntriesMax);
            recorded_.push_back({code, text == nullptr ? "" : text});
        }
    } catch (std::exception const&) {
        return false;
    }
    return true;
}

Diagnostics::RefCount Diagnostics::incRefCount() noexcept {
    std::lock_guard const lock(mutex_);
    return ++references_;
}

Diagnostics::RefCount Diagnostics::decRefCount() noexcept {
    std::lock_guard const lock(mutex_);
    return --references_;
}

}  // namespace duovec::DUOVEC_FLAVOUR
