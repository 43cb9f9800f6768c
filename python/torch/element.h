// SPDX-License-Identifier: Apache-2.0
//
// torch's types and reductions in Rondo's terms.
#pragma once

#include <ATen/ATen.h>
#include <rondo/types.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace rondo::python {

// Reductions treat types of torch by their kind. A set of kinds is their sum.
enum Kind : unsigned { opaque = 0, integer = 1, floating = 2, complex = 4, truth = 8 };

struct TensorType {
  at::ScalarType scalar;
  DType moves_as;  // complex numbers move as two real ones
  Kind kind;
};
inline constexpr TensorType tensor_types[] = {{at::kFloat, DType::f32, floating},
                                              {at::kDouble, DType::f64, floating},
                                              {at::kHalf, DType::f16, floating},
                                              {at::kBFloat16, DType::bf16, floating},
                                              {at::kFloat8_e4m3fn, DType::f8e4m3, floating},
                                              {at::kFloat8_e5m2, DType::f8e5m2, floating},
                                              {at::kLong, DType::i64, integer},
                                              {at::kUInt64, DType::u64, integer},
                                              {at::kInt, DType::i32, integer},
                                              {at::kUInt32, DType::u32, integer},
                                              {at::kShort, DType::i16, integer},
                                              {at::kUInt16, DType::u16, integer},
                                              {at::kChar, DType::i8, integer},
                                              {at::kByte, DType::u8, integer},
                                              {at::kBool, DType::u8, truth},
                                              {at::kComplexFloat, DType::f32, complex},
                                              {at::kComplexDouble, DType::f64, complex},
                                              {at::kComplexHalf, DType::f16, complex}};

// Types that Rondo cannot reduce, such as other short floats, move as integers of their width.
inline TensorType type_of(const at::Tensor& tensor) {
  const at::ScalarType scalar = tensor.scalar_type();
  const auto found = std::ranges::find(tensor_types, scalar, &TensorType::scalar);
  if (found != std::end(tensor_types)) return *found;
  const auto bytes = tensor.element_size();
  return {scalar,
          bytes == 2   ? DType::u16
          : bytes == 4 ? DType::u32
          : bytes == 8 ? DType::u64
                       : DType::u8,
          opaque};
}

// Returns the type in which a tensor moves.
inline DType moved_type(const at::Tensor& tensor) {
  return type_of(tensor).moves_as;
}

// All elements of a contiguous tensor.
inline Buffer whole(const at::Tensor& tensor) {
  const DType type = moved_type(tensor);
  return {tensor.data_ptr(), tensor.nbytes() / size_of(type), type,
          tensor.is_cuda() ? int(tensor.device().index()) : -1};
}

struct Reduction {
  ReduceOp op = ReduceOp::sum;
  std::optional<double> factor{};  // of this rank's input
};

// The reductions of torch. One byte of a truth value is reduced as a number.
struct ReductionRow {
  c10d::ReduceOp::RedOpType torch;
  unsigned takes;  // kinds
  ReduceOp op, of_truth;
  const char* name;
};
inline constexpr unsigned numbers = integer | floating;
inline constexpr ReductionRow reductions[] = {
    {c10d::ReduceOp::SUM, numbers | complex | truth, ReduceOp::sum, ReduceOp::max, "ReduceOp.SUM"},
    {c10d::ReduceOp::AVG, numbers | complex, ReduceOp::mean, ReduceOp::mean, "an average"},
    {c10d::ReduceOp::PRODUCT, numbers | truth, ReduceOp::product, ReduceOp::min,
     "ReduceOp.PRODUCT"},
    {c10d::ReduceOp::MIN, numbers | truth, ReduceOp::min, ReduceOp::min, "ReduceOp.MIN"},
    {c10d::ReduceOp::MAX, numbers | truth, ReduceOp::max, ReduceOp::max, "ReduceOp.MAX"},
    {c10d::ReduceOp::BAND, integer | truth, ReduceOp::bit_and, ReduceOp::bit_and, "ReduceOp.BAND"},
    {c10d::ReduceOp::BOR, integer | truth, ReduceOp::bit_or, ReduceOp::bit_or, "ReduceOp.BOR"},
    {c10d::ReduceOp::BXOR, integer | truth, ReduceOp::bit_xor, ReduceOp::bit_xor, "ReduceOp.BXOR"},
    {c10d::ReduceOp::PREMUL_SUM, floating | complex, ReduceOp::sum, ReduceOp::sum,
     "ReduceOp.PREMUL_SUM"}};

// Throws ValueError or TypeError for what cannot be.
inline Reduction reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const Kind kind = type_of(tensor).kind;
  const auto row = std::ranges::find(reductions, op.op_, &ReductionRow::torch);
  const bool exists = row != std::end(reductions);
  TORCH_CHECK_VALUE(kind != opaque && exists && (row->takes & kind) != 0, "rondo: ",
                    kind == opaque ? "a reduction"
                    : exists       ? row->name
                                   : "this reduction",
                    " of ", c10::toString(tensor.scalar_type()), " is not possible: ",
                    kind == complex ? "complex numbers are summed and averaged only"
                                    : "use a type that has it, such as float32");
  Reduction result{kind == truth ? row->of_truth : row->op};
  if (op.op_ == c10d::ReduceOp::PREMUL_SUM) {
    const auto* const extra = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
    TORCH_CHECK_VALUE(extra != nullptr, "rondo: ReduceOp.PREMUL_SUM has no factor");
    result.factor =
        extra->tensor_factor.defined() ? extra->tensor_factor.item<double>() : extra->double_factor;
  }
  return result;
}

}  // namespace rondo::python
