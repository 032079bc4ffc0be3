#include "network.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
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

/// Casts and reshapes between a constant or an input and what reads it.
constexpr int kStepsMax = 4;

[[noreturn]] void refuse(std::string const& problem) { throw Error(ErrorKind::kModel, problem); }

DataType type_of(Element element) {
    // In the order of Element.
    constexpr DataType kTypes[] = {DataType::kINT32, DataType::kFLOAT, DataType::kHALF};
    return kTypes[static_cast<std::size_t>(element)];
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

void check_tensor(std::string const& what, ITensor const& tensor, TensorRule const& rule,
                  TensorType const& wanted) {
    DataType const type = type_of(wanted.element);
    if (tensor.getType() != type) {
        refuse(what + " is " + name_of_type(tensor.getType()) + ", it must be " +
               name_of_type(type));
    }
    if (!same(tensor.getDimensions(), open_dims(rule, wanted.columns))) {
        refuse(what + " has the shape " + to_text(tensor.getDimensions()) + ", it must be " +
               shape_text(rule, wanted.columns) + ": export the graph with these axes");
    }
}

/// Those of `types` from `first` to before `last` must be there, and no others.
void check_tensors(std::string const& kind, std::vector<ITensor const*> const& found,
                   std::size_t first, std::size_t last, TensorTypes const& types) {
    std::size_t wanted = 0;
    for (std::size_t tensor = first; tensor < last; ++tensor) {
        if (!types[tensor]) {
            continue;
        }
        ++wanted;
        TensorRule const& rule = kTensorRules[tensor];
        std::string const name = rule.name;
        auto const is_it = [&](ITensor const* one) { return name == one->getName(); };
        auto const seen = std::ranges::find_if(found, is_it);
        if (seen == found.end()) {
            refuse("the graph has no " + kind + " '" + name + "', it has " + to_text(found));
        }
        check_tensor(kind + " '" + name + "'", **seen, rule, *types[tensor]);
    }
    if (found.size() != wanted) {
        refuse("the graph has " + std::to_string(found.size()) + " " + kind + "s (" +
               to_text(found) + "), it must have " + std::to_string(wanted));
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

/// What is behind casts and reshapes: a layer's own output, or an input of the graph.
ITensor const* origin(ITensor const* tensor, Producers const& producers) {
    for (int step = 0; step < kStepsMax; ++step) {
        auto const found = producers.find(tensor);
        if (found == producers.end()) {
            break;
        }
        LayerType const type = found->second->getType();
        if (type != LayerType::kCAST && type != LayerType::kIDENTITY &&
            type != LayerType::kSHUFFLE) {
            break;
        }
        tensor = found->second->getInput(0);
    }
    return tensor;
}

/// Rows of the constant [rows, hidden] in which a lookup finds what `input` asks for, if it is one.
std::optional<std::int64_t> table_rows(ILayer const& layer, TensorName input,
                                       Producers const& producers, std::int32_t hidden_size) {
    if (layer.getType() != LayerType::kGATHER) {
        return std::nullopt;
    }
    ITensor const* const table = origin(layer.getInput(0), producers);
    std::string_view const asked = origin(layer.getInput(1), producers)->getName();
    auto const made_by = producers.find(table);
    bool const is_lookup = asked == kTensorRules[input].name && made_by != producers.end() &&
                           made_by->second->getType() == LayerType::kCONSTANT;
    Dims const dims = table->getDimensions();
    bool const is_table = is_lookup && dims.nbDims >= 2 && dims.d[dims.nbDims - 1] == hidden_size;
    return is_table ? std::optional(dims.d[dims.nbDims - 2]) : std::nullopt;
}

void check_word_table(std::int64_t rows, std::int32_t vocabulary_size) {
    if (rows < vocabulary_size) {
        refuse("the graph's table of words has " + std::to_string(rows) +
               " rows, the manifest's vocab_size is " + std::to_string(vocabulary_size));
    }
}

void check_positions(std::int64_t rows, std::vector<Profile> const& profiles) {
    for (Profile const& profile : profiles) {
        if (profile.length.max > rows) {
            refuse("profile " + to_string(profile) + " is longer than the graph's table of " +
                   std::to_string(rows) + " positions");
        }
    }
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

/// A product of the encoder's layers. The one that pools, and a head that makes one number of each
/// token, are in f32 in every graph, and their arithmetic is nothing beside the layers'.
bool is_of_encoder(ILayer const& product, Producers const& producers) {
    Dims const dims = product.getOutput(0)->getDimensions();
    std::string_view const left = origin(product.getInput(0), producers)->getName();
    bool const has_one_column = dims.nbDims > 0 && dims.d[dims.nbDims - 1] == 1;
    return !has_one_column && left != kTensorRules[kSpanWeights].name;
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
    check_tensors("input", inputs, 0, kInputs, request.tensors);
    check_tensors("output", outputs, kInputs, kTensors, request.tensors);

    std::int32_t const hidden_size = request.tensors[kDense].value_or(TensorType()).columns;
    NetworkFacts facts;
    std::set<DataType> products;
    Producers const producers = producers_of(network);
    for (std::int32_t index = 0; index < network.getNbLayers(); ++index) {
        ILayer const& layer = *network.getLayer(index);
        // Assertions and the borders of loops have none.
        if (layer.getNbOutputs() == 0) {
            continue;
        }
        ITensor const& output = *layer.getOutput(0);
        if (layer.getType() == LayerType::kMATRIX_MULTIPLY && is_float(output.getType()) &&
            is_of_encoder(layer, producers)) {
            products.insert(arithmetic(layer, producers));
        } else if (layer.getType() == LayerType::kSOFTMAX &&
                   output.getDimensions().nbDims == kScoresAxes) {
            ++facts.attentions;
            facts.heads = static_cast<std::int32_t>(output.getDimensions().d[1]);
        } else if (auto const rows = table_rows(layer, kInputIds, producers, hidden_size)) {
            check_word_table(*rows, request.vocabulary_size);
        } else if (auto const places = table_rows(layer, kPositions, producers, hidden_size)) {
            check_positions(*places, request.profiles);
            facts.position_rows = static_cast<std::int32_t>(*places);
        }
    }
    facts.precision = precision_name(products);
    return facts;
}

}  // namespace duovec::DUOVEC_FLAVOUR
