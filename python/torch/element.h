// SPDX-License-Identifier: Apache-2.0
//
// torch's types and reductions in Rondo's terms.
#pragma once

#include <ATen/ATen.h>
#include <rondo/types.h>

#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace rondo::python {

// Returns the type in which a tensor moves. Complex numbers move as two real ones, types that Rondo
// cannot reduce as integers of their width.
inline DType moved_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
    case at::kComplexDouble:
      return DType::f64;
    case at::kFloat:
    case at::kComplexFloat:
      return DType::f32;
    case at::kHalf:
    case at::kComplexHalf:
      return DType::f16;
    case at::kBFloat16:
      return DType::bf16;
    case at::kFloat8_e4m3fn:
      return DType::f8e4m3;
    case at::kFloat8_e5m2:
      return DType::f8e5m2;
    case at::kLong:
      return DType::i64;
    case at::kUInt64:
      return DType::u64;
    case at::kShort:
      return DType::i16;
    case at::kInt:
      return DType::i32;
    case at::kUInt32:
      return DType::u32;
    case at::kChar:
      return DType::i8;
    case at::kByte:
      return DType::u8;
    default:
      break;
  }
  switch (tensor.element_size()) {
    case 2:
      return DType::u16;
    case 4:
      return DType::u32;
    case 8:
      return DType::u64;
    default:
      return DType::u8;
  }
}

// All elements of a contiguous tensor.
inline Buffer whole(const at::Tensor& tensor) {
  const DType type = moved_type(tensor);
  return {tensor.data_ptr(), tensor.nbytes() / size_of(type), type,
          tensor.is_cuda() ? int(tensor.device().index()) : -1};
}

struct Reduction {
  ReduceOp op = ReduceOp::sum;
  DType type = DType::u8;
  std::optional<double> factor;  // of this rank's input
};

// Throws ValueError or TypeError for what cannot be.
inline Reduction reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  using Torch = c10d::ReduceOp;
  const at::ScalarType scalar = tensor.scalar_type();
  const bool logical = scalar == at::kBool, complex = at::isComplexType(scalar);
  // Other short floats move as integers, which must not be added.
  const bool floating = scalar == at::kDouble || scalar == at::kFloat || scalar == at::kHalf ||
                        scalar == at::kBFloat16 || scalar == at::kFloat8_e4m3fn ||
                        scalar == at::kFloat8_e5m2 || complex;
  Reduction result;
  result.type = moved_type(tensor);
  const auto refuse = [&](const char* what) {
    TORCH_CHECK_VALUE(false, "rondo: ", what, " of ", c10::toString(scalar), " is not possible: ",
                      complex ? "complex numbers are summed and averaged only"
                              : "use a type that has it, such as float32");
  };
  const bool known = logical || floating || scalar == at::kLong || scalar == at::kInt ||
                     scalar == at::kShort || scalar == at::kChar || scalar == at::kByte ||
                     scalar == at::kUInt64 || scalar == at::kUInt32 || scalar == at::kUInt16;
  if (!known) refuse("a reduction");
  switch (op.op_) {
    case Torch::SUM:  // of truth values: or
      result.op = logical ? ReduceOp::max : ReduceOp::sum;
      break;
    case Torch::AVG:
      if (logical) refuse("an average");
      result.op = ReduceOp::mean;
      break;
    case Torch::PRODUCT:
      if (complex) refuse("ReduceOp.PRODUCT");
      result.op = logical ? ReduceOp::min : ReduceOp::product;
      break;
    case Torch::MIN:
      if (complex) refuse("ReduceOp.MIN");
      result.op = ReduceOp::min;
      break;
    case Torch::MAX:
      if (complex) refuse("ReduceOp.MAX");
      result.op = ReduceOp::max;
      break;
    case Torch::BAND:
      if (floating) refuse("ReduceOp.BAND");
      result.op = ReduceOp::bit_and;
      break;
    case Torch::BOR:
      if (floating) refuse("ReduceOp.BOR");
      result.op = ReduceOp::bit_or;
      break;
    case Torch::BXOR:
      if (floating) refuse("ReduceOp.BXOR");
      result.op = ReduceOp::bit_xor;
      break;
    case Torch::PREMUL_SUM: {
      if (!floating) refuse("ReduceOp.PREMUL_SUM");
      const auto* const extra =
          dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
      TORCH_CHECK_VALUE(extra != nullptr, "rondo: ReduceOp.PREMUL_SUM has no factor");
      result.factor = extra->tensor_factor.defined() ? extra->tensor_factor.item<double>()
                                                     : extra->double_factor;
      break;
    }
    default:
      refuse("this reduction");
  }
  return result;
}

}  // namespace rondo::python
