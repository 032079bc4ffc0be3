// The builder of the TensorRT stand-ins, and its parser. Graphs are text, a line for each part:
//
//     duovec stand-in graph 1
//     input NAME TYPE DIMENSIONS...
//     layer KIND INPUTS OUTPUT TYPE DIMENSIONS...
//     output NAME
//
// INPUTS are names with commas between them or "-", OUTPUT is a name or "-", -1 is an open size.

#include "testing/standin_builder.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace duovec::standin {
namespace {

constexpr std::string_view kGraphHeader = "duovec stand-in graph 1\n";
/// What one token takes.
constexpr std::int64_t kScratchPerToken = 64;
constexpr std::int32_t kSteps = 4;

using NetworkOwner = Owner<INetworkDefinition, Network>;
using ConfigOwner = Owner<IBuilderConfig, BuilderConfig>;
using ProfileOwner = Owner<IOptimizationProfile, OptimizationProfile>;
#ifndef DUOVEC_RTX
using CacheOwner = Owner<ITimingCache, TimingCache>;
#endif

constexpr std::pair<std::string_view, DataType> kTypes[] = {
    {"int32", DataType::kINT32},  {"int64", DataType::kINT64},   {"float32", DataType::kFLOAT},
    {"float16", DataType::kHALF}, {"bfloat16", DataType::kBF16}, {"float8", DataType::kFP8}};
constexpr std::pair<std::string_view, LayerType> kLayers[] = {
    {"constant", LayerType::kCONSTANT}, {"gather", LayerType::kGATHER},
    {"cast", LayerType::kCAST},         {"product", LayerType::kMATRIX_MULTIPLY},
    {"softmax", LayerType::kSOFTMAX},   {"assertion", LayerType::kASSERTION},
    {"quantize", LayerType::kQUANTIZE}, {"dequantize", LayerType::kDEQUANTIZE}};

template <typename Value, std::size_t kCount>
Value value_of(std::pair<std::string_view, Value> const (&names)[kCount], std::string const& name) {
    auto const* const found =
        std::ranges::find(names, std::string_view(name), [](auto const& one) { return one.first; });
    if (found == std::end(names)) {
        throw std::runtime_error("'" + name + "' is not known");
    }
    return found->second;
}

std::string name_of(DataType type) {
    auto const* const found =
        std::ranges::find(kTypes, type, [](auto const& one) { return one.second; });
    return std::string(found->first);
}

/// The rest of a line.
Dims read_dims(std::istream& words) {
    Dims dims{};
    for (std::int64_t size = 0; dims.nbDims < Dims::MAX_DIMS && words >> size; ++dims.nbDims) {
        dims.d[dims.nbDims] = size;
    }
    return dims;
}

/// A tensor as a plan has it.
std::string plan_line(char const* kind, ITensor const& tensor) {
    std::string line = std::string(kind) + " " + tensor.getName() + " " + name_of(tensor.getType());
    for (std::int64_t const size : sizes_of(tensor.getDimensions())) {
        line += " " + std::to_string(size);
    }
    return line + "\n";
}

class ParserError final : public nvonnxparser_traps::TrapParserError {
 public:
    explicit ParserError(std::string text) : text_(std::move(text)) {}
    char const* desc() const override { return text_.c_str(); }
    int node() const override { return -1; }
    char const* nodeName() const override { return ""; }
    char const* nodeOperator() const override { return ""; }

 private:
    std::string text_;
};

class Parser final : public nvonnxparser_traps::TrapParser {
 public:
    explicit Parser(Network& network) : network_(network) { add_live(1); }
    ~Parser() noexcept override { add_live(-1); }

    bool parseFromFile(char const* path, int) noexcept override {
        std::ifstream file(path, std::ios::binary);
        try {
            network_.read({std::istreambuf_iterator<char>(file), {}});
            return true;
        } catch (std::runtime_error const& problem) {
            error_.emplace(problem.what());
            return false;
        }
    }
    int getNbErrors() const noexcept override { return error_ ? 1 : 0; }
    nvonnxparser::IParserError const* getError(int) const noexcept override { return &*error_; }

 private:
    Network& network_;
    std::optional<ParserError> error_;
};

#ifndef DUOVEC_RTX
/// What every cache of this library begins with; one of another version or device is refused.
std::string cache_header() {
    return "stand-in timing cache of " + std::to_string(NV_TENSORRT_VERSION) + "\n";
}
#endif

}  // namespace

ITensor* Network::add_tensor(std::string const& name, DataType type, Dims dims) {
    tensors_.push_back(std::make_shared<Owner<ITensor, NetworkTensor>>(name, type, dims));
    return tensors_.back().get();
}

ITensor* Network::find(std::string const& name) const {
    auto const found = std::ranges::find_if(
        tensors_, [&](auto const& tensor) { return name == tensor->getName(); });
    if (found == tensors_.end()) {
        throw std::runtime_error("there is no tensor '" + name + "'");
    }
    return found->get();
}

ITensor* Network::addInput(char const* name, DataType type, Dims const& dims) noexcept {
    inputs_.push_back(add_tensor(name, type, dims));
    return inputs_.back();
}

bool Network::is_read(ITensor const* tensor) const {
    return std::ranges::any_of(layers_, [&](auto const& layer) {
        bool found = false;
        for (std::int32_t input = 0; input < layer->getNbInputs(); ++input) {
            found = found || layer->getInput(input) == tensor;
        }
        return found;
    });
}

void Network::read(std::string const& text) {
    if (!text.starts_with(kGraphHeader)) {
        throw std::runtime_error("Failed to parse the ONNX model.");
    }
    std::istringstream lines(text.substr(kGraphHeader.size()));
    for (std::string line; std::getline(lines, line);) {
        read_line(line);
    }
}

void Network::read_line(std::string const& line) {
    std::istringstream words(line);
    std::string kind;
    std::string name;
    std::string type;
    words >> kind;
    if (kind == "layer") {
        read_layer(words);
    } else if (kind == "input" && words >> name >> type) {
        addInput(name.c_str(), value_of(kTypes, type), read_dims(words));
    } else if (kind == "output" && words >> name) {
        markOutput(*find(name));
    } else {
        throw std::runtime_error("bad line '" + line + "'");
    }
}

void Network::read_layer(std::istream& words) {
    std::string kind;
    std::string names;
    std::string output;
    std::string type;
    words >> kind >> names >> output;
    std::vector<ITensor*> inputs;
    std::istringstream parts(names == "-" ? "" : names);
    for (std::string name; std::getline(parts, name, ',');) {
        inputs.push_back(find(name));
    }
    ITensor* made = nullptr;
    if (output != "-") {
        words >> type;
        made = add_tensor(output, value_of(kTypes, type), read_dims(words));
    }
    layers_.push_back(std::make_shared<Owner<ILayer, NetworkLayer>>(value_of(kLayers, kind),
                                                                    std::move(inputs), made));
}

bool OptimizationProfile::setDimensions(char const* name, OptProfileSelector select,
                                        Dims const& dims) noexcept {
    if (dims.nbDims < 1 ||
        std::any_of(dims.d, dims.d + dims.nbDims, [](auto n) { return n < 1; })) {
        return false;
    }
    sizes_[name][static_cast<std::size_t>(select)] = sizes_of(dims);
    return true;
}

bool OptimizationProfile::isValid() const noexcept {
    return !sizes_.empty() && std::ranges::all_of(sizes_, [](auto const& input) {
        auto const& [min, opt, max] = input.second;
        return !min.empty() && std::ranges::equal(min, opt, std::ranges::less_equal()) &&
               std::ranges::equal(opt, max, std::ranges::less_equal());
    });
}

std::optional<ShapeRange> OptimizationProfile::range() const {
    if (!isValid()) {
        return std::nullopt;
    }
    std::array<Shape, 3> shapes;
    for (std::size_t at = 0; at < shapes.size(); ++at) {
        auto const& first = sizes_.begin()->second[at];
        shapes[at] = {static_cast<std::int32_t>(first.front()),
                      static_cast<std::int32_t>(first.back())};
        for (auto const& [name, sizes] : sizes_) {
            PlanTensor const tensor{name, true, Element::kInt32,
                                    std::vector<std::int64_t>(sizes[at].size(), -1)};
            if (sizes[at] != tensor.sizes_of(shapes[at])) {
                return std::nullopt;
            }
        }
    }
    return ShapeRange{shapes[0], shapes[1], shapes[2]};
}

std::int32_t BuilderConfig::addOptimizationProfile(IOptimizationProfile const* profile) noexcept {
    auto const range = static_cast<ProfileOwner const*>(profile)->implementation().range();
    if (!range) {
        reporter_.fail(ErrorCode::kINVALID_ARGUMENT,
                       "addOptimizationProfile: it is empty, or its inputs do not agree");
        return -1;
    }
    profiles_.push_back(*range);
    return count(profiles_.size()) - 1;
}

#ifdef DUOVEC_RTX
bool BuilderConfig::setNbComputeCapabilities(std::int32_t number) noexcept {
    capabilities_.assign(static_cast<std::size_t>(number), 0);
    return number > 0;
}

bool BuilderConfig::setComputeCapability(ComputeCapability capability,
                                         std::int32_t index) noexcept {
    auto const place = static_cast<std::size_t>(index);
    if (place >= capabilities_.size()) {
        return reporter_.fail(ErrorCode::kINVALID_ARGUMENT, "setComputeCapability: no such place");
    }
    capabilities_[place] = static_cast<std::int32_t>(capability);
    return true;
}
#else
void BuilderConfig::setBuilderOptimizationLevel(std::int32_t level) noexcept {
    if (level < 0) {
        reporter_.fail(ErrorCode::kINVALID_ARGUMENT, "setBuilderOptimizationLevel: it is negative");
        return;
    }
    level_ = level;
}

void BuilderConfig::setMemoryPoolLimit(MemoryPoolType pool, std::size_t bytes) noexcept {
    if (pool == MemoryPoolType::kWORKSPACE) {
        workspace_bytes_ = bytes;
    }
}

ITimingCache* BuilderConfig::createTimingCache(void const* blob, std::size_t size) const noexcept {
    std::string const text(static_cast<char const*>(blob), blob == nullptr ? 0 : size);
    return new CacheOwner(text.empty() ? cache_header() : text);
}

bool BuilderConfig::setTimingCache(ITimingCache const& cache, bool) noexcept {
    std::string const& text = static_cast<CacheOwner const&>(cache).implementation().text();
    if (!text.starts_with(cache_header())) {
        return reporter_.fail(ErrorCode::kINVALID_ARGUMENT,
                              "setTimingCache: the cache is of another version or device");
    }
    cache_ = text;
    return true;
}
#endif

std::string BuilderConfig::settings() const {
    std::string text;
    auto const say = [&](bool is_so, char const* line) { text += is_so ? line : ""; };
    say(getFlag(BuilderFlag::kTF32), "built tf32\n");
    say(aux_streams_ != 0, "built aux_streams\n");
    auto const count = [&](char const* name, std::int64_t number) {
        text += "built " + std::string(name) + "_" + std::to_string(number) + "\n";
    };
    count("hardware_compatibility", static_cast<std::int64_t>(compatibility_));
    count("optimization_level", level_);
    count("workspace", static_cast<std::int64_t>(workspace_bytes_));
#ifndef DUOVEC_RTX
    count("on_device", current_device());
#endif
#ifdef DUOVEC_RTX
    say(getFlag(BuilderFlag::kREQUIRE_USER_ALLOCATION), "user_allocation\n");
#else
    say(getFlag(BuilderFlag::kVERSION_COMPATIBLE), "host_code\n");
#endif
    for (std::int32_t const capability : capabilities_) {
        text += "built for_" + std::to_string(capability) + "\n";
    }
    return text;
}

INetworkDefinition* Builder::createNetworkV2(NetworkDefinitionCreationFlags flags) noexcept {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    auto const bit = static_cast<std::uint32_t>(NetworkDefinitionCreationFlag::kSTRONGLY_TYPED);
#pragma GCC diagnostic pop
    return new NetworkOwner((flags & (1U << bit)) != 0);
}

IOptimizationProfile* Builder::createOptimizationProfile() noexcept {
    profiles_.push_back(std::make_shared<ProfileOwner>());
    return profiles_.back().get();
}

IHostMemory* Builder::buildSerializedNetwork(INetworkDefinition& definition,
                                             IBuilderConfig& configuration) noexcept {
    Network const& network = static_cast<NetworkOwner&>(definition).implementation();
    BuilderConfig const& config = static_cast<ConfigOwner&>(configuration).implementation();
    if (is_set("build_fails")) {
        reporter_.fail(ErrorCode::kINTERNAL_ERROR, "scripted: no implementation was found");
        return nullptr;
    }
    IProgressMonitor* const monitor = config.monitor();
    if (monitor != nullptr) {
        monitor->phaseStart("Building", nullptr, kSteps);
        for (std::int32_t step = 0; step < kSteps; ++step) {
            if (!monitor->stepComplete("Building", step)) {
                return nullptr;
            }
        }
        monitor->phaseFinish("Building");
    }
    std::ostringstream plan;
    plan << "duovec stand-in plan 1\nflavour " << kFlavourName << "\n" << config.settings();
    plan << (network.strongly_typed() ? "built strongly_typed\n" : "");
    for (ITensor* const input : network.inputs()) {
        plan << plan_line("input", *input);
        if (!network.is_read(input)) {
            reporter_.log(ILogger::Severity::kWARNING,
                          std::string("Unused Input: ") + input->getName());
        }
    }
    for (ITensor* const output : network.outputs()) {
        plan << plan_line("output", *output);
    }
    for (std::int32_t index = 0; config.is_detailed() && index < network.getNbLayers(); ++index) {
        ITensor const* const output = network.getLayer(index)->getOutput(0);
        plan << (output == nullptr ? "" : std::string("layer ") + output->getName() + "\n");
    }
    for (auto const& [min, opt, max] : config.profiles()) {
        std::int64_t const scratch = kScratchPerToken * tokens_of(max);
        plan << "profile " << min.rows << " " << min.length << " " << opt.rows << " " << opt.length
             << " " << max.rows << " " << max.length << "\nscratch " << scratch << "\n";
        reporter_.log(ILogger::Severity::kVERBOSE,
                      "Total Activation Memory: " + std::to_string(scratch) + " bytes");
    }
    return new Owner<IHostMemory, HostMemory>(plan.str());
}

}  // namespace duovec::standin

extern "C" {

TENSORRTAPI void* createInferBuilder_INTERNAL(void* logger, std::int32_t version) noexcept {
    using duovec::standin::Builder;
#ifndef DUOVEC_RTX
    if (duovec::standin::device_error() != cudaSuccess) {
        return nullptr;
    }
#endif
    return duovec::standin::create<nvinfer1::IBuilder, Builder>(logger, version);
}

TENSORRTAPI void* createNvOnnxParser_INTERNAL(void* network, void*, int) noexcept {
    using duovec::standin::NetworkOwner;
    auto& definition = *static_cast<nvinfer1::INetworkDefinition*>(network);
    nvonnxparser::IParser* const parser =
        new duovec::standin::Parser(static_cast<NetworkOwner&>(definition).implementation());
    return parser;
}

}  // extern "C"
