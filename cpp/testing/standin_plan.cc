#include "testing/standin_plan.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <span>
#include <sstream>
#include <stdexcept>

#include "testing/standin.h"
#include "testing/standin_kernel.h"

namespace duovec::standin {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string header(std::string_view flavour) {
    return "duovec stand-in plan 1\nflavour " + std::string(flavour) + "\n";
}

ElementType element_of(std::string const& name) {
    static constexpr std::pair<std::string_view, ElementType> kNames[] = {
        {"int32", ElementType::kInt32},
        {"int64", ElementType::kInt64},
        {"float32", ElementType::kFloat32},
        {"float16", ElementType::kFloat16}};
    for (auto const& [known, element] : kNames) {
        if (known == name) {
            return element;
        }
    }
    throw std::runtime_error("unknown type '" + name + "'");
}

bool is_range(ShapeRange const& range) {
    return range.min.rows > 0 && range.min.length > 0 && range.min.rows <= range.opt.rows &&
           range.opt.rows <= range.max.rows && range.min.length <= range.opt.length &&
           range.opt.length <= range.max.length;
}

void parse_line(StandinPlan& plan, std::string const& line) {
    std::istringstream words(line);
    std::string kind;
    std::string element;
    std::string name;
    PlanTensor tensor;
    ShapeRange range;
    std::int64_t bytes = -1;
    words >> kind;
    if (kind == "input" && words >> tensor.name >> element) {
        tensor.input = true;
        tensor.element = element_of(element);
        plan.tensors.push_back(tensor);
    } else if (kind == "output" && words >> tensor.name >> element >> tensor.columns) {
        tensor.element = element_of(element);
        plan.tensors.push_back(tensor);
    } else if (kind == "profile" &&
               words >> range.min.rows >> range.min.length >> range.opt.rows >> range.opt.length >>
                   range.max.rows >> range.max.length &&
               is_range(range)) {
        plan.profiles.push_back(range);
    } else if (kind == "scratch" && words >> bytes && bytes >= 0) {
        plan.scratch.push_back(bytes);
    } else if (kind == "host_code") {
        plan.host_code = true;
    } else if (kind == "layer" && words >> name) {
        plan.layers.push_back(name);
    } else if (kind == "user_allocation") {
        plan.user_allocation = true;
    } else if (kind == "built" && words >> element) {
        // For tests of the builder only.
    } else {
        throw std::runtime_error("bad line '" + line + "'");
    }
    if (words >> kind) {
        throw std::runtime_error("too many words in '" + line + "'");
    }
}

/// To the nearest half, of two to the even one.
std::uint16_t half_of(float value) {
    auto const bits = std::bit_cast<std::uint32_t>(value);
    auto const sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
    std::uint32_t const magnitude = bits & 0x7fff'ffff;
    if (magnitude > 0x7f80'0000) {
        return sign | 0x7e00;
    }
    if (magnitude >= 0x4780'0000) {
        return sign | 0x7c00;
    }
    // How many bits of the significand a half of this size has no place for.
    std::uint32_t const exponent = magnitude >> 23;
    if (exponent < 102) {
        return sign;
    }
    bool const normal = exponent >= 113;
    std::uint32_t const cut = normal ? 13 : 126 - exponent;
    std::uint32_t const whole =
        normal ? magnitude - (112U << 23) : (magnitude & 0x7f'ffff) | 0x80'0000;
    std::uint32_t const rest = whole & ((1U << cut) - 1);
    std::uint32_t const middle = 1U << (cut - 1);
    std::uint32_t half = whole >> cut;
    half += rest > middle || (rest == middle && (half & 1) == 1) ? 1 : 0;
    return static_cast<std::uint16_t>(sign | half);
}

std::int64_t read(PlanTensor const& tensor, void const* memory, std::int64_t index) {
    switch (tensor.element) {
        case ElementType::kInt32:
            return static_cast<std::int32_t const*>(memory)[index];
        case ElementType::kInt64:
            return static_cast<std::int64_t const*>(memory)[index];
        default:
            contract("the plan's input " + tensor.name + " is not of an integer type");
    }
}

void write(PlanTensor const& tensor, void* memory, std::int64_t index, float value) {
    switch (tensor.element) {
        case ElementType::kFloat32:
            static_cast<float*>(memory)[index] = value;
            return;
        case ElementType::kFloat16:
            static_cast<std::uint16_t*>(memory)[index] = half_of(value);
            return;
        default:
            contract("the plan's output " + tensor.name + " is not of a floating type");
    }
}

std::size_t index_of(StandinPlan const& plan, std::string_view name) {
    auto const found = std::ranges::find(plan.tensors, name, &PlanTensor::name);
    if (found == plan.tensors.end() || !found->input) {
        contract("a plan without input " + std::string(name) + " is run");
    }
    return static_cast<std::size_t>(found - plan.tensors.begin());
}

/// The ids of one row whose mask is 1.
std::vector<std::uint32_t> ids_of_row(StandinPlan const& plan, std::int64_t row,
                                      std::int64_t length, std::vector<void*> const& memory) {
    std::size_t const ids = index_of(plan, "input_ids");
    std::size_t const mask = index_of(plan, "attention_mask");
    std::vector<std::uint32_t> found;
    for (std::int64_t position = 0; position < length; ++position) {
        std::int64_t const index = row * length + position;
        std::int64_t const bit = read(plan.tensors[mask], memory[mask], index);
        bool const ended = static_cast<std::int64_t>(found.size()) < position;
        if (bit < 0 || bit > 1 || (bit == 1 && ended)) {
            contract("the mask is not ones and then zeros");
        }
        if (bit == 0) {
            continue;
        }
        std::int64_t const id = read(plan.tensors[ids], memory[ids], index);
        if (id < 0 || id > std::numeric_limits<std::uint32_t>::max()) {
            contract("the id " + std::to_string(id) + " is out of range");
        }
        found.push_back(static_cast<std::uint32_t>(id));
    }
    return found;
}

void write_row(PlanTensor const& tensor, void* memory, std::int64_t row, std::int64_t columns,
               std::span<std::uint32_t const> ids) {
    std::vector<float> values(static_cast<std::size_t>(columns), kNan);
    if (tensor.columns == 0) {
        for (std::size_t position = 0; position < ids.size(); ++position) {
            values[position] = weight_of(ids[position], position);
        }
    } else {
        write_dense(ids.data(), ids.size(), values.data(), values.size());
    }
    for (std::size_t column = 0; column < values.size(); ++column) {
        write(tensor, memory, row * columns + static_cast<std::int64_t>(column), values[column]);
    }
}

}  // namespace

std::size_t bytes_of(ElementType element) {
    switch (element) {
        case ElementType::kInt64:
            return 8;
        case ElementType::kFloat16:
            return 2;
        case ElementType::kInt32:
        case ElementType::kFloat32:
            break;
    }
    return 4;
}

std::size_t PlanTensor::bytes_of(PlanShape const& shape) const {
    return static_cast<std::size_t>(shape.rows * columns_of(shape)) * standin::bytes_of(element);
}

bool has_plan_header(std::string_view text, std::string_view flavour) {
    return text.starts_with(header(flavour));
}

std::size_t plan_header_bytes(std::string_view flavour) { return header(flavour).size(); }

StandinPlan parse_plan(std::string_view text, std::string_view flavour) {
    if (!has_plan_header(text, flavour)) {
        throw std::runtime_error("it is no plan of " + std::string(flavour));
    }
    StandinPlan plan;
    std::istringstream lines{std::string(text.substr(plan_header_bytes(flavour)))};
    for (std::string line; std::getline(lines, line);) {
        parse_line(plan, line);
    }
    if (plan.tensors.empty() || plan.profiles.empty() ||
        plan.profiles.size() != plan.scratch.size()) {
        throw std::runtime_error("it is not whole");
    }
    return plan;
}

void run_plan(StandinPlan const& plan, PlanShape const& shape, std::vector<void*> const& memory,
              bool nan) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        std::vector<std::uint32_t> const ids = ids_of_row(plan, row, shape.length, memory);
        for (std::size_t index = 0; index < plan.tensors.size(); ++index) {
            PlanTensor const& tensor = plan.tensors[index];
            if (!tensor.input) {
                write_row(tensor, memory[index], row, tensor.columns_of(shape), ids);
            }
        }
    }
    for (std::size_t index = 0; nan && index < plan.tensors.size(); ++index) {
        PlanTensor const& tensor = plan.tensors[index];
        for (std::int64_t column = 0; !tensor.input && column < tensor.columns; ++column) {
            write(tensor, memory[index], column, kNan);
        }
    }
}

void round_outputs(StandinPlan const& plan, PlanShape const& shape,
                   std::vector<void*> const& memory) {
    constexpr float kFactor = 1.0F + 1.0F / 4096;
    for (std::size_t index = 0; index < plan.tensors.size(); ++index) {
        PlanTensor const& tensor = plan.tensors[index];
        if (!tensor.input && tensor.element == ElementType::kFloat32) {
            std::span<float> const values(static_cast<float*>(memory[index]),
                                          tensor.bytes_of(shape) / sizeof(float));
            std::ranges::for_each(values, [](float& value) { value *= kFactor; });
        }
    }
}

}  // namespace duovec::standin
