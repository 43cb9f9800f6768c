// SPDX-License-Identifier: Apache-2.0
//
// The kernels that go over the elements of buckets. All threads of the grid share the pieces of a
// launch as if these lay back to back, so a launch of many small pieces keeps as many threads busy
// as one of a large piece.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/phases.h"
#include "device/several.h"
#include "grad/device/arguments.h"
#include "grad/device/arithmetic.h"

namespace rondo::grad {
namespace {

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

}  // namespace
}  // namespace rondo::grad
