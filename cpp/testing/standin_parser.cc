// The stand-in for TensorRT's ONNX parser: reads the text graphs of standin_builder.cc.
//
// Thread safety: a parser belongs to one thread. Ownership: the caller destroys the parser before
// its network. Preconditions: none.

#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "standin_parser_traps.h"
#include "testing/standin.h"

extern "C" {
/// Of the stand-in for TensorRT itself.
char const* duovec_standin_read_graph(void* network, char const* text, std::size_t size) noexcept;
}

namespace duovec::standin {
namespace {

class ParserError final : public TrapParserError {
 public:
    explicit ParserError(std::string text) : text_(std::move(text)) {}
    char const* desc() const override { return text_.c_str(); }
    int node() const override { return -1; }
    char const* nodeName() const override { return ""; }
    char const* nodeOperator() const override { return ""; }

 private:
    std::string text_;
};

class Parser final : public TrapParser {
 public:
    explicit Parser(void* network) : network_(network) { add_live(1); }
    ~Parser() noexcept override { add_live(-1); }

    bool parseFromFile(char const* path, int) noexcept override {
        std::ifstream file(path, std::ios::binary);
        std::string const text{std::istreambuf_iterator<char>(file), {}};
        std::string problem = duovec_standin_read_graph(network_, text.data(), text.size());
        if (problem.empty()) {
            return true;
        }
        error_.emplace(std::move(problem));
        return false;
    }
    int getNbErrors() const noexcept override { return error_ ? 1 : 0; }
    nvonnxparser::IParserError const* getError(int) const noexcept override { return &*error_; }

 private:
    void* network_;
    std::optional<ParserError> error_;
};

}  // namespace
}  // namespace duovec::standin

extern "C" {

TENSORRTAPI void* createNvOnnxParser_INTERNAL(void* network, void*, int) noexcept {
    nvonnxparser::IParser* const parser = new duovec::standin::Parser(network);
    return parser;
}

}  // extern "C"
