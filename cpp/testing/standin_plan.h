// The plan of the TensorRT stand-ins: a few lines of text, and the arithmetic of the engine that
// they stand for, which is that of src/engine/fake.rs.
//
// Thread safety: everything may be called from all threads. Ownership: none. Preconditions: inputs
// that break the graph's contract abort.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layout.h"
#include "testing/standin_kernel.h"

namespace duovec::standin {

/// Of rank 2, [rows, length], or 3, [rows, spans, length]; the last axis may have a size of its
/// own.
struct PlanTensor {
    std::string name;
    bool input = false;
    Element element = Element::kInt32;
    /// As in the plan's text: -1 where a batch's shape tells.
    std::vector<std::int64_t> dims;

    std::vector<std::int64_t> sizes_of(Shape shape) const;
    std::size_t bytes_of(Shape shape) const;
    /// [rows, length, columns] instead.
    bool is_of_tokens() const;
};

struct ShapeRange {
    Shape min;
    Shape opt;
    Shape max;
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

/// `memory` has an address for each tensor; null for what the plan has not.
KernelArguments arguments_of(StandinPlan const& plan, Shape shape,
                             std::vector<void*> const& memory);

/// Fills the outputs; `memory` has an address for each tensor. With `nan` the first dense vector is
/// not a number.
void run_plan(StandinPlan const& plan, Shape shape, std::vector<void*> const& memory, bool nan);

}  // namespace duovec::standin
