// The plan of the TensorRT stand-ins: a few lines of text, and the arithmetic of the engine that
// they stand for, which is that of src/engine/fake.rs.
//
// Thread safety: everything may be called from all threads. Ownership: none. Preconditions: inputs
// that break the engine's contract abort.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace duovec::standin {

enum class ElementType { kInt32, kInt64, kFloat32, kFloat16 };

std::size_t bytes_of(ElementType element);

struct PlanShape {
    std::int64_t rows = 0;
    std::int64_t length = 0;

    bool operator==(PlanShape const&) const = default;
};

struct PlanTensor {
    std::string name;
    bool input = false;
    ElementType element = ElementType::kInt32;
    /// Of an output; 0 is the batch's length.
    std::int64_t columns = 0;

    std::int64_t columns_of(PlanShape const& shape) const {
        return columns == 0 ? shape.length : columns;
    }
    std::size_t bytes_of(PlanShape const& shape) const;
};

struct ShapeRange {
    PlanShape min;
    PlanShape opt;
    PlanShape max;
};

struct StandinPlan {
    std::vector<PlanTensor> tensors;
    std::vector<ShapeRange> profiles;
    /// Bytes for each profile.
    std::vector<std::int64_t> scratch;
    /// Their names; none of a plan that was not built to tell them.
    std::vector<std::string> layers;
    /// It brings code that runs on the host.
    bool host_code = false;
    /// It never allocates while it runs, so that TensorRT-RTX can capture it.
    bool user_allocation = false;
};

/// Throws std::runtime_error when the text is no plan of this flavour.
StandinPlan parse_plan(std::string_view text, std::string_view flavour);

/// Whether this begins as every plan of the flavour does.
bool has_plan_header(std::string_view text, std::string_view flavour);
std::size_t plan_header_bytes(std::string_view flavour);

/// Fills the outputs; `memory` has an address for each tensor. With `nan` the first dense row is
/// not a number.
void run_plan(StandinPlan const& plan, PlanShape const& shape, std::vector<void*> const& memory,
              bool nan);

/// Changes the outputs as another order of sums would.
void round_outputs(StandinPlan const& plan, PlanShape const& shape,
                   std::vector<void*> const& memory);

}  // namespace duovec::standin
