// SPDX-License-Identifier: Apache-2.0
//
// Gradient buckets' kernels for GPUs (docs/reference/device-kernels.md), and their list at the end.
// kernels.cu makes an entry point of each line, launches.cc a row of its table, and the tests a
// function that runs on the processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/phases.h"
#include "device/several.h"
#include "grad/device/arguments.h"
#include "grad/device/arithmetic.h"

namespace rondo::grad {
namespace {

// ---- elements ----
//
// All threads of the grid share the pieces of a launch as if these lay back to back, so a launch of
// many small pieces keeps as many threads busy as one of a large piece.

// Deals elements out to the threads of the grid.
struct Shares {
  const device::GridThread& thread;
  std::uint64_t before = 0;  // what has been dealt out

  // Calls body(i) for this thread's share of the numbers below count.
  template <class Body>
  RONDO_HD void each(std::uint64_t count, const Body& body) noexcept {
    const std::uint64_t all = thread.all();
    RONDO_ROLLED
    for (std::uint64_t i = (thread.place() + all - before % all) % all; i < count; i += all)
      body(i);
    before += count;
  }
};

struct Factor {
  double factor;
  bool narrow;  // it is taken as f32

  RONDO_HD double times(double value) const noexcept { return value * factor; }
  RONDO_HD float times(float value) const noexcept {
    return narrow ? grad::times(value, static_cast<float>(factor)) : grad::times(value, factor);
  }
  RONDO_HD std::uint16_t times(std::uint16_t bits) const noexcept { return bits; }  // of a move
};

// Moves, rounds to a short float, widens, or clips by the factor that each thread computes from the
// sum of squares. It takes packs of four elements, or single ones where the addresses do not allow
// packs. A null address allows all. Several threads may write Pass::overflow: any piece with such
// an element will do.
template <class From, class To>
struct Pieces {
  using Arguments = PieceArguments;
  struct Shared {};
  static constexpr Operation operation =
      From::type == DType::u16 ? Operation::move : Operation::multiply;
  static constexpr DType from_type = From::type, to_type = To::type;
  static constexpr int phases = 1;

  RONDO_HD static void run(int, const PieceArguments& arguments, Shared&,
                           const device::GridThread& thread) noexcept {
    const Pass& pass = arguments.pass;
    const double factor = factor_of(pass);
    if (pass.squares != nullptr && factor == 1) return;  // NaN stays as it is too
    // A short float has too few digits to show the difference between factors of f64 and of f32.
    const Factor by{factor, rounds || is_f32(factor)};
    Shares shares{thread};
    RONDO_ROLLED
    for (std::uint32_t i = 0; i < arguments.count; ++i) {
      const Piece& piece = arguments.pieces[i];
      if (make(piece, by, shares) && pass.overflow != nullptr) *pass.overflow = piece.number + 1;
    }
  }

  template <class Visit>
  static void for_each_pointer(Arguments& arguments, Visit&& visit) {
    for (std::uint32_t i = 0; i < arguments.count; ++i) {
      Piece& piece = arguments.pieces[i];
      if (piece.from != nullptr) visit(piece.from, piece.count * from_bytes);
      visit(piece.to, piece.count * to_bytes);
      if (piece.saved != nullptr) visit(piece.saved, piece.count * to_bytes);
    }
    Pass& pass = arguments.pass;
    if (pass.overflow != nullptr) visit(pass.overflow, sizeof(std::uint32_t));
    if (pass.squares != nullptr) visit(pass.squares, sizeof(double));
  }

 private:
  static constexpr std::size_t from_bytes = sizeof(typename From::Stored),
                               to_bytes = sizeof(typename To::Stored);
  static constexpr bool rounds = to_bytes < from_bytes;

  // Returns whether the thread has rounded an element that overflows_f16().
  RONDO_HD static bool make(const Piece& piece, const Factor& by, Shares& shares) noexcept {
    const auto fits = [](const void* pointer, std::size_t bytes) {
      return reinterpret_cast<std::uintptr_t>(pointer) % (4 * bytes) == 0;
    };
    const bool in_packs =
        fits(piece.from, from_bytes) && fits(piece.to, to_bytes) && fits(piece.saved, to_bytes);
    const std::uint64_t packs = in_packs ? piece.count / 4 : 0;
    bool overflows = false;
    shares.each(packs, [&](std::uint64_t i) { overflows |= make<4>(piece, by, 4 * i); });
    shares.each(piece.count - 4 * packs,
                [&](std::uint64_t i) { overflows |= make<1>(piece, by, 4 * packs + i); });
    return overflows;
  }

  template <std::size_t Length>
  RONDO_HD static bool make(const Piece& piece, const Factor& by, std::uint64_t i) noexcept {
    using FromPack = device::Several<typename From::Stored, Length>;
    using ToPack = device::Several<typename To::Stored, Length>;
    std::byte* const target = piece.to + i * to_bytes;
    if (piece.saved != nullptr) ToPack::load(target).store(piece.saved + i * to_bytes);
    bool overflows = false;
    ToPack to{};
    if (piece.from != nullptr) {
      const auto from = FromPack::load(piece.from + i * from_bytes);
      for (std::size_t k = 0; k < Length; ++k) {
        const auto value = From::decode(from.at[k]);
        if constexpr (rounds) overflows |= overflows_f16(value);
        to.at[k] = To::encode(by.times(value));
      }
    }
    to.store(target);
    return overflows;
  }
};

// ---- sums ----
//
// A block of threads makes one sum in the order of arithmetic.h, each thread one column.

static_assert(device::block_threads == square_columns, "a thread for each column");

// The grid has as many blocks as there are sums in all pieces: one for each block of elements if
// squares are added, and otherwise one for each piece, which is 0 if `from` is null.
template <class Element, Operation What>
struct Sums {
  using Arguments = PieceArguments;
  struct Shared {
    double columns[square_columns], lanes[square_lanes];
  };
  static constexpr Operation operation = What;
  static constexpr DType from_type = Element::type, to_type = DType::f64;
  static constexpr int phases = 3;

  RONDO_HD static void run(int phase, const Arguments& arguments, Shared& shared,
                           const device::GridThread& thread) noexcept {
    const unsigned index = thread.index;
    if (phase == 1) {
      if (index < square_lanes) shared.lanes[index] = lane_sum(shared.columns, index);
      return;
    }
    if (phase == 2 && index != 0) return;
    std::uint64_t block = thread.block;
    RONDO_ROLLED
    for (std::uint32_t i = 0; i < arguments.count; ++i) {
      const Piece& piece = arguments.pieces[i];
      const std::uint64_t sums = sums_of(piece);
      if (block < sums) {
        if (phase == 0)
          shared.columns[index] = sum(piece, block * square_block, index);
        else
          device::Several<double, 1>{{lanes_total(shared.lanes)}}.store(piece.to +
                                                                        block * sizeof(double));
        return;
      }
      block -= sums;
    }
  }

  template <class Visit>
  static void for_each_pointer(Arguments& arguments, Visit&& visit) {
    for (std::uint32_t i = 0; i < arguments.count; ++i) {
      Piece& piece = arguments.pieces[i];
      if (piece.from != nullptr) visit(piece.from, piece.count * sizeof(Stored));
      visit(piece.to, sums_of(piece) * sizeof(double));
    }
  }

 private:
  using Stored = typename Element::Stored;
  static constexpr bool squares = What == Operation::sum_squares;

  RONDO_HD static std::uint64_t sums_of(const Piece& piece) noexcept {
    return squares ? square_blocks(piece.count) : 1;
  }
  RONDO_HD static double sum(const Piece& piece, std::uint64_t first, unsigned column) noexcept {
    const std::uint64_t left = piece.from == nullptr ? 0 : piece.count - first;
    const std::byte* const from = piece.from + first * sizeof(Stored);
    return column_sum(
        squares && left > square_block ? square_block : left, column, [from](std::uint64_t i) {
          const auto stored = device::Several<Stored, 1>::load(from + i * sizeof(Stored));
          const auto value = static_cast<double>(Element::decode(stored.at[0]));
          return squares ? value * value : value;
        });
  }
};

}  // namespace
}  // namespace rondo::grad

// KERNEL(name of the entry point, struct of the kernel)
#define RONDO_GRAD_KERNELS(KERNEL)                                    \
  KERNEL(rondo_grad_move, Pieces<U16, U16>)                           \
  KERNEL(rondo_grad_to_bf16, Pieces<F32, BF16>)                       \
  KERNEL(rondo_grad_from_bf16, Pieces<BF16, F32>)                     \
  KERNEL(rondo_grad_to_f16, Pieces<F32, F16>)                         \
  KERNEL(rondo_grad_from_f16, Pieces<F16, F32>)                       \
  KERNEL(rondo_grad_squares_f64, Sums<F64, Operation::sum_squares>)   \
  KERNEL(rondo_grad_squares_f32, Sums<F32, Operation::sum_squares>)   \
  KERNEL(rondo_grad_squares_f16, Sums<F16, Operation::sum_squares>)   \
  KERNEL(rondo_grad_squares_bf16, Sums<BF16, Operation::sum_squares>) \
  KERNEL(rondo_grad_add_blocks, Sums<F64, Operation::sum_blocks>)     \
  KERNEL(rondo_grad_scale_f64, Pieces<F64, F64>)                      \
  KERNEL(rondo_grad_scale_f32, Pieces<F32, F32>)                      \
  KERNEL(rondo_grad_scale_f16, Pieces<F16, F16>)                      \
  KERNEL(rondo_grad_scale_bf16, Pieces<BF16, BF16>)
