// SPDX-License-Identifier: Apache-2.0
//
// The kernels that go over the elements of buckets. All threads of the grid share the pieces of a
// launch as if these lay back to back, so a launch of many small pieces keeps as many threads busy
// as one of a large piece.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/short_floats.h"
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

// to = from. Before that saved = to, where there is a place: the former contents are saved.
struct Moves {
  static constexpr Operation operation = Operation::move;
  static constexpr DType from_type = DType::u8, to_type = DType::u8;
  static constexpr std::size_t from_bytes = 1, to_bytes = 1;

  RONDO_HD static bool run(const Piece& piece, const Pass&, Shares& shares) noexcept {
    const auto all = reinterpret_cast<std::uintptr_t>(piece.from) |
                     reinterpret_cast<std::uintptr_t>(piece.to) |
                     reinterpret_cast<std::uintptr_t>(piece.saved);
    if (all % 16 == 0)
      in_units<device::Several<std::uint32_t, 4>>(piece, shares);
    else if (all % 4 == 0)
      in_units<device::Several<std::uint32_t, 1>>(piece, shares);
    else
      in_units<Half>(piece, shares);
    return false;
  }

 private:
  using Half = device::Several<std::uint16_t, 1>;

  template <class Unit>
  RONDO_HD static void in_units(const Piece& piece, Shares& shares) noexcept {
    const std::uint64_t units = piece.count / sizeof(Unit), rest = piece.count % sizeof(Unit);
    shares.each(units, [&piece](std::uint64_t i) { move<Unit>(piece, i * sizeof(Unit)); });
    shares.each(rest / sizeof(Half), [&piece, rest](std::uint64_t i) {
      move<Half>(piece, piece.count - rest + i * sizeof(Half));
    });
  }
  template <class Unit>
  RONDO_HD static void move(const Piece& piece, std::uint64_t offset) noexcept {
    if (piece.saved != nullptr) Unit::load(piece.to + offset).store(piece.saved + offset);
    const Unit unit = piece.from == nullptr ? Unit{} : Unit::load(piece.from + offset);
    unit.store(piece.to + offset);
  }
};

// to = from * factor: rounds to a short float, widens, or clips by the factor that each thread
// computes from the sum of squares. It takes packs of four elements, or single ones where the
// addresses do not allow packs. A null address allows all.
template <class From, class To>
class Products {
 public:
  static constexpr Operation operation = Operation::multiply;
  static constexpr DType from_type = From::type, to_type = To::type;
  static constexpr std::size_t from_bytes = sizeof(typename From::Stored),
                               to_bytes = sizeof(typename To::Stored);

  // Returns whether the thread has rounded an element that overflows_f16().
  RONDO_HD static bool run(const Piece& piece, const Pass& pass, Shares& shares) noexcept {
    Products products(pass);
    if (pass.squares != nullptr && products.factor_ == 1) return false;  // NaN stays as it is too
    const auto fits = [](const void* pointer, std::size_t bytes) {
      return reinterpret_cast<std::uintptr_t>(pointer) % (4 * bytes) == 0;
    };
    const bool in_packs = fits(piece.from, from_bytes) && fits(piece.to, to_bytes);
    const std::uint64_t packs = in_packs ? piece.count / 4 : 0;
    shares.each(packs, [&](std::uint64_t i) { products.template make<4>(piece, 4 * i); });
    shares.each(piece.count - 4 * packs,
                [&](std::uint64_t i) { products.template make<1>(piece, 4 * packs + i); });
    return products.overflows_;
  }

 private:
  static constexpr bool rounds = to_bytes < from_bytes;

  RONDO_HD explicit Products(const Pass& pass) noexcept
      : factor_(factor_of(pass)), narrow_(rounds || is_f32(factor_)) {}

  RONDO_HD double product(double value) const noexcept { return value * factor_; }
  RONDO_HD float product(float value) const noexcept {
    return narrow_ ? times(value, static_cast<float>(factor_)) : times(value, factor_);
  }
  template <std::size_t Length>
  RONDO_HD void make(const Piece& piece, std::uint64_t i) noexcept {
    device::Several<typename To::Stored, Length> to{};
    if (piece.from != nullptr) {
      const auto from =
          device::Several<typename From::Stored, Length>::load(piece.from + i * from_bytes);
      for (std::size_t k = 0; k < Length; ++k) {
        const auto value = From::decode(from.at[k]);
        if constexpr (rounds) overflows_ |= overflows_f16(value);
        to.at[k] = To::encode(product(value));
      }
    }
    to.store(piece.to + i * to_bytes);
  }

  const double factor_;
  const bool narrow_;  // the factor is taken as f32
  bool overflows_ = false;
};

// All pieces of a launch. Several threads may write Pass::overflow: any piece with such an element
// will do.
template <class Kernel>
struct Pieces {
  using Arguments = PieceArguments;
  struct Shared {};
  static constexpr Operation operation = Kernel::operation;
  static constexpr DType from_type = Kernel::from_type, to_type = Kernel::to_type;
  static constexpr int phases = 1;

  RONDO_HD static void run(int, const PieceArguments& arguments, Shared&,
                           const device::GridThread& thread) noexcept {
    Shares shares{thread};
    const Pass& pass = arguments.pass;
    RONDO_ROLLED
    for (std::uint32_t i = 0; i < arguments.count; ++i) {
      const Piece& piece = arguments.pieces[i];
      if (Kernel::run(piece, pass, shares) && pass.overflow != nullptr)
        *pass.overflow = piece.number + 1;
    }
  }

  template <class Visit>
  static void for_each_pointer(Arguments& arguments, Visit&& visit) {
    for (std::uint32_t i = 0; i < arguments.count; ++i) {
      Piece& piece = arguments.pieces[i];
      if (piece.from != nullptr) visit(piece.from, piece.count * Kernel::from_bytes);
      visit(piece.to, piece.count * Kernel::to_bytes);
      if (piece.saved != nullptr) visit(piece.saved, piece.count);
    }
    Pass& pass = arguments.pass;
    if (pass.overflow != nullptr) visit(pass.overflow, sizeof(std::uint32_t));
    if (pass.squares != nullptr) visit(pass.squares, sizeof(double));
  }
};

}  // namespace
}  // namespace rondo::grad
