// SPDX-License-Identifier: Apache-2.0
//
// The kernels of gradient buckets, in one phase. All threads of the grid share the pieces of a
// launch as if these lay back to back, so a launch of many small pieces keeps as many threads busy
// as one of a large piece.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/short_floats.h"
#include "device/phases.h"
#include "grad/device/arguments.h"
#include "grad/device/several.h"
#include "grad/wire_elements.h"

namespace rondo::grad {
namespace {

// Deals the elements of the pieces out to the threads of the grid.
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

// to = from. Before that beside = to, where there is a place: the former contents are saved.
struct Moves {
  static constexpr std::size_t from_bytes = 1, to_bytes = 1, beside_bytes = 1;

  RONDO_HD static void run(const DevicePiece& piece, double, Shares& shares) noexcept {
    const auto all = reinterpret_cast<std::uintptr_t>(piece.from) |
                     reinterpret_cast<std::uintptr_t>(piece.to) |
                     reinterpret_cast<std::uintptr_t>(piece.beside);
    if (all % 16 == 0)
      in_units<Several<std::uint32_t, 4>>(piece, shares);
    else if (all % 4 == 0)
      in_units<Several<std::uint32_t, 1>>(piece, shares);
    else
      in_units<Half>(piece, shares);
  }

 private:
  using Half = Several<std::uint16_t, 1>;

  template <class Unit>
  RONDO_HD static void in_units(const DevicePiece& piece, Shares& shares) noexcept {
    const std::uint64_t units = piece.count / sizeof(Unit), rest = piece.count % sizeof(Unit);
    shares.each(units, [&piece](std::uint64_t i) { move<Unit>(piece, i * sizeof(Unit)); });
    shares.each(rest / sizeof(Half), [&piece, rest](std::uint64_t i) {
      move<Half>(piece, piece.count - rest + i * sizeof(Half));
    });
  }
  template <class Unit>
  RONDO_HD static void move(const DevicePiece& piece, std::uint64_t offset) noexcept {
    if (piece.beside != nullptr) Unit::load(piece.to + offset).store(piece.beside + offset);
    const Unit unit = piece.from == nullptr ? Unit{} : Unit::load(piece.from + offset);
    unit.store(piece.to + offset);
  }
};

// Converts packs of four elements, or single ones where the addresses do not allow packs.
template <class Conversion>
struct Conversions {
  static constexpr std::size_t from_bytes = Conversion::from_bytes, to_bytes = Conversion::to_bytes,
                               beside_bytes = Conversion::beside_bytes;

  RONDO_HD static void run(const DevicePiece& piece, double factor, Shares& shares) noexcept {
    const Conversion conversion(factor);
    const auto fits = [](const void* pointer, std::size_t bytes) {
      return reinterpret_cast<std::uintptr_t>(pointer) % (4 * bytes) == 0;
    };
    const bool in_packs = fits(piece.from, from_bytes) && fits(piece.to, to_bytes) &&
                          fits(piece.beside, beside_bytes);
    const std::uint64_t packs = in_packs ? piece.count / 4 : 0;
    shares.each(packs, [&](std::uint64_t i) { conversion.template run<4>(piece, 4 * i); });
    shares.each(piece.count - 4 * packs,
                [&](std::uint64_t i) { conversion.template run<1>(piece, 4 * packs + i); });
  }
};

// to (bf16) = from (f32) * factor + beside, rounded to nearest even; beside (f32, or null) = what
// that has lost. Zeros leave it as it is. As encode_wire() with unit 1.
class ToBF16 {
 public:
  static constexpr std::size_t from_bytes = 4, to_bytes = 2, beside_bytes = 4;

  RONDO_HD explicit ToBF16(double factor) noexcept : factor_(static_cast<float>(factor)) {}
  template <std::size_t Length>
  RONDO_HD void run(const DevicePiece& piece, std::uint64_t i) const noexcept {
    using Floats = Several<float, Length>;
    Several<std::uint16_t, Length> codes{};
    std::byte* const beside = piece.beside == nullptr ? nullptr : piece.beside + i * sizeof(float);
    if (piece.from != nullptr) {
      const Floats values = Floats::load(piece.from + i * sizeof(float));
      Floats rest{};
      if (beside != nullptr) rest = Floats::load(beside);
      for (std::size_t k = 0; k < Length; ++k) {
        float wanted = times(values.at[k], factor_);
        if (beside != nullptr) wanted += rest.at[k];
        const std::uint32_t code = base::BF16::encode(wanted);
        codes.at[k] = static_cast<std::uint16_t>(code);
        rest.at[k] = lost_by(wanted, base::BF16::decode(code));
      }
      if (beside != nullptr) rest.store(beside);
    }
    codes.store(piece.to + i * sizeof(std::uint16_t));
  }

 private:
  const float factor_;
};

// to (f32) = from (bf16) * factor, as decode_wire(). `beside` is null.
class FromBF16 {
 public:
  static constexpr std::size_t from_bytes = 2, to_bytes = 4, beside_bytes = 4;

  RONDO_HD explicit FromBF16(double factor) noexcept : factor_(factor), narrow_(is_f32(factor)) {}
  template <std::size_t Length>
  RONDO_HD void run(const DevicePiece& piece, std::uint64_t i) const noexcept {
    using Codes = Several<std::uint16_t, Length>;
    const Codes codes = Codes::load(piece.from + i * sizeof(std::uint16_t));
    Several<float, Length> values;
    for (std::size_t k = 0; k < Length; ++k) {
      const float value = base::BF16::decode(codes.at[k]);
      values.at[k] = narrow_ ? times(value, static_cast<float>(factor_)) : times(value, factor_);
    }
    values.store(piece.to + i * sizeof(float));
  }

 private:
  const double factor_;
  const bool narrow_;
};

template <class Kernel>
struct Pieces {
  using Arguments = PieceArguments;
  struct Shared {};
  static constexpr int phases = 1;

  RONDO_HD static void run(int, const Arguments& arguments, Shared&,
                           const device::GridThread& thread) noexcept {
    Shares shares{thread};
    RONDO_ROLLED
    for (std::uint32_t piece = 0; piece < arguments.count; ++piece)
      Kernel::run(arguments.pieces[piece], arguments.factor, shares);
  }

  template <class Visit>
  static void for_each_pointer(Arguments& arguments, Visit&& visit) {
    for (std::uint32_t i = 0; i < arguments.count; ++i) {
      DevicePiece& piece = arguments.pieces[i];
      if (piece.from != nullptr) visit(piece.from, piece.count * Kernel::from_bytes);
      visit(piece.to, piece.count * Kernel::to_bytes);
      if (piece.beside != nullptr) visit(piece.beside, piece.count * Kernel::beside_bytes);
    }
  }
};

}  // namespace
}  // namespace rondo::grad
