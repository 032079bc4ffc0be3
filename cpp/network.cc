#include "network.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "error.h"

namespace duovec::DUOVEC_FLAVOUR {
namespace {

using nvinfer1::DataType;
using nvinfer1::Dims;
using nvinfer1::ILayer;
using nvinfer1::ITensor;
using nvinfer1::LayerType;

/// Tables of fewer rows are token types, not positions.
constexpr std::int64_t kPositionRowsMin = 3;
/// Casts and reshapes between a table and its lookup.
constexpr int kStepsToTableMax = 4;

[[noreturn]] void refuse(std::string const& problem) { throw Error(ErrorKind::kModel, problem); }

DataType type_of(Element element) {
    switch (element) {
        case Element::kInt32:
            return DataType::kINT32;
        case Element::kInt64:
            return DataType::kINT64;
        case Element::kFloat32:
            return DataType::kFLOAT;
        case Element::kFloat16:
            return DataType::kHALF;
    }
    return DataType::kFLOAT;
}

std::string name_of_type(DataType type) {
    switch (type) {
        case DataType::kINT32:
            return "int32";
        case DataType::kINT64:
            return "int64";
        case DataType::kFLOAT:
            return "float32";
        case DataType::kHALF:
            return "float16";
        case DataType::kBF16:
            return "bfloat16";
        default:
            return "type " + std::to_string(static_cast<std::int32_t>(type));
    }
}

std::string to_text(Dims const& dims) {
    std::string text = "[";
    for (std::int32_t axis = 0; axis < dims.nbDims; ++axis) {
        text += (axis == 0 ? "" : ", ");
        text += dims.d[axis] < 0 ? "?" : std::to_string(dims.d[axis]);
    }
    return text + "]";
}

std::string to_text(std::vector<ITensor const*> const& tensors) {
    std::string text;
    for (ITensor const* const tensor : tensors) {
        text += (text.empty() ? "'" : ", '") + std::string(tensor->getName()) + "'";
    }
    return text.empty() ? "none" : text;
}

void check_tensor(std::string const& what, ITensor const& tensor, TensorSpec const& spec) {
    if (tensor.getType() != type_of(spec.element)) {
        refuse(what + " is " + name_of_type(tensor.getType()) + ", the manifest says " +
               name_of_type(type_of(spec.element)));
    }
    Dims const dims = tensor.getDimensions();
    std::int64_t const columns = spec.columns == 0 ? -1 : spec.columns;
    if (dims.nbDims != 2) {
        refuse(what + " has the shape " + to_text(dims) + ", two axes are needed");
    }
    if (dims.d[0] != -1 || (spec.columns == 0 && dims.d[1] != -1)) {
        refuse(what + " has the fixed shape " + to_text(dims) +
               ", rows and length must be dynamic: export the graph with dynamic axes");
    }
    if (dims.d[1] != columns) {
        refuse(what + " has the shape " + to_text(dims) + ", the manifest says " +
               std::to_string(columns) + " columns: export the graph with that size");
    }
}

void check_tensors(std::string const& kind, std::vector<ITensor const*> const& found,
                   std::vector<TensorSpec> const& wanted) {
    for (TensorSpec const& spec : wanted) {
        auto const tensor = std::ranges::find_if(
            found, [&](ITensor const* one) { return spec.name == one->getName(); });
        if (tensor == found.end()) {
            refuse("the graph has no " + kind + " '" + spec.name +
                   "' that the manifest names, it has " + to_text(found));
        }
        check_tensor(kind + " '" + spec.name + "'", **tensor, spec);
    }
    if (found.size() != wanted.size()) {
        refuse("the graph has " + std::to_string(found.size()) + " " + kind + "s (" +
               to_text(found) + "), the manifest names " + std::to_string(wanted.size()));
    }
}

/// Layers by the tensor they make.
using Producers = std::unordered_map<ITensor const*, ILayer const*>;

Producers producers_of(nvinfer1::INetworkDefinition const& network) {
    Producers producers;
    for (std::int32_t index = 0; index < network.getNbLayers(); ++index) {
        ILayer const* const layer = network.getLayer(index);
        for (std::int32_t output = 0; output < layer->getNbOutputs(); ++output) {
            producers.emplace(layer->getOutput(output), layer);
        }
    }
    return producers;
}

/// Rows of the constant [rows, hidden] that a lookup reads, if it reads one.
std::optional<std::int64_t> table_rows(ILayer const& lookup, Producers const& producers,
                                       std::int32_t hidden_size) {
    ITensor const* tensor = lookup.getInput(0);
    for (int step = 0; step < kStepsToTableMax; ++step) {
        auto const found = producers.find(tensor);
        if (found == producers.end()) {
            return std::nullopt;
        }
        ILayer const& layer = *found->second;
        if (layer.getType() == LayerType::kCONSTANT) {
            Dims const dims = tensor->getDimensions();
            bool const is_table = dims.nbDims >= 2 && dims.d[dims.nbDims - 1] == hidden_size;
            return is_table ? std::optional(dims.d[dims.nbDims - 2]) : std::nullopt;
        }
        bool const passes = layer.getType() == LayerType::kCAST ||
                            layer.getType() == LayerType::kIDENTITY ||
                            layer.getType() == LayerType::kSHUFFLE;
        if (!passes) {
            return std::nullopt;
        }
        tensor = layer.getInput(0);
    }
    return std::nullopt;
}

void check_word_table(std::vector<std::int64_t> const& tables, std::int32_t vocabulary_size) {
    std::int64_t const rows = std::ranges::max(tables);
    if (rows < vocabulary_size) {
        refuse("the graph's largest table has " + std::to_string(rows) +
               " rows, the manifest's vocab_size is " + std::to_string(vocabulary_size));
    }
}

std::int32_t check_positions(std::vector<std::int64_t> const& tables, BuildRequest const& request) {
    std::int64_t rows = 0;
    for (std::int64_t const one : tables) {
        bool const position = one >= kPositionRowsMin && one < request.vocabulary_size;
        rows = position && (rows == 0 || one < rows) ? one : rows;
    }
    for (Profile const& profile : request.profiles) {
        if (rows != 0 && profile.length.max > rows) {
            refuse("profile " + to_string(profile) + " is longer than the graph's table of " +
                   std::to_string(rows) + " positions");
        }
    }
    return static_cast<std::int32_t>(rows);
}

std::string precision_name(std::set<DataType> const& types) {
    // The products of attention stay in half precision beside those of 8 bits.
    if (types.contains(DataType::kFP8)) {
        return "fp8";
    }
    if (types.size() != 1) {
        return "mixed";
    }
    switch (*types.begin()) {
        case DataType::kHALF:
            return "f16";
        case DataType::kBF16:
            return "bf16";
        case DataType::kFLOAT:
            return "f32";
        default:
            return "mixed";
    }
}

bool is_float(DataType type) {
    return type == DataType::kFLOAT || type == DataType::kHALF || type == DataType::kBF16;
}

/// A head that makes one number of each token; its arithmetic is nothing beside the layers'.
bool has_one_column(ITensor const& product) {
    Dims const dims = product.getDimensions();
    return dims.nbDims > 0 && dims.d[dims.nbDims - 1] == 1;
}

/// kFP8 for a product of numbers that were rounded to it, else the type that it is written in.
DataType arithmetic(ILayer const& product, Producers const& producers) {
    auto const found = producers.find(product.getInput(0));
    bool const rounded = found != producers.end() &&
                         found->second->getType() == LayerType::kDEQUANTIZE &&
                         found->second->getInput(0)->getType() == DataType::kFP8;
    return rounded ? DataType::kFP8 : product.getOutput(0)->getType();
}

/// A softmax over [rows, heads, length, length] is the middle of an attention.
constexpr std::int32_t kScoresAxes = 4;

}  // namespace

NetworkFacts check_network(nvinfer1::INetworkDefinition const& network,
                           BuildRequest const& request) {
    if (network.getNbLayers() == 0) {
        refuse("the graph is empty, it has no layers: is it an ONNX file?");
    }
    std::vector<ITensor const*> inputs;
    for (std::int32_t index = 0; index < network.getNbInputs(); ++index) {
        inputs.push_back(network.getInput(index));
    }
    std::vector<ITensor const*> outputs;
    for (std::int32_t index = 0; index < network.getNbOutputs(); ++index) {
        outputs.push_back(network.getOutput(index));
    }
    check_tensors("input", inputs, request.inputs);
    check_tensors("output", outputs, request.outputs);

    NetworkFacts facts;
    std::set<DataType> products;
    std::vector<std::int64_t> tables;
    Producers const producers = producers_of(network);
    for (std::int32_t index = 0; index < network.getNbLayers(); ++index) {
        ILayer const& layer = *network.getLayer(index);
        // Assertions and the borders of loops have none.
        if (layer.getNbOutputs() == 0) {
            continue;
        }
        ITensor const& output = *layer.getOutput(0);
        if (layer.getType() == LayerType::kMATRIX_MULTIPLY && is_float(output.getType()) &&
            !has_one_column(output)) {
            products.insert(arithmetic(layer, producers));
        } else if (layer.getType() == LayerType::kSOFTMAX &&
                   output.getDimensions().nbDims == kScoresAxes) {
            ++facts.attentions;
        } else if (layer.getType() == LayerType::kGATHER || layer.getType() == LayerType::kSLICE) {
            auto const rows = table_rows(layer, producers, request.hidden_size);
            if (rows) {
                tables.push_back(*rows);
            }
        }
    }
    facts.precision = precision_name(products);
    if (!tables.empty()) {
        check_word_table(tables, request.vocabulary_size);
        facts.position_rows = check_positions(tables, request);
    }
    return facts;
}

}  // namespace duovec::DUOVEC_FLAVOUR
